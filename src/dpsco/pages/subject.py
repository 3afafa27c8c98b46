"""What a run was about, in public facts that its caller states: data set, date, label and features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsco.run.result import Result

__all__ = ["Subject"]


@dataclass(frozen=True)
class Subject:
    """The subject of a page. Everything in it is stated by the caller, so nothing in it may come from the rows.

    Parameters
    ----------
    data : str
        Name of the data set.
    date : str
        Day of the run, in any form: a date that was fixed before the first row was read.
    label : str
        Name of the column that the model predicts.
    classes : sequence of str
        The declared classes; none for a regression.
    features : sequence of str
        Names of the features.
    """

    data: str = ""
    date: str = ""
    label: str = ""
    classes: Sequence[str] = ()
    features: Sequence[str] = ()

    def names(self, width: int) -> list[str]:
        """Return one name per feature: the stated ones, if there are as many, else their positions."""
        named = [str(name) for name in self.features]
        return named if len(named) == width else [f"column {j}" for j in range(width)]

    def facts(self, result: Result) -> list[tuple[str, str]]:
        """Return the first lines of a summary."""
        width, n, used = result.plan.problem.dimension, result.plan.n, result.report.rows_planned
        choice = _listed([str(each) for each in self.classes], "or")
        named = [str(name) for name in self.features]
        stated = [
            ("data set", self.data),
            ("date", self.date),
            ("the model predicts", f"{self.label}: {choice}" if self.label and choice else self.label or choice),
            ("from", f"{width:,} features" + (f": {_listed(named)}" if len(named) == width else "")),
            ("rows", f"{n:,}" + (f", of which {used:,} fill rounds of equal size" if used < n else "")),
        ]
        return [(name, value) for name, value in stated if value]


_MOST = 24
"""Names in a list at most."""


def _listed(names: list[str], last: str = "and") -> str:
    if len(names) > _MOST:
        return f"{', '.join(names[:_MOST])} {last} {len(names) - _MOST:,} more"
    return f" {last} ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
