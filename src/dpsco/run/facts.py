"""What is true of a run besides its plan, stated by whoever runs it; and the report that it makes.

Each of ``train``, ``partial_fit``, the engines and the estimators states its ``Facts`` before the first row. Nobody
edits a finished report.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.metadata import version

from dpsco.accounting.budget import Budget
from dpsco.methods import InGeometry, Method, Surveyed
from dpsco.methods.in_geometry import PUBLIC_ROWS
from dpsco.planning.explain import too_few_rows
from dpsco.planning.plan import Plan
from dpsco.planning.second_stage import SecondStage
from dpsco.run.report import IDS, UNITS, PrivacyReport
from dpsco.run.row_counts import RowCounts
from dpsco.version import __version__

__all__ = ["Clipping", "Facts", "render"]


class Clipping(Enum):
    """Who clips, and what that asks the reader to trust."""

    LIBRARY = ""
    CALLER = "the caller's oracle clips every row as the contract of oracles says, and looks at one row at a time"
    CLIENTS = (
        "clients clip every row as they are asked to, and their gradient functions answer whatever one row holds; the "
        "server cannot check it"
    )
    SERVER = "all of a client is one clipped vector in one round, clipped again by the server; a row is a client here"


@dataclass(frozen=True)
class Facts:
    """What a report says beyond the plan.

    Parameters
    ----------
    clipping : Clipping, optional
        Who clips; the library if the oracle of the run is its own and the caller if not, unless given.
    record, unit : str, optional
        What counts as one record, "row" or "client", and whose privacy is protected, in words: one row under the
        budget's adjacency unless given, and with ``max_rows_per_unit`` one id with its rows.
    budget : Budget, optional
        The guarantee of the whole that this run is a part of; the plan's unless given. Accounts are charged with it.
    trusted : tuple of str
        Who besides this process sees rows or un-noised sums, and what else is taken on trust.
    max_rows_per_unit : int, optional
        Rows of one id that count, where rows carry ids. Whoever counts them states it; ``train`` asks its rows.
    unit_column : str, optional
        The column of those ids, where a file has them: a resumed run must count by the same.
    form : str, optional
        Digest of what turns data into this run's rows besides the plan: columns, labels, an assignment of clients. A
        resumed run must have the same.
    table : bool
        Whether the run belongs to a table that people tune on: the report then warns of searches.
    inferred : tuple of str
        What was read off private rows, so the guarantee does not cover it.
    upstream : bool
        Whether steps that the run does not know of may have made the rows: the report then asks about them.
    weighted : bool
        Whether classes have public weights: the survey then counts rows by them.
    started : bool
        Whether the run begins with an earlier model: what that model spent on these rows is not in this guarantee.
    """

    clipping: Clipping | None = None
    record: str = "row"
    unit: str | None = None
    budget: Budget | None = None
    trusted: tuple[str, ...] = ()
    max_rows_per_unit: int | None = None
    unit_column: str | None = None
    form: str | None = None
    table: bool = False
    inferred: tuple[str, ...] = ()
    upstream: bool = False
    weighted: bool = False
    started: bool = False

    def protected(self, adjacency: str) -> str:
        """Return who is protected, in words."""
        if self.max_rows_per_unit is None:
            return UNITS[adjacency]
        return IDS[adjacency].format(k=self.max_rows_per_unit)

    def assumptions(self) -> tuple[str, ...]:
        """Return the facts as assumptions of the report."""
        found = [*self.trusted, *([self.clipping.value] if self.clipping and self.clipping.value else [])]
        if self.table:
            found.append(
                "hyperparameters were not chosen by looking at these rows: a search (GridSearchCV, say) releases one "
                "model for each candidate and fold, and none but this one is covered"
            )
        if self.max_rows_per_unit is not None:
            where = "" if self.unit_column is None else f" in the column {self.unit_column!r}"
            found.append(
                f"all rows of one person carry one id{where}, and no other person's; the first "
                f"{self.max_rows_per_unit} of an id that are read count, the others and rows without an id are zero "
                "rows; text is an id as it is written, without the blanks around it: 007 and 7 are two ids"
            )
        if self.upstream:
            found.append(
                "no step before this one (a scaler, an imputer, a selection of features) learned from these rows: "
                "dpsco.PublicColumns learns nothing"
            )
        return (*found, *(f"NOT COVERED: {fact}" for fact in self.inferred))

    def exceptions(self, budget: Budget, rows: int) -> tuple[str, ...]:
        """Return what the guarantee does not cover or does not mean, for the headline."""
        found = self.inferred
        if self.started:
            found = (*found, "the start is an earlier model; its own guarantee adds up if it saw these rows")
        if budget.private and budget.delta * rows >= 1:
            return (
                *found,
                f"delta = {budget.delta:.3g} is not below 1/n = {1 / rows:.3g}, and publishing one row at random would "
                "satisfy it",
            )
        return found


def render(
    plan: Plan,
    facts: Facts,
    run_id: str,
    *,
    seeded: bool,
    watched: bool,
    rows: RowCounts,
    second: SecondStage | None = None,
) -> PrivacyReport:
    """Return the report of a run.

    Parameters
    ----------
    plan, facts, run_id
        What was planned, what is true of this run, and its name.
    seeded, watched : bool
        Whether the noise key was given, or the run was watched (watch.py): such a run is not private.
    rows : RowCounts
        Rows that came and rows that were there.
    second : SecondStage, optional
        The later rounds of a surveyed run, once they are planned.

    Returns
    -------
    PrivacyReport
    """
    budget, schedule, method = facts.budget or plan.budget, plan.schedule, plan.method
    planned, rounds, sampling = schedule.rows, schedule.rounds, schedule.sampling
    if second is not None:
        schedule = second.plan.schedule
        sampling = f"{_survey_in_words(plan, facts)}; {schedule.sampling}"
        planned, rounds = planned + schedule.rows, rounds + schedule.rounds
    noise = schedule.most_noise
    if not budget.private:
        reason = "no noise was added (epsilon = inf)."
    elif seeded:
        reason = "the noise key was given by hand; whoever knows it can remove the noise. For research only."
    elif watched:
        reason = "the run was watched: an observer saw un-noised sums, or gave the released values. For audits only."
    else:
        reason = method.reason
    return PrivacyReport(
        private=budget.private and not seeded and not watched,
        reason=reason,
        exceptions=(*facts.exceptions(budget, plan.n), *_earlier_geometry(method)),
        mu=budget.mu,
        epsilon=budget.epsilon,
        delta=budget.delta,
        adjacency=budget.adjacency,
        records=budget.records,
        record=facts.record if facts.max_rows_per_unit is None else "id",
        unit=facts.unit or facts.protected(budget.adjacency),
        method=method.name,
        needs=method.needs,
        releases=method.releases,
        accounting=schedule.accounting.text,
        gaussian=schedule.accounting.gaussian,
        mechanism=schedule.mechanism.name,
        rounds=rounds,
        batch_size=schedule.mean_size,
        sampling=sampling,
        rows_planned=planned,
        rows_missing=None if rows.read is None else planned - rows.read,
        rows_unread=None if rows.available is None else max(0, rows.available - planned),
        gradients_per_example=method.gradients_per_row(schedule),
        clip=noise.clip,
        noise_std=schedule.inner_sigma or noise.sigma,
        sensitivity=schedule.sensitivity,
        difference=noise.difference + (budget.clips_apart * noise.clip if schedule.inner_sigma else 0.0),
        slack=noise.slack,
        grid=noise.grid,
        assumptions=(
            "the plan's numbers (n, batch size, clip, norms, classes, radius, start) and the type of arrays (float32 "
            "or float64) were fixed without looking at the rows",
            "each row reached one stream once, and rows of one person beyond the protected number are not in it",
            "the operating system's randomness and AES are sound; timing and memory are not watched",
            *method.assumptions,
            *(_of_geometry(method.source) if isinstance(method, InGeometry) else ()),
            *facts.assumptions(),
            *(f"CHECK: {text}" for text in too_few_rows(plan.schedule, plan.prediction)),
            *(() if second is None else _doubts(second, facts)),
        ),
        publishable=(*_PUBLISHABLE[method.releases], "this report and the plan"),
        never_publish=("noise keys and checkpoints' secret.json", "diagnostics, unclipped or un-noised sums"),
        versions=dict(_versions()),
        run_id=run_id,
    )


def _survey_in_words(plan: Plan, facts: Facts) -> str:
    """State rows and noise of the survey; those of the rounds behind it are fields of the report."""
    method, noise = plan.method, plan.schedule.most_noise
    by_id = plan.budget.adjacency == "add-remove" or facts.clipping in (Clipping.CLIENTS, Clipping.SERVER)
    which = method.surveyed_rows(by_id=by_id) if isinstance(method, Surveyed) else ""
    numbers = f"clip {noise.clip:.6g}, sigma {noise.sigma:.6g}, difference {noise.difference:.6g}"
    return f"after a survey of {which} ({numbers})"


def _earlier_geometry(method: Method) -> tuple[str, ...]:
    """Return what the headline says of a geometry that another run released, as of a start that is an earlier model."""
    if not isinstance(method, InGeometry) or method.source == PUBLIC_ROWS:
        return ()
    return ("the geometry is that of an earlier run; its own guarantee adds up if it saw these rows",)


def _of_geometry(source: str) -> tuple[str, ...]:
    """Return what a run in a geometry assumes of it; this run's budget does not pay for it."""
    return (f"the geometry is public, or was paid for in a run of its own; it states as its source: {source}",)


def _doubts(second: SecondStage, facts: Facts) -> tuple[str, ...]:
    """Return what the survey's health says. It counts rows by their weights, so a share below 1 needs no check."""
    words, cap = second.health.in_words(), ""
    if facts.max_rows_per_unit is not None:
        cap = f". Rows of a unit beyond max_rows_per_unit={facts.max_rows_per_unit} are not counted as usable either"
    usable = [text + cap if "were usable" in text else text for text in words]
    return tuple(f"CHECK: {text}" for text in usable if not (facts.weighted and "were usable" in text))


@cache
def _versions() -> dict[str, str]:
    """Versions that the noise depends on; looked up once, since the look-up reads files."""
    others = {name: version(name) for name in ("numpy", "randomgen")}
    return {"python": platform.python_version(), "dpsco": __version__, **others}


_PUBLISHABLE = {
    "all iterates": ("the model and every iterate", "the released sums of every round"),
    "phase outputs": ("the model and the released output of every phase, and no iterate in between",),
    "last iterate": ("the model, which is the last iterate, and no iterate before it",),
}
