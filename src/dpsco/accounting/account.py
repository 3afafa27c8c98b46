"""The privacy account of one data set: the total cost of all runs on the same rows.

Runs that are mu_i-GDP compose, also adaptively, to sqrt(sum mu_i^2)-GDP. A weekly run at epsilon = 1 has a larger
epsilon at the end of the year; the account computes it.

Float64 noise differs from Gaussian noise with probability l_i in run i (``Budget.log_float_loss``), so with probability
at most sum l_i in all of them. That costs (1 + e^epsilon) sum l_i of the limit's delta, at the limit's epsilon. A run's
own l_i is sized for its own epsilon, which may be far smaller. So the account adds the losses, and mu has what is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsco.accounting import gaussian
from dpsco.accounting.budget import FLOAT_SHARE, Budget
from dpsco.errors import AccountError, InvalidArgument
from dpsco.held_files import Held, locked
from dpsco.json_files import read_sealed, write_sealed

__all__ = ["Account"]

FORMAT = 2
PATIENCE = 60.0
"""Seconds for which a charge waits for other processes; a charge takes milliseconds."""

_TRIES = 64
_LIMIT = ("adjacency", "records", "epsilon", "delta")
_FIELDS = {"format", *_LIMIT, "runs"}


@dataclass(frozen=True)
class Account:
    """A file that composes the runs on one data set and refuses a run that would exceed ``limit``.

    ``Account.create(path, limit)`` begins an account, once per data set. ``Account(path)`` opens it with the limit it
    was created with. A missing file is an error: a new account would start at 0 and omit what was spent.

    Parameters
    ----------
    path : Path
        The account's file. A symbolic link is followed, so all links to a file are one account. A file with several
        hard links is refused.
    limit : Budget, optional
        Compared with the limit in the file if given.

    Raises
    ------
    AccountError
        If there is no account, or it has another limit.
    CheckpointError
        If the file is damaged.

    Guarantee
    ---------
    A run is charged, on disk, before its first release. A resumed run is charged once. Processes that charge at the
    same time wait for each other, at most ``PATIENCE`` seconds; the lock is on the account's own file. If the file is
    moved or linked during a charge, the run is refused, and the account is the file under its new name. Restoring an
    older copy of the file is outside the guarantee.

    Examples
    --------
    >>> import tempfile
    >>> account = Account.create(Path(tempfile.mkdtemp()) / "people.json", limit=Budget(epsilon=3.0, delta=1e-6))
    >>> account.charge("week 1", Budget(epsilon=1.0, delta=1e-6))
    >>> account.charge("week 2", Budget(epsilon=1.0, delta=1e-6))
    >>> round(account.epsilon, 3)  # not 2: composition of Gaussian mechanisms is exact
    1.455
    """

    path: Path
    limit: Budget = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).resolve())
        if self.limit is None:
            object.__setattr__(self, "limit", self._stored_limit())
        _check_limit(self.limit)
        self._read()

    @classmethod
    def create(cls, path: str | Path, limit: Budget) -> Account:
        """Begin an account with nothing spent.

        Parameters
        ----------
        path : Path
            A file that does not exist yet.
        limit : Budget
            The guarantee for all runs together; its epsilon is finite.

        Raises
        ------
        AccountError
            If ``path`` exists or the limit is infinite.
        """
        _check_limit(limit)
        place = Path(path).resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            place.touch(0o644, exist_ok=False)  # one of several processes succeeds
        except FileExistsError:
            if place.is_file() and not place.stat().st_size:
                raise AccountError(
                    f"The account {place.name!r} is empty: a process is beginning it at this moment, or ended while it "
                    "did, before any run could be charged. If it stays empty, delete the file and create it again."
                ) from None
            raise AccountError(f"The account {place.name!r} exists already. Open it with Account(path).") from None
        try:
            write_sealed(place, {"format": FORMAT, **{name: getattr(limit, name) for name in _LIMIT}, "runs": []})
        except BaseException:
            if not place.stat().st_size:  # an account that is complete stays: somebody may have charged it already
                place.unlink()
            raise
        return cls(place, limit)

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter of all runs so far."""
        return gaussian.compose(*(run["mu"] for run in self._read()["runs"]))

    @property
    def epsilon(self) -> float:
        """Epsilon of all runs so far, at the limit's delta, with what float64 noise loses at the limit's epsilon."""
        runs = self._read()["runs"]
        if not runs:
            return 0.0
        delta = self._gaussian_delta(run["log_float_loss"] for run in runs)
        return gaussian.epsilon_of(gaussian.compose(*(run["mu"] for run in runs)), delta) if delta > 0 else math.inf

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The charged runs, each with id, mu and log_float_loss."""
        return list(self._read()["runs"])

    def remaining(self) -> Budget:
        """Return the largest budget for one more run. Raise AccountError if nothing is left."""
        limit, spent = self.limit, self.mu
        losses = [run["log_float_loss"] for run in self.runs]
        delta = self._gaussian_delta(losses)
        for _ in range(_TRIES):  # a smaller epsilon loses more, which leaves less
            left = gaussian.mu_of(limit.epsilon, delta) ** 2 - spent**2 if delta > 0 else 0.0
            epsilon = gaussian.epsilon_of(math.sqrt(left) * (1 - 1e-12), limit.gaussian_delta) if left > 0 else 0.0
            if epsilon <= 0:
                break
            found = Budget(epsilon, limit.delta, limit.adjacency, limit.records)
            known, delta = delta, self._gaussian_delta([*losses, found.log_float_loss])
            if delta >= known * (1 - 1e-13):
                return found
        raise AccountError(f"The account {self.path.name!r} is used up: epsilon={self.epsilon:.4g} spent.")

    def _gaussian_delta(self, log_losses: Iterable[float]) -> float:
        """Return the part of the limit's delta that Gaussian noise may use beside such losses; none if not positive.

        As in ``Budget.gaussian_delta``, ``FLOAT_SHARE`` is always left to losses.
        """
        both = self.limit.epsilon + math.log1p(math.exp(-self.limit.epsilon)) - math.log(self.limit.delta)
        share = math.fsum(math.exp(min(0.0, log_loss + both)) for log_loss in log_losses)
        return self.limit.delta * (1.0 - max(FLOAT_SHARE, share * (1 + 1e-12)))

    def charge(self, run_id: str, budget: Budget) -> None:
        """Charge one run, on disk. A run that is already charged costs nothing more.

        Parameters
        ----------
        run_id : str
            Unique name of the run.
        budget : Budget
            Its guarantee, with the adjacency and records of the limit.

        Raises
        ------
        AccountError
            If the run would exceed the limit, has no noise, another adjacency or other records, or was charged with
            another budget.
        """
        if (budget.adjacency, budget.records) != (self.limit.adjacency, self.limit.records):
            raise AccountError(
                f"The account has adjacency={self.limit.adjacency!r}, records={self.limit.records}; the run has "
                f"{budget.adjacency!r}, records={budget.records}. Plan the run with those of the account."
            )
        if not budget.private:
            raise AccountError(
                "A run without noise (epsilon=inf) cannot be charged to an account: no limit would hold."
            )
        self._file()  # there is an account
        try:
            with locked(self.path, f"account {self.path.name!r}", wait=PATIENCE) as held:
                self._charge(run_id, budget, held)
        except FileNotFoundError:  # while this process waited
            self._file()  # says so if the account is still gone
            raise AccountError(
                f"The account {self.path.name!r} was moved or replaced during a charge. Nothing was charged: try again."
            ) from None

    def _charge(self, run_id: str, budget: Budget, held: Held) -> None:
        state = self._read(held)
        known = {run["id"]: run for run in state["runs"]}
        entry = {"id": run_id, "mu": budget.mu, "log_float_loss": budget.log_float_loss}
        if run_id in known:
            if known[run_id] != entry:
                raise AccountError(
                    f"The run {run_id!r} is on the account with another budget. Give the new run another name."
                )
            return
        runs = [*state["runs"], entry]
        delta = self._gaussian_delta(run["log_float_loss"] for run in runs)
        if delta <= 0:
            raise AccountError(
                f"This run would bring what float64 noise loses beyond delta={self.limit.delta:.3g} of the account "
                f"{self.path.name!r}: a run with a small epsilon loses too much at epsilon={self.limit.epsilon:.4g}. "
                "Plan the run with a smaller delta, or begin accounts with a smaller epsilon."
            )
        total = gaussian.compose(*(run["mu"] for run in runs))
        if total > gaussian.mu_of(self.limit.epsilon, delta) * (1 + 1e-12):  # sigma has the same factor as a margin
            reached = gaussian.epsilon_of(total, delta)
            raise AccountError(
                f"This run would bring the account {self.path.name!r} to epsilon={reached:.4g} at "
                f"delta={self.limit.delta:.3g}, above its limit {self.limit.epsilon:.4g}. Plan the run with "
                "account.remaining()."
            )
        state["runs"] = runs
        write_sealed(self.path, state, held=held)

    def _read(self, held: Held | None = None) -> dict[str, Any]:
        state = self._file(held)
        limit = self.limit
        stored = tuple(state[name] for name in _LIMIT)
        if state["format"] != FORMAT or stored != tuple(getattr(limit, name) for name in _LIMIT):
            raise AccountError(
                f"The account {self.path.name!r} was created with another limit: epsilon={stored[2]}, "
                f"delta={stored[3]}, adjacency={stored[0]!r}, records={stored[1]}. Use that limit or none."
            )
        if not isinstance(state["runs"], list) or not all(_is_run(run, limit.mu) for run in state["runs"]):
            raise AccountError(f"The account {self.path.name!r} holds an invalid entry. Restore it from a copy.")
        return state

    def _file(self, held: Held | None = None) -> dict[str, Any]:
        """Return what the file says: that at the path, or the one that is held."""
        try:
            links = self.path.stat().st_nlink
        except OSError:
            raise AccountError(
                f"There is no account {self.path.name!r}. If the data set is new, begin one with Account.create(path, "
                "limit). If the account existed before, restore it: the cost of its runs remains."
            ) from None
        if self.path.is_symlink():  # a charge would replace the link, and the file behind it would not have the entry
            raise AccountError(
                f"The account {self.path.name!r} was moved, and there is a symbolic link in its place. Open it again: "
                "Account(path) follows the link."
            )
        if links > 1:
            raise AccountError(
                f"The account {self.path.name!r} has {links} hard links. A charge would change only one of them: "
                "remove the others, or use symbolic links."
            )
        return read_sealed(self.path if held is None else held, "account", _FIELDS)

    def _stored_limit(self) -> Budget:
        state = self._file()
        try:
            return Budget(**{name: state[name] for name in _LIMIT})
        except (InvalidArgument, TypeError):
            raise AccountError(f"The account {self.path.name!r} holds an invalid limit. Restore it.") from None


def _check_limit(limit: Budget) -> None:
    if not limit.private:
        raise AccountError("An account needs a finite limit: with epsilon=inf it would accept every run.")


def _is_run(run: Any, limit: float) -> bool:
    """Whether ``charge`` can have written this entry."""
    return (
        isinstance(run, dict)
        and set(run) == {"id", "mu", "log_float_loss"}
        and isinstance(run["id"], str)
        and isinstance(run["mu"], float)
        and 0 < run["mu"] <= limit * (1 + 1e-9)
        and isinstance(run["log_float_loss"], float)
        and -math.inf < run["log_float_loss"] < 0
    )
