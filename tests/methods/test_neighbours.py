"""Every method on neighbouring data sets: run on D, replay on D' with the released values frozen.

What reaches release moves by at most the difference that its noise was calibrated for, in no more rounds than the
method's proof says a row may be in; queries, report, counts and trace do not move at all.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco import methods
from dpsco.query import _BY_RELEASE, Array, Released
from dpsco.release.releaser import Releaser

N, P, T = 600, 4, 6
KEY = bytes(range(32))
Rows = tuple[Array, Array]
ERM = methods.PhasedERM(solver="accelerated")

METHODS = [
    methods.AcceleratedSRGD(),
    methods.UnacceleratedSRGD(),
    methods.UnacceleratedSRGD(constants="paper"),
    methods.AcceleratedSGD(),
    methods.AcceleratedGD(),
    methods.DPSGD(),
    methods.DPFTRL(momentum=0.5, restarts=1),
    methods.OnlineToBatch(),
    methods.OnlineToBatch(power=2, constants="paper"),
    methods.SnowballSGD(rounds=20),
    methods.PhasedSGD(),
    methods.PhasedSGD(constants="paper"),
    methods.PhasedERM(solver="svrg"),
    methods.PhasedERM(solver="accelerated"),
    methods.PoissonDPSGD(epochs=2.0),
    pytest.param(methods.LocalizedAccelerated(), marks=pytest.mark.slow),  # its accountant has many phases to find
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
class Run:
    sums: list[Array] = dataclasses.field(default_factory=list)
    queries: list[bytes] = dataclasses.field(default_factory=list)
    released: list[Array] = dataclasses.field(default_factory=list)
    shown: Any = None


def observe(plan: dpsco.Plan, method: methods.Algorithm, rows: Rows, frozen: Run | None = None) -> Run:
    run, release = Run(), Releaser.release

    def recording(self, query, clipped):
        run.queries.append(query.digest())
        run.sums.append(clipped.total.copy())
        if frozen is None:
            released = release(self, query, clipped)
        else:
            released = Released(query.step, frozen.released[query.step].copy(), by=_BY_RELEASE)
        run.released.append(released.value)
        return released

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("error")
        patch.setattr(Releaser, "release", recording)
        result = dpsco.train(plan, dpsco.stream(*rows, non_finite="zero"), algorithm=method, key=KEY)
    report = dataclasses.replace(result.report, run_id="")
    run.shown = (report, result.trace, result.counts, result.model.coef.tobytes())
    return run


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
    return dpsco.Plan(problem, N, dpsco.Budget(3.0, 1e-4, adjacency), rounds=T, beta=0.25, clip=clip)


def rounds_with(method: methods.Algorithm, plan: dpsco.Plan, place: int) -> int:
    portions = method.schedule(plan).portions
    return 1 if portions is None else sum(portion.first <= place < portion.last for portion in portions)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.describe()))
def test_what_reaches_release_moves_by_no_more_than_was_declared(method, adjacency) -> None:
    plan = plan_for(adjacency)
    schedule, nearest = method.schedule(plan), 0.0
    for place in (0, 330):
        base = observe(plan, method, with_row(place, "nan" if adjacency == "zero-out" else "ordinary"))
        for name in ("ordinary", "huge") if isinstance(method, methods.PhasedERM) else ODD_ROWS:
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
@pytest.mark.parametrize("method", [methods.SnowballSGD(rounds=20), methods.PhasedSGD(), ERM],
                         ids=lambda method: method.name)  # fmt: skip
def test_methods_that_need_convexity_keep_their_word_for_every_loss(method, loss) -> None:
    """Also for rows far beyond feature_norm: they are shortened to it, or L and M would not hold."""
    plan = plan_for("replace", loss, clip=10.0)
    base = observe(plan, method, with_row(10, "ordinary"))
    for name in ("huge", "nan", "label unknown"):
        other = observe(plan, method, with_row(10, name), base)
        assert other.shown == base.shown
        for step, (a, b) in enumerate(zip(base.sums, other.sums, strict=True)):
            assert np.linalg.norm(a - b) <= method.schedule(plan).calibration.at(step).difference


def test_the_sensitivity_of_phased_sgd_is_nearly_met_by_the_first_row_of_a_phase() -> None:
    """One step moves everything after it: the bound S L eta cannot be smaller."""
    problem = dpsco.Problem(dpsco.Huber(width=10.0), dpsco.L2Ball(1e3), P, feature_norm=1.0)
    plan = dpsco.Plan(problem, N, dpsco.Budget(3.0, 1e-4, "replace"), rounds=T, beta=1.0, clip=10.0)
    method = methods.PhasedSGD(step=0.1)
    features, labels = np.zeros((N, P)), np.zeros(N)
    features[0, 0] = 1.0
    runs = [observe(plan, method, (features, labels + sign * 1e4)).sums[0] for sign in (1.0, -1.0)]
    declared = method.schedule(plan).calibration.at(0)
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
    plan = dpsco.Plan(problem, N, dpsco.Budget(5.0, 1e-4), rounds=T, beta=1.0, clip=problem.lipschitz)
    method = methods.PhasedERM(solver=solver, step=4.0)
    run = observe(plan, method, (features, labels))
    centre, at = np.zeros(P), 0
    for phase, portion in enumerate(method.schedule(plan).portions[:3]):
        numbers = method.subproblem(plan, phase)
        a, y = features[portion.first : portion.last], labels[portion.first : portion.last]
        v = centre
        for _ in range(4000):
            g = a.T @ loss.slope(a @ v, y) / numbers.rows + numbers.lam * (v - centre)
            v = problem.domain.project(v - g / numbers.smoothness)
        assert np.linalg.norm(run.sums[phase] - v) <= numbers.tau
        centre, at = problem.domain.project(run.released[phase]), portion.last
    assert at > 0
