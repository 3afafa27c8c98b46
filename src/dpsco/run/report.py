"""The privacy report: what is guaranteed, to whom, on what assumptions, and what may be published."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

from dpsco.accounting import gaussian
from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument
from dpsco.json_files import jsonable
from dpsco.lazy import cached_property

__all__ = ["IDS", "RECORDS", "UNITS", "PrivacyReport"]

FORMAT = 1
_FLOAT_LOSS = "at most 2^-30 of delta for the distance of float64 noise from Gaussian noise, not used by mu"
_CURVE_DELTAS = tuple(10.0**-k for k in range(2, 13))

_JSON_TYPES: dict[str, Any] = {
    "bool": bool,
    "str": str,
    "int": int,
    "int | None": (int, type(None)),
    "float": (int, float),
    "tuple[str, ...]": tuple,
    "dict[str, str]": dict,
}

_ABOVE_ZERO = {"epsilon", "mu", "records", "rounds", "batch_size", "rows_planned", "gradients_per_example"}
_LARGEST_COUNT = 2**63
_MU_RANGE = (1e-12, 1e6)


def _fits(name: str, kind: str, value: Any) -> bool:
    """Whether a value read from a file can be this field: of its type, and a number that a run can have."""
    if not isinstance(value, _JSON_TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        return False
    if isinstance(value, (tuple, dict)):
        items = value.values() if isinstance(value, dict) else value
        return all(isinstance(item, str) for item in items)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return True
    if isinstance(value, int) and value > _LARGEST_COUNT:
        return False
    if name == "delta":
        return 0 < value < 1
    if name == "mu":
        return _MU_RANGE[0] < value < _MU_RANGE[1] or value == math.inf
    return value > 0 if name in _ABOVE_ZERO else value >= 0


def _same(stated: float, found: float) -> bool:
    """Whether a number of a file is the one that is found, but for the last digits of another version."""
    return stated == found or math.isclose(stated, found, rel_tol=1e-6)


RECORDS = ("row", "client", "id")
UNITS = {
    "zero-out": "one row: its gradients replaced by 0, its place and the number of rows public",
    "replace": "one row: replaced by any other, the number of rows public",
    "add-remove": "one row: there or not there, the number of rows secret",
}
IDS = {
    "zero-out": "one id with all its rows, of which {k} count: replaced by rows without an id, which are zero rows; "
    "the number of rows public",
    "replace": "one id with all its rows, of which {k} count: replaced by rows of one id that has no others, the "
    "number of rows public",
    "add-remove": "one id with all its rows, of which {k} count: there or not there, the number of rows secret",
}
"""What is protected where rows carry ids. Not one row: without it another row of its id would count."""


@dataclass(frozen=True)
class PrivacyReport:
    """Everything a reader needs to judge a run; nothing in it depends on the data except through releases.

    Attributes
    ----------
    private, reason : bool, str
        Whether the run is private, and why or why not.
    exceptions : tuple of str
        What was used outside the guarantee, or makes it mean little; empty if nothing was.
    mu : float
        The budget's Gaussian-DP parameter; the run is mu-GDP only where ``gaussian`` says so.
    epsilon, delta, adjacency, records
        The guarantee, as in ``Budget``.
    record, unit : str
        What counts as one of the ``records``, a "row", a "client" or an "id" with its rows; and what is protected.
    method, needs : str
        Name of the method, and what its privacy rests on: "clipping" alone, or "convexity" of the loss.
    releases : str
        What may be shown: "all iterates", "phase outputs" or "last iterate".
    accounting, gaussian : str, bool
        How epsilon was found, and whether the run is mu-GDP; otherwise epsilon holds at ``delta`` alone.
    mechanism : str
        How the noise is correlated.
    rounds, batch_size : int
        Number of rounds and rows per round; about, where rounds differ or rows are sampled.
    sampling : str
        Which rows the rounds saw.
    rows_planned : int
        Rows of the plan.
    rows_missing : int or None
        Rows that did not come and counted as zero rows; None where the count is not public.
    rows_unread : int or None
        Rows that were there and not read; None where unknown or not public.
    gradients_per_example : int
        Gradients that one row was asked for.
    clip : float
        Bound on one row's contribution.
    noise_std : float
        sigma: standard deviation of each entry of Z; the noise on running sums is B Z.
    sensitivity : float
        Largest column norm of the mechanism's strategy.
    difference, slack : float
        Largest distance of one round's sums on neighbours, and the part of it that rounding adds.
    grid : float
        Sums and noise are multiples of it.
    assumptions : tuple of str
        What the guarantee assumes.
    publishable, never_publish : tuple of str
        What may be published, and what may never be.
    versions : dict
        Versions of the packages behind the run.
    run_id : str
        Random name of the run, for accounts.
    """

    private: bool
    reason: str
    exceptions: tuple[str, ...]
    mu: float
    epsilon: float
    delta: float
    adjacency: str
    records: int
    record: str
    unit: str
    method: str
    needs: str
    releases: str
    accounting: str
    gaussian: bool
    mechanism: str
    rounds: int
    batch_size: int
    sampling: str
    rows_planned: int
    rows_missing: int | None
    rows_unread: int | None
    gradients_per_example: int
    clip: float
    noise_std: float
    sensitivity: float
    difference: float
    slack: float
    grid: float
    assumptions: tuple[str, ...]
    publishable: tuple[str, ...]
    never_publish: tuple[str, ...]
    versions: dict[str, str]
    run_id: str

    @property
    def headline(self) -> str:
        """The first line of every form: whether the run is private, and except what."""
        if not self.private:
            return f"Not private: {self.reason}"
        if self.exceptions:
            return f"Private, except: {'; '.join(self.exceptions)}."
        return f"Private: {self.reason}"

    @cached_property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """(delta, epsilon) pairs: the whole trade-off if the run is mu-GDP, else the one that is guaranteed."""
        if not self.gaussian:
            return ((self.delta, self.epsilon),)
        deltas = sorted({*_CURVE_DELTAS, self.delta}, reverse=True)
        budget = Budget(self.epsilon, self.delta)
        return tuple((delta, budget.epsilon_at(delta, self.mu) if budget.private else math.inf) for delta in deltas)

    def group_epsilon(self, records: int) -> float:
        """Return epsilon at the report's delta for ``records`` rows at once; inf where the accounting does not say.

        Rows are clients in a federation that protects clients. An id counts as many rows as may count of it.
        """
        if not self.gaussian:
            return self.epsilon if records <= self.records else math.inf
        group = gaussian.group(self.mu / self.records, records)
        return Budget(self.epsilon, self.delta).epsilon_at(self.delta, group) if self.mu < math.inf else math.inf

    # --- forms --------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the report as JSON text."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        whole = {"headline": self.headline, "format": FORMAT, **data, "curve": self.curve}
        return json.dumps(jsonable(whole), indent=2)

    @classmethod
    def from_json(cls, text: str) -> PrivacyReport:
        """Return the report that ``to_json`` wrote; raise ``InvalidArgument`` if the text is none.

        mu, the curve and the headline must be those of the other fields: a report never states two guarantees.
        """
        fields = {field.name for field in dataclasses.fields(cls)}
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if (
            not isinstance(data, dict)
            or set(data) != fields | {"headline", "format", "curve"}
            or data["format"] != FORMAT
        ):
            raise InvalidArgument(
                f"Not a privacy report of format {FORMAT}: fields are missing, extra or of another version."
            )
        values: dict[str, Any] = {
            name: tuple(data[name]) if isinstance(data[name], list) else data[name] for name in fields
        }
        for name in ("mu", "epsilon", "clip", "difference"):
            values[name] = math.inf if values[name] == "inf" else values[name]
        for field in dataclasses.fields(cls):
            if not _fits(field.name, str(field.type), values[field.name]):
                raise InvalidArgument(f"Not a privacy report: {field.name} is not a possible {field.type}.")
        if values["record"] not in RECORDS:
            raise InvalidArgument(f"Not a privacy report: record is none of {', '.join(RECORDS)}.")
        made = cls(**values)
        if data["headline"] != made.headline:
            raise InvalidArgument("Not a privacy report: its headline is not that of its fields.")
        made._check_guarantee(data["curve"])
        return made

    def _check_guarantee(self, curve: Any) -> None:
        try:
            budget = Budget(self.epsilon, self.delta, self.adjacency, self.records)
            stated = [(float(delta), float(epsilon)) for delta, epsilon in curve]
        except (TypeError, ValueError):  # InvalidArgument is a ValueError
            raise InvalidArgument("Not a privacy report: its epsilon, delta, adjacency or curve cannot be.") from None
        if not _same(self.mu, budget.mu) or (self.private and not budget.private):
            raise InvalidArgument("Not a privacy report: its mu is not that of its epsilon and delta.")
        own = self.curve
        if len(stated) != len(own) or not all(map(_same, sum(stated, ()), sum(own, ()))):
            raise InvalidArgument("Not a privacy report: its curve is not that of its mu.")

    def to_text(self) -> str:
        """Return the report as plain text."""
        head, _, rest = self.headline.partition(":")
        lines = [f"{head.upper()}:{rest}"]
        lines += [f"  {name:<24} {value}" for name, value in self.facts()]
        for title, items in self.lists():
            lines += [f"  {title}", *(f"    - {item}" for item in items)]
        return "\n".join(lines)

    __str__ = to_text

    def to_markdown(self) -> str:
        """Return the report as Markdown, with the whole curve."""
        head, _, rest = self.headline.partition(":")
        lines = ["# Privacy report", "", f"**{head}**:{rest}", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {value} |" for name, value in self.facts()]
        for title, items in self.lists():
            lines += ["", f"## {title}", "", *(f"* {item}" for item in items)]
        title = "epsilon at every delta" if self.gaussian else "epsilon at this delta alone"
        lines += ["", f"## {title}", "", "| delta | epsilon |", "|---|---|"]
        lines += [f"| {delta:.3g} | {epsilon:.6g} |" for delta, epsilon in self.curve]
        return "\n".join(lines) + "\n"

    def facts(self) -> list[tuple[str, str]]:
        """Return the report as (name, value) lines."""
        covered = self.unit
        if self.records > 1 and self.record != "id":
            covered = f"any {self.records} {self.record}s at once ({self.adjacency}); {self.unit}"
        facts = [
            ("guarantee", f"({self.epsilon:.6g}, {self.delta:.3g})-DP, {self._exactly()}"),
            ("protects", covered),
            ("adjacency", self.adjacency),
            ("method", f"{self.method}, {self.rounds} rounds of {self.batch_size:,} rows, {self.sampling}"),
            ("privacy rests on", self.needs),
            ("may be shown", self.releases),
            ("rows", self._rows()),
            ("gradients per row", str(self.gradients_per_example)),
            ("clip", f"{self.clip:.6g} on {self._clipped()}"),
            ("noise", f"{self.mechanism}: sigma {self.noise_std:.6g}, sensitivity {self.sensitivity:.6g}"),
            (
                "floating point",
                f"grid {self.grid:.3g}, slack {self.slack:.3g} counted in the sensitivity; {_FLOAT_LOSS}",
            ),
            ("versions", ", ".join(f"{name} {version}" for name, version in self.versions.items())),
            ("run", self.run_id),
        ]
        if math.isfinite(self.mu) and self.gaussian:
            at = ", ".join(f"{e:.4g} at {d:.0e}" for d, e in self.curve if d in _CURVE_DELTAS[2::2])
            facts.insert(1, ("epsilon(delta)", at))
            each = self.records if self.record == "id" else 1
            groups = ", ".join(f"{k}: {self.group_epsilon(k * each):.4g}" for k in (2, 5, 10))
            facts.insert(2, (f"epsilon for k {self.record}s", groups))
        return facts

    def _exactly(self) -> str:
        return f"exactly {self.mu:.6g}-GDP" if self.gaussian else f"by {self.accounting}"

    def _clipped(self) -> str:
        """Return what the clip bounds; with one point, a row's weighted difference is its weighted gradient."""
        return (
            "what one row can move a phase's output by"
            if self.releases == "phase outputs"
            else ("each row's weighted difference")
        )

    def _rows(self) -> str:
        text = f"{self.rows_planned:,} planned"
        if self.rows_missing is not None:
            text += f", {self.rows_missing:,} missing (counted as zero rows)"
        if self.rows_unread is not None:
            text += f", {self.rows_unread:,} not read"
        return text

    def lists(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the report's lists with their titles."""
        return [
            ("Assumed", self.assumptions),
            ("May be published", self.publishable),
            ("Never publish", self.never_publish),
        ]
