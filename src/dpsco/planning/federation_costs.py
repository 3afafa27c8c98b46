"""What a federation of n devices costs under each method of the paper's Table 1: on paper, from public numbers.

A device that takes part downloads the points it is asked about and uploads one vector (docs/wire-format.md):

    down   100 + 8 k + 8 k p bytes    k = 2 points for recursive gradients, 1 for plain ones
    up     50 + 16 + 4 p bytes        with an id of 16 characters

With a survey a device takes part in it or in a later round, and there are two lines. A device of the survey downloads
164 bytes and uploads one number per entry of the moment, of the gradient and of the health check. A device of a later
round downloads the map of its rows besides the points: 8 q^2 bytes for q columns, at most 8 (1 + q + 16 (q + 1)) after
a low-rank survey, and 8 (1 + q) after a diagonal one of more than 2,048 columns.

The server adds p numbers for every answer. Rounds are adaptive: one begins when the one before it is over, so their
number times the length of a round is how long the run takes. Rounds, gradients and passes are those of
``method_costs``: exact for the plan at hand, without logarithms and constants for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsco.clipping.sketch import rank_of
from dpsco.errors import positive
from dpsco.methods import Surveyed
from dpsco.methods.surveyed import WIDEST
from dpsco.planning.method_costs import method_costs
from dpsco.planning.plan import Plan

__all__ = ["DeviceCost", "device_costs"]

_QUERY_HEAD, _SURVEY, _ANSWER_HEAD = 100, 64, 48 + 2 + 16


@dataclass(frozen=True)
class DeviceCost:
    """One line of the table."""

    method: str
    rounds: float
    participations: float
    """Rounds that one device takes part in; a lower bound where ``one_pass`` is false."""
    one_pass: bool
    bytes_down: float
    """Of one device, over the whole run."""
    bytes_up: float
    cohort: float
    """Answers a round."""
    server_bytes: float
    """Received in one round."""
    server_additions: float
    """Over the whole run."""
    days: float
    """All rounds, one after the other."""


def device_costs(plan: Plan, *, round_seconds: float = 60.0) -> tuple[DeviceCost, ...]:
    """Return this plan first (two lines if it has a survey), then every method of Table 1 at the same n and p.

    >>> import dpsco
    >>> problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=1000)
    >>> plan = dpsco.plan(problem, n=10**6, budget=dpsco.Budget(1.0, 1e-8), rounds=32, survey="none")
    >>> ours = device_costs(plan)[0]
    >>> ours.participations, ours.bytes_down, ours.bytes_up, ours.cohort
    (1.0, 16116.0, 4066.0, 31250.0)
    """
    seconds = positive("round_seconds", round_seconds, "It is how long a round takes.")
    n, p = plan.n, plan.problem.parameters
    lines = _surveyed(plan, seconds) if isinstance(plan.method, Surveyed) else []
    for method in method_costs(plan)[bool(lines) :]:
        points = method.bytes_per_round // (8 * p) - 1
        times = 1.0 if method.one_pass else max(1.0, method.gradients / (points * n))
        up = _ANSWER_HEAD + 4 * p
        cohort = n * times / method.rounds
        lines.append(
            DeviceCost(
                method=method.name,
                rounds=method.rounds,
                participations=times,
                one_pass=method.one_pass,
                bytes_down=times * (_QUERY_HEAD + 8 * points * (1 + p)),
                bytes_up=times * up,
                cohort=cohort,
                server_bytes=cohort * up,
                server_additions=n * times * p,
                days=method.rounds * seconds / 86_400,
            )
        )
    return tuple(lines)


def _surveyed(plan: Plan, seconds: float) -> list[DeviceCost]:
    """Return the survey, and the rounds behind it at their largest number."""
    n, rows, length, p = plan.n, plan.schedule.rows, plan.schedule.sum_length, plan.problem.parameters
    columns, later = p // plan.problem.loss.outputs, plan.rounds - 1
    numbers, most = columns**2, rank_of(columns) // 2
    if isinstance(plan.method, Surveyed) and plan.method.kind == "low-rank":
        numbers = min(numbers, 1 + columns + most * (columns + 1))
    if isinstance(plan.method, Surveyed) and plan.method.kind == "diagonal":
        # With an intercept the map of a narrow table keeps the direction of the mean row.
        numbers = 1 + columns if columns > WIDEST or not plan.problem.intercept else numbers
    parts = (
        ("this plan, survey", 1, rows, _SURVEY, length),
        ("this plan, later rounds", later, n - rows, 16 * (1 + p) + 8 * numbers, p),
    )
    return [
        DeviceCost(
            method=name,
            rounds=rounds,
            participations=1.0,
            one_pass=True,
            bytes_down=_QUERY_HEAD + down,
            bytes_up=_ANSWER_HEAD + 4 * numbers,
            cohort=devices / rounds,
            server_bytes=devices / rounds * (_ANSWER_HEAD + 4 * numbers),
            server_additions=devices * numbers,
            days=rounds * seconds / 86_400,
        )
        for name, rounds, devices, down, numbers in parts
    ]
