"""A plan in words."""

from __future__ import annotations

import math
import textwrap

from dpsco.accounting.budget import Budget
from dpsco.methods import AcceleratedSRGD, Method, Schedule, Surveyed, SurveyedObjective, UnacceleratedSRGD
from dpsco.methods.measured_srgd import MeasuredSRGD
from dpsco.planning.prediction import Prediction
from dpsco.planning.spectrum_priors import loss_scale
from dpsco.planning.theorems import theorem_1, theorem_2

__all__ = ["explain", "too_few_rows"]

_MEASURED = (
    "For intervals: each later round also releases the squares of the rows' contributions, in the same clip and noise."
)


def explain(schedule: Schedule, method: Method, rule: str, prediction: Prediction | None) -> str:
    """Say what the run will do, what it guarantees, and what deserves a second look."""
    if isinstance(method, Surveyed):
        return _surveyed(schedule, method, rule)
    lines = [_rows(schedule), _guarantee(schedule, method), _steps(schedule, method, rule)]
    if prediction is not None:
        lines.append(_predicted(prediction, loss_scale(schedule.problem).gap))
    hopeless = too_few_rows(schedule, prediction)
    lines += [f"Note: {note}" for note in (*hopeless, *_notes(schedule, method, rule))]
    text = "\n".join(textwrap.fill(line, 110, subsequent_indent="  ") for line in lines)
    return text + _theorem(schedule, rule)


def _surveyed(schedule: Schedule, method: Surveyed, rule: str) -> str:
    """Return what is known before the survey, and what will be known after it."""
    problem, n, budget = schedule.problem, schedule.n, schedule.budget
    noise, by_id = schedule.calibration.at(0).sigma / method.rows, budget.adjacency == "add-remove"
    which, others = method.surveyed_rows(by_id=by_id), n - method.rows
    objective = isinstance(method, SurveyedObjective)
    how = (
        f"n = {n:,} rows in two releases: a survey of {which}, then one objective of the other {others:,}, minimised "
        "in about ten passes."
        if objective
        else f"One pass over n = {n:,} rows in at most T = {method.rounds} rounds: a survey of {which}, then rounds on "
        f"the other {others:,}."
    )
    after = "scales and directions of the columns, "
    after += (
        "the longest row and the ridge of the objective, the noise in it, and the predicted excess."
        if objective
        else "where the rounds start, their number, batch size, clip, beta and mechanism, and the predicted excess."
    )
    lines = [
        f"{how} {problem.loss.kind} loss, {problem.parameters:,} parameters in a {problem.domain.kind}.",
        _objective_guarantee(budget) if objective and budget.private else _surveyed_guarantee(budget),
        f"Known before: the survey releases {schedule.survey_length:,} numbers ({method.kind} second moment, gradient "
        f"at zero, health), each with noise of standard deviation {noise:.3g} in its mean, in units of the feature "
        "norm.",
        f"Known after: {after} All follow from the released survey; the budget does not.",
        *_noise_before(schedule, n - method.rows),
        *((_MEASURED,) if method.later == MeasuredSRGD.name else ()),
        *([f"Chosen by the rule {rule}."] if rule != "survey" else ()),
        *(f"Note: {note}" for note in _notes(schedule, method, "survey")),
    ]
    return "\n".join(textwrap.fill(line, 110, subsequent_indent="  ") for line in lines)


def _noise_before(schedule: Schedule, rows: int) -> list[str]:
    """Return what privacy noise costs where the rows fill all directions alike: known without a survey.

    The noise of a sum over ``rows`` rows has the variance (slope clips / (mu rows))^2 per parameter, in units of
    the feature norm. A direction has the curvature of the loss over their number d, so the excess is half of
    parameters d (slope clips / (mu rows))^2 / curvature. No other spectrum of d directions makes it less.
    """
    problem, budget, scale = schedule.problem, schedule.budget, loss_scale(schedule.problem)
    if not budget.private:
        return []
    directions = problem.parameters // problem.loss.outputs
    noise = scale.slope * budget.clips_apart * budget.records / (budget.mu * rows)
    excess = 0.5 * problem.parameters * directions * noise**2 / scale.curvature
    text = (
        f"From public numbers alone: if all {directions:,} directions of the rows count alike, privacy noise costs an "
        f"excess risk of about {excess:.2g}. A constant prediction has about {scale.gap:.3g}, where there is much to "
        "learn."
    )
    hardly = " Such a model can hardly beat a constant: use more rows, fewer features or a larger epsilon."
    return [text + (hardly if excess > scale.gap / 2 else "")]


def _surveyed_guarantee(budget: Budget) -> str:
    if not budget.private:
        return "No noise is added (epsilon = inf): the result is not private."
    covered = "one row" if budget.records == 1 else f"any {budget.records} rows"
    return (
        f"Guarantee: ({budget.epsilon:.6g}, {budget.delta:.3g})-DP for {covered}, {budget.adjacency} adjacency; "
        f"mu = {budget.mu:.6g} exactly. Each row is in the survey or in one later round, and either has Gaussian noise "
        "for the whole budget."
    )


