"""Every method on neighbouring data sets: run on D, replay on D' with the released values frozen.

What reaches release moves by at most the difference that its noise was calibrated for, in no more rounds than the
method's proof says a row may be in; queries, report, counts and trace do not move at all.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.method_plans import named, under

import dpsco
from dpsco import methods
from dpsco.query import Array
from dpsco.run import watching

N, P, T = 600, 4, 6
KEY = bytes(range(32))
Rows = tuple[Array, Array]
ERM = partial(methods.PhasedERM, solver="accelerated")

METHODS = [
    methods.AcceleratedSRGD,
    methods.UnacceleratedSRGD,
    partial(methods.UnacceleratedSRGD, constants="paper"),
    methods.AcceleratedSGD,
    methods.AcceleratedGD,
    methods.DPSGD,
    partial(methods.DPFTRL, momentum=0.5, restarts=1),
    methods.OnlineToBatch,
    partial(methods.OnlineToBatch, power=2, constants="paper"),
    partial(methods.SnowballSGD, rounds=20),
    methods.PhasedSGD,
    partial(methods.PhasedSGD, constants="paper"),
    partial(methods.PhasedERM, solver="svrg"),
    partial(methods.PhasedERM, solver="accelerated"),
    partial(methods.PoissonDPSGD, epochs=2.0),
    methods.DPNewton,
    pytest.param(methods.LocalizedAccelerated, marks=pytest.mark.slow),  # its accountant has many phases to find
]

ODD_ROWS: dict[str, tuple[list[float], float]] = {
    "ordinary": ([3.0, -1.0, 2.0, 0.5], 1.0),
    "huge": ([1e149, -1e149, 0.0, 0.0], 1.0),
    "beyond huge": ([1e308, 1e308, -1e308, 1.0], 0.0),
    "nan": ([np.nan, 0.0, 0.0, 1.0], 1.0),
    "label unknown": ([1.0, 1.0, 1.0, 1.0], 77.0),
    "subnormal": ([5e-324, 1e-310, 0.0, 0.0], 1.0),
}


@dataclasses.dataclass
class Seen:
    sums: list[Array] = dataclasses.field(default_factory=list)
    queries: list[bytes] = dataclasses.field(default_factory=list)
    released: list[Array] = dataclasses.field(default_factory=list)
    shown: Any = None

    def __call__(self, query, clipped, released):
        self.queries.append(query.digest())
        self.sums.append(clipped.total.copy())
        self.released.append(released.value)


def observe(plan: dpsco.Plan, method: Any, rows: Rows, frozen: Seen | None = None) -> Seen:
    seen, replay = Seen(), None if frozen is None else frozen.released
    with watching(seen, replay=replay), warnings.catch_warnings():
        warnings.simplefilter("error")
        result = dpsco.train(under(plan, method), dpsco.stream(*rows, non_finite="zero"), key=KEY)
    report = dataclasses.replace(result.report, run_id="")
    seen.shown = (report, result.trace, result.counts, result.model.coef.tobytes())
    return seen


@functools.cache
def data() -> Rows:
    rng = np.random.default_rng(2)
    return rng.normal(size=(N, P)), rng.integers(0, 2, N).astype(float)


def with_row(place: int, name: str) -> Rows:
    features, labels = (values.copy() for values in data())
    features[place], labels[place] = ODD_ROWS[name]
    return features, labels


def plan_for(adjacency: str, loss: dpsco.problem.Loss | None = None, clip: float = 0.3) -> dpsco.Plan:
    problem = dpsco.Problem(loss or dpsco.Logistic(), dpsco.L2Ball(2.0), P, feature_norm=1.5)
    return dpsco.Plan(
        problem, N, dpsco.Budget(3.0, 1e-4, adjacency), dpsco.AcceleratedSRGD(rounds=T, beta=0.25, clip=clip)
    )


def rounds_with(method: Any, plan: dpsco.Plan, place: int) -> int:
    portions = under(plan, method).schedule.portions
    return 1 if portions is None else sum(portion.first <= place < portion.last for portion in portions)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("method", METHODS, ids=named)
def test_what_reaches_release_moves_by_no_more_than_was_declared(method, adjacency) -> None:
    plan = plan_for(adjacency)
    schedule, nearest = under(plan, method).schedule, 0.0
    for place in (0, 330):
        base = observe(plan, method, with_row(place, "nan" if adjacency == "zero-out" else "ordinary"))
        for name in ("ordinary", "huge") if "phased-erm" in named(method) else ODD_ROWS:
            other = observe(plan, method, with_row(place, name), base)
            assert other.queries == base.queries
            assert other.shown == base.shown
            apart = [float(np.linalg.norm(a - b)) for a, b in zip(base.sums, other.sums, strict=True)]
            assert sum(distance > 0 for distance in apart) <= rounds_with(method, plan, place)
            for step, distance in enumerate(apart):
                assert distance <= schedule.calibration.at(step).difference
                nearest = max(nearest, distance / schedule.calibration.at(step).difference)
    assert nearest > 0.05  # the test would be empty if no row ever moved anything


@pytest.mark.parametrize("loss", [dpsco.Squared(1.0), dpsco.Huber(0.5), dpsco.SmoothedHinge(), dpsco.Softmax(2)],
                         ids=lambda loss: loss.kind)  # fmt: skip
@pytest.mark.parametrize("method", [partial(methods.SnowballSGD, rounds=20), methods.PhasedSGD, ERM],
                         ids=named)  # fmt: skip
def test_methods_that_need_convexity_keep_their_word_for_every_loss(method, loss) -> None:
    """Also for rows far beyond feature_norm: they are shortened to it, or L and M would not hold."""
    plan = plan_for("replace", loss, clip=10.0)
    base = observe(plan, method, with_row(10, "ordinary"))
    for name in ("huge", "nan", "label unknown"):
        other = observe(plan, method, with_row(10, name), base)
        assert other.shown == base.shown
        for step, (a, b) in enumerate(zip(base.sums, other.sums, strict=True)):
            assert np.linalg.norm(a - b) <= under(plan, method).schedule.calibration.at(step).difference


def test_the_sensitivity_of_phased_sgd_is_nearly_met_by_the_first_row_of_a_phase() -> None:
    """One step moves everything after it: the bound S L eta cannot be smaller."""
    problem = dpsco.Problem(dpsco.Huber(width=10.0), dpsco.L2Ball(1e3), P, feature_norm=1.0)
    plan = dpsco.Plan(
        problem, N, dpsco.Budget(3.0, 1e-4, "replace"), dpsco.AcceleratedSRGD(rounds=T, beta=1.0, clip=10.0)
    )
    method = partial(methods.PhasedSGD, step_size=0.1)
    features, labels = np.zeros((N, P)), np.zeros(N)
    features[0, 0] = 1.0
    runs = [observe(plan, method, (features, labels + sign * 1e4)).sums[0] for sign in (1.0, -1.0)]
    declared = under(plan, method).schedule.calibration.at(0)
    moved = float(np.linalg.norm(runs[0] - runs[1]))
    assert 0.99 * 2 * declared.clip < moved <= declared.difference


@pytest.mark.parametrize(
    ("loss", "solver"),
    [
        (dpsco.Logistic(), "svrg"),
        (dpsco.Logistic(), "accelerated"),
        (dpsco.Squared(1.0), "accelerated"),
        pytest.param(dpsco.Squared(1.0), "svrg", marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "kind", value),
)
def test_the_certificate_of_phased_erm_tells_the_truth(loss, solver) -> None:
    """The true minimiser, by many steps of plain descent, is within tau of what reaches release."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(N, P)) / 4
    labels = (rng.random(N) < 0.5).astype(float)
    problem = dpsco.Problem(loss, dpsco.L2Ball(0.5), P, feature_norm=2.0)
    plan = dpsco.Plan(
        problem, N, dpsco.Budget(5.0, 1e-4), dpsco.AcceleratedSRGD(rounds=T, beta=1.0, clip=problem.lipschitz)
    )
    method = partial(methods.PhasedERM, solver=solver, step_size=4.0)
    run = observe(plan, method, (features, labels))
    centre, at = np.zeros(P), 0
    for phase, portion in enumerate(under(plan, method).schedule.portions[:3]):
        numbers = under(plan, method).method.subproblem(problem, N, 4.0, phase)
        a, y = features[portion.first : portion.last], labels[portion.first : portion.last]
        v = centre
        for _ in range(4000):
            g = a.T @ loss.slope(a @ v, y) / numbers.rows + numbers.lam * (v - centre)
            v = problem.domain.project(v - g / numbers.smoothness)
        assert np.linalg.norm(run.sums[phase] - v) <= numbers.tau
        centre, at = problem.domain.project(run.released[phase]), portion.last
    assert at > 0
