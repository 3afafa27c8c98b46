"""The privacy account of one data set: what all runs on the same people have cost together.

Runs that are mu_i-GDP compose, adaptively too, to sqrt(sum mu_i^2)-GDP. A weekly refit at epsilon = 1 is
not epsilon = 1 at the end of the year: this file knows what it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsco.accounting import gaussian
from dpsco.accounting.budget import Budget
from dpsco.errors import AccountError
from dpsco.json_files import locked, read_sealed, write_sealed

__all__ = ["Account"]

FORMAT = 1
_FIELDS = {"format", "adjacency", "records", "epsilon", "delta", "runs"}


@dataclass(frozen=True)
class Account:
    """A file that adds up the runs on one data set and refuses the one that would overdraw ``limit``.

    >>> import tempfile
    >>> account = Account(Path(tempfile.mkdtemp()) / "people.json", limit=Budget(epsilon=3.0, delta=1e-6))
    >>> account.charge("week 1", Budget(epsilon=1.0, delta=1e-6))
    >>> account.charge("week 2", Budget(epsilon=1.0, delta=1e-6))
    >>> round(account.epsilon, 3)  # not 2: composition of Gaussian mechanisms is exact
    1.455

    Guarantee: a run is charged, on disk, before its first release; a resumed run is charged once.
    """

    path: Path
    limit: Budget

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        if not self.limit.private:
            raise AccountError("An account needs a finite limit: epsilon=inf would let everything through.")
        if self.path.exists():
            self._read()

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter of all runs so far."""
        return gaussian.compose(*(run["mu"] for run in self._read()["runs"]))

    @property
    def epsilon(self) -> float:
        """Epsilon of all runs so far, at the limit's delta."""
        mu = self.mu
        return gaussian.epsilon_of(mu, self.limit.delta) if mu else 0.0

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The charged runs: id and mu."""
        return list(self._read()["runs"])

    def remaining(self) -> Budget:
        """The largest budget one more run may have."""
        left = self.limit.mu**2 - self.mu**2
        epsilon = gaussian.epsilon_of(math.sqrt(left) * (1 - 1e-12), self.limit.delta) if left > 0 else 0.0
        if epsilon <= 0:
            raise AccountError(f"The account {self.path.name!r} is used up: epsilon={self.epsilon:.4g} spent.")
        return Budget(epsilon, self.limit.delta, self.limit.adjacency, self.limit.records)

    def charge(self, run_id: str, budget: Budget) -> None:
        """Write down one run, or refuse it; a run already written down costs nothing more."""
        if (budget.adjacency, budget.records) != (self.limit.adjacency, self.limit.records):
            raise AccountError(
                f"The account counts adjacency={self.limit.adjacency!r}, records={self.limit.records}; the run "
                "promises "
                f"{budget.adjacency!r}, records={budget.records}. Plan it with the account's own."
            )
        if not budget.private:
            raise AccountError("A run without noise (epsilon=inf) cannot be charged to an account: it would void it.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_name(self.path.name + ".lock"), f"account {self.path.name!r}"):
            state = self._read()
            known = {run["id"]: run["mu"] for run in state["runs"]}
            if run_id in known:
                if known[run_id] != budget.mu:
                    raise AccountError(
                        f"The run {run_id!r} is on the account with another budget. Name the new run anew."
                    )
                return
            total = gaussian.compose(*(run["mu"] for run in state["runs"]), budget.mu)
            if total > self.limit.mu * (1 + 1e-12):  # sigma carries the same factor as a margin
                raise AccountError(
                    f"This run would bring the account {self.path.name!r} to "
                    "epsilon="
                    f"{gaussian.epsilon_of(total, self.limit.delta):.4g} at delta={self.limit.delta:.3g}, above its "
                    "limit "
                    f"{self.limit.epsilon:.4g}. Plan the run with account.remaining(), or raise the limit knowingly."
                )
            state["runs"].append({"id": run_id, "mu": budget.mu})
            write_sealed(self.path, state)

    def _read(self) -> dict[str, Any]:
        if not self.path.exists():
            limit = self.limit
            public = {
                "adjacency": limit.adjacency,
                "records": limit.records,
                "epsilon": limit.epsilon,
                "delta": limit.delta,
            }
            return {"format": FORMAT, **public, "runs": []}
        state = read_sealed(self.path, "account", _FIELDS)
        stored = (state["adjacency"], state["records"], state["epsilon"], state["delta"])
        limit = self.limit
        if state["format"] != FORMAT or stored != (limit.adjacency, limit.records, limit.epsilon, limit.delta):
            raise AccountError(
                f"The account {self.path.name!r} was opened with another limit: epsilon={stored[2]}, "
                f"delta={stored[3]}, "
                f"adjacency={stored[0]!r}, records={stored[1]}. Open it with the same."
            )
        if not isinstance(state["runs"], list) or not all(_is_run(run, limit.mu) for run in state["runs"]):
            raise AccountError(f"The account {self.path.name!r} holds a run that is none. Restore it from a copy.")
        return state


def _is_run(run: Any, limit: float) -> bool:
    """Whether an entry can have been written by ``charge``."""
    return (
        isinstance(run, dict)
        and set(run) == {"id", "mu"}
        and isinstance(run["id"], str)
        and isinstance(run["mu"], float)
        and 0 < run["mu"] <= limit * (1 + 1e-9)
    )