def _objective_guarantee(budget: Budget) -> str:
    return (
        f"Guarantee: ({budget.epsilon:.6g}, {budget.delta:.3g})-DP for one row, {budget.adjacency} adjacency. Each row "
        "is in the survey or in the objective. Gaussian noise covers the survey's sum; noise in the objective and a "
        "little on its minimiser cover the other rows, by accounting/objective.py. That needs the loss to be convex "
        "and the minimiser to be exact up to a certified distance. The run has no mu of its own."
    )


def _theorem(schedule: Schedule, rule: str) -> str:
    """Return what the plan's theorem asks for, and whether it is met."""
    problem, n, budget = schedule.problem, schedule.n, schedule.budget
    if rule == "theorem-1":
        return "\n" + theorem_1(problem, n, budget).explain()
    if rule == "theorem-2":
        return "\n" + theorem_2(problem, n, budget, rounds=schedule.rounds).explain()
    return ""


def _rows(schedule: Schedule) -> str:
    problem, n, unread = schedule.problem, schedule.n, schedule.n - schedule.rows
    how = (
        f"One pass over n = {n:,} rows in T = {schedule.rounds} rounds of B = {schedule.batch_size:,} fresh rows"
        if schedule.portions is None
        else f"n = {n:,} rows in T = {schedule.rounds:,} rounds, {schedule.sampling}"
    )
    text = f"{how}: {problem.loss.kind} loss, {problem.parameters:,} parameters in a {problem.domain.kind}."
    return text + (f" {unread:,} rows are left over and never read." if unread else "")


def _guarantee(schedule: Schedule, method: Method) -> str:
    budget = schedule.budget
    if not budget.private:
        return "No noise is added (epsilon = inf): the result is not private."
    covered = "one row" if budget.records == 1 else f"any {budget.records} rows"
    exactly = f"mu = {budget.mu:.6g} exactly" if schedule.accounting.gaussian else f"by {schedule.accounting.text}"
    return (
        f"Guarantee: ({budget.epsilon:.6g}, {budget.delta:.3g})-DP for {covered}, {budget.adjacency} adjacency; "
        f"{exactly}. {method.guarantee_in_words(schedule)}"
    )


def _steps(schedule: Schedule, method: Method, rule: str) -> str:
    chosen = rule if rule == "by hand" else f"by the rule {rule}"
    if rule.startswith("response") and isinstance(method, UnacceleratedSRGD):
        chosen += ": with so many rounds on so few rows the unaccelerated variant has less predicted excess than "
        chosen += "Algorithm 1, whose acceleration amplifies noise"
    return f"Method: {method.name}. Steps: {method.steps_in_words(schedule)}. Chosen {chosen}."


def too_few_rows(schedule: Schedule, prediction: Prediction | None) -> tuple[str, ...]:
    """Say, from public numbers alone, that half of what there is to learn is expected to be lost; else nothing."""
    constant = loss_scale(schedule.problem).gap
    if prediction is None or prediction.total < constant / 2:
        return ()
    return (
        f"n = {schedule.n:,} rows at epsilon = {schedule.budget.epsilon:g} can hardly beat a constant: the "
        f"predicted excess risk is {prediction.total:.3g}, that of a constant about {constant:.3g}. Use more rows, "
        "fewer features or a larger epsilon.",
    )


def _predicted(p: Prediction, constant: float) -> str:
    largest = max(
        ("optimisation", p.optimisation), ("privacy noise", p.noise), ("sampling", p.sampling), key=lambda x: x[1]
    )
    return (
        f"Predicted excess risk {p.total:.3g}: optimisation {p.optimisation:.3g}, privacy noise {p.noise:.3g}, "
        f"sampling {p.sampling:.3g}. What limits the run is {largest[0]}. A constant prediction has about "
        f"{constant:.3g}, where there is much to learn."
    )


def _notes(schedule: Schedule, method: Method, rule: str) -> list[str]:
    problem, budget, notes = schedule.problem, schedule.budget, []
    by_hand = rule == "by hand"  # a rule has weighed both of these
    if by_hand and isinstance(method, AcceleratedSRGD) and schedule.settings["beta"] < problem.smoothness:
        notes.append(
            f"beta is below the worst-case smoothness {problem.smoothness:.4g}: right if the population is smoother, "
            "unstable if it is not."
        )
    if by_hand and budget.private and method.clip < problem.lipschitz:
        notes.append(
            f"clip is below the Lipschitz constant {problem.lipschitz:.4g}: many rows may be cut short, which biases "
            "the result. Privacy does not suffer."
        )
    if budget.private and budget.delta >= 1 / schedule.n:
        notes.append(f"delta is at or above 1/n = {1 / schedule.n:.2g}: such a guarantee lets a few rows leak whole.")
    if not math.isfinite(problem.diameter):
        notes.append("the domain is unbounded, so the theory's bounds do not apply to it.")
    return notes
