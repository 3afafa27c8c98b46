"""Surveyed runs: two stages, one budget, each row in one of them."""

from __future__ import annotations

import contextlib
import dataclasses
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import dpsco
from dpsco.clipping.survey import joint_bounds
from dpsco.methods import Surveyed
from dpsco.methods.surveyed import moment_of
from dpsco.planning.second_stage import second_stage
from dpsco.query import Batch
from dpsco.rows.ids import rounds_of_ids
from dpsco.run import Run, watching
from dpsco.run.train import library_oracle

N, P = 1200, 4
KEY = bytes(range(32))
BUDGET = dpsco.Budget(2.0, 1e-5)
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(20.0), P, feature_norm=3.0, intercept=True)
SOFTMAX = dpsco.Problem(dpsco.Softmax(3), dpsco.Everything(), P, feature_norm=3.0, intercept=True)
PLAN = dpsco.Plan(PROBLEM, N, BUDGET, Surveyed(rounds=5, rows=300))
BOXED = dpsco.Problem(dpsco.Logistic(), dpsco.Box(-0.5, 2.0), P, feature_norm=3.0, intercept=True)
PLANS = {
    "box": dpsco.Plan(BOXED, N, BUDGET, Surveyed(rounds=5, rows=300, kind="diagonal")),
    "low-rank": dpsco.Plan(PROBLEM, N, BUDGET, Surveyed(rounds=5, rows=300, kind="low-rank")),
    "low-rank, replace": dpsco.Plan(
        PROBLEM, N, dpsco.Budget(2.0, 1e-5, "replace"), Surveyed(rounds=5, rows=300, kind="low-rank")
    ),
    "dp-ftrl": dpsco.Plan(PROBLEM, N, BUDGET, Surveyed(rounds=5, rows=300, later="dp-ftrl")),
    "measured": dpsco.Plan(PROBLEM, N, BUDGET, Surveyed(rounds=5, rows=300, later="measured-srgd")),
    "measured, softmax": dpsco.Plan(SOFTMAX, N, BUDGET, Surveyed(rounds=5, rows=300, later="measured-srgd")),
    "zero-out": PLAN,
    "replace": dpsco.Plan(PROBLEM, N, dpsco.Budget(2.0, 1e-5, "replace"), Surveyed(rounds=5, rows=300)),
    "diagonal": dpsco.Plan(PROBLEM, N, BUDGET, Surveyed(rounds=5, rows=300, kind="diagonal")),
    "softmax": dpsco.Plan(SOFTMAX, N, BUDGET, Surveyed(rounds=5, rows=300)),
    "groups": dpsco.Plan(PROBLEM, N, dpsco.Budget(2.0, 1e-5, records=3), Surveyed(rounds=5, rows=300)),
}
BY_ID = dpsco.Plan(PROBLEM, N, dpsco.Budget(2.0, 1e-5, "add-remove"), Surveyed(rounds=5, rows=300))
ODD_ROWS = {
    "ordinary": ([3.0, -1.0, 2.0, 0.5], 1.0),
    "huge": ([1e149, -1e149, 0.0, 0.0], 1.0),
    "beyond huge": ([1e308, 1e308, -1e308, 1.0], 0.0),
    "nan": ([np.nan, 0.0, 0.0, 1.0], 1.0),
    "label unknown": ([1.0, 1.0, 1.0, 1.0], 77.0),
    "subnormal": ([5e-324, 1e-310, 0.0, 0.0], 1.0),
}


@cache
def _planned(name: str, released: bytes):
    return second_stage(PLANS[name], np.frombuffer(released))


@pytest.fixture
def plan_once(monkeypatch):
    """The same release gives the same second stage, so that replays need not plan it again."""

    def known(plan, released):
        name = next(name for name, made in PLANS.items() if made == plan)
        return _planned(name, released.tobytes())

    monkeypatch.setattr("dpsco.run.stage.second_stage", known)


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((N, P)) * [1.0, 0.3, 0.03, 2.0]
    return rows, (rows @ [1.0, -3.0, 10.0, 0.2] + rng.standard_normal(N) > 0).astype(float)


@dataclasses.dataclass
class Seen:
    sums: list = dataclasses.field(default_factory=list)
    queries: list = dataclasses.field(default_factory=list)
    released: list = dataclasses.field(default_factory=list)
    shown: object = None

    def __call__(self, query, clipped, released):
        self.queries.append(query.digest())
        self.sums.append(clipped.total.copy())
        self.released.append(released.value)


def observe(plan, rows, frozen=None) -> Seen:
    seen = Seen()
    with watching(seen, replay=None if frozen is None else frozen.released):
        result = dpsco.train(plan, dpsco.stream(*rows, non_finite="zero"), key=KEY)
    report = dataclasses.replace(result.report, run_id="", reason="")
    seen.shown = (report, result.trace, result.counts, result.model.coef.tobytes(), result.health)
    return seen


def exact_distance_squared(one, other) -> Fraction:
    moved = np.flatnonzero(one != other)
    return sum(((Fraction(float(one[i])) - Fraction(float(other[i]))) ** 2 for i in moved), Fraction(0))


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("position", [7, 299, 300, N - 4])
def test_one_row_moves_one_sum_of_one_stage_by_no_more_than_the_noise_covers(name, position, plan_once):
    plan = PLANS[name]
    rows, labels = data()
    first = observe(plan, (rows, labels))
    later = Run(plan, oracle=library_oracle(plan), key=KEY)
    later._enter_second_stage(first.released[0])
    covered = [plan.schedule.calibration.at(0), *([later._stage.schedule.most_noise] * (len(first.sums) - 1))]
    for features, label in ODD_ROWS.values():
        changed, targets = rows.copy(), labels.copy()
        changed[position], targets[position] = features, label
        if plan.budget.adjacency != "replace":  # against the zeroed row
            rows_0, labels_0 = rows.copy(), labels.copy()
            rows_0[position] = np.nan
            base = observe(plan, (rows_0, labels_0), first)
        else:
            base = first
        other = observe(plan, (changed, targets), first)
        assert other.queries == base.queries == first.queries
        assert other.shown == base.shown
        moved = [t for t, (a, b) in enumerate(zip(base.sums, other.sums, strict=True)) if np.any(a != b)]
        assert len(moved) <= 1
        for t in moved:
            assert (t == 0) == (position < 300)
            assert exact_distance_squared(base.sums[t], other.sums[t]) <= Fraction(covered[t].difference) ** 2


@pytest.mark.parametrize("kind", ["full", "diagonal", "low-rank", "measured"])
@pytest.mark.parametrize("loss", [dpsco.Logistic(), dpsco.Softmax(3)], ids=["logistic", "softmax"])
def test_a_row_that_is_there_or_not_moves_one_sum_of_one_stage(kind, loss):
    """Add-remove: rows have their stage and round by a hash of their id, and each contribution is rounded by itself."""
    problem = dpsco.Problem(loss, dpsco.L2Ball(20.0), P, feature_norm=3.0, intercept=True)
    changes = {"later": "measured-srgd"} if kind == "measured" else {"kind": kind}
    plan = dpsco.Plan(problem, N, BY_ID.budget, Surveyed(rounds=5, rows=300, **changes))
    rows, labels = data()
    ids = np.arange(N)
    places = rounds_of_ids(ids, bytes.fromhex(plan.digest()), N)

    def seen_without(gone, frozen=None):
        seen, keep = Seen(), np.setdiff1d(ids, gone)
        with watching(seen, replay=None if frozen is None else frozen.released):
            stream = dpsco.stream(rows[keep], labels[keep], ids=keep, non_finite="zero")
            result = dpsco.train(plan, stream, key=KEY)
        report = dataclasses.replace(result.report, run_id="", reason="")
        seen.shown = (report, result.trace, result.counts, result.model.coef.tobytes(), result.health)
        return seen

    rows[0] = [1e149, -1e149, 0.0, 0.0]
    first = seen_without([])
    later = Run(plan, oracle=library_oracle(plan), key=KEY)
    later._enter_second_stage(first.released[0])
    covered = [plan.schedule.calibration.at(0), *([later._stage.schedule.most_noise] * (len(first.sums) - 1))]
    moved_stages = set()
    for gone in (0, int(np.argmin(places)), int(np.argmax(places)), 17, 600):
        other = seen_without([gone], first)
        assert other.queries == first.queries
        assert other.shown == first.shown
        moved = [t for t, (a, b) in enumerate(zip(first.sums, other.sums, strict=True)) if np.any(a != b)]
        assert len(moved) <= 1
        for t in moved:
            assert (t == 0) == (places[gone] < 300)
            assert exact_distance_squared(first.sums[t], other.sums[t]) <= Fraction(covered[t].difference) ** 2
        moved_stages |= {t > 0 for t in moved}
    assert moved_stages == {False, True}


@pytest.mark.parametrize("name", PLANS)
def test_both_stages_have_noise_for_the_whole_budget(name, plan_once):
    plan = PLANS[name]
    clip, apart = joint_bounds(moment_of(plan.problem, plan.method.kind))
    bound = apart if plan.budget.adjacency == "replace" else clip
    sigma = plan.schedule.calibration.at(0).sigma
    assert bound / plan.budget.mu_per_record < sigma < 1.02 * bound / plan.budget.mu_per_record
    seen = observe(plan, data())
    run = Run(plan, oracle=library_oracle(plan), key=KEY)
    run._enter_second_stage(seen.released[0])
    later = run._stage.schedule
    assert later.budget == plan.budget
    assert (
        later.most_noise.sigma * plan.budget.mu_per_record
        >= later.sensitivity * plan.budget.clips_apart * later.most_noise.clip
    )
    assert later.rows + 300 <= N
    assert not np.array_equal(seen.sums[0], seen.released[0])


def test_the_noise_of_the_survey_has_the_deviation_it_was_calibrated_for():
    seen = observe(PLAN, data())
    noise = seen.released[0] - seen.sums[0]
    assert 0.6 < np.std(noise) / PLAN.schedule.calibration.at(0).sigma < 1.5


def test_survey_and_rounds_see_disjoint_rows():
    positions: list[tuple[int, int]] = []
    run = Run(PLAN, oracle=library_oracle(PLAN), key=KEY)
    rows, labels = data()
    for portion in run.coming():
        positions.append((portion.first, portion.last))
        part = slice(portion.first, portion.last)
        run.absorb(Batch(0, [(rows[part], labels[part])]))
        run.finish_round()
    assert positions[0] == (0, 300)
    assert all(one[1] == other[0] for one, other in pairwise(positions))
    assert positions[-1][1] <= N
    assert run.report.rounds == len(positions) <= PLAN.rounds
    assert run.counts.participation == 1


def test_chunks_files_and_pushes_give_the_bits_of_arrays():
    rows, labels = data()
    whole = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY).model.coef
    chunks = ((rows[i : i + 70], labels[i : i + 70]) for i in range(0, N, 70))
    np.testing.assert_array_equal(dpsco.train(PLAN, dpsco.stream(chunks), key=KEY).model.coef, whole)
    run = Run(PLAN, oracle=library_oracle(PLAN), key=KEY)
    for i in range(0, N, 33):
        run.push(rows[i : i + 33], labels[i : i + 33])
    np.testing.assert_array_equal(run.model.coef, whole)
    assert run.complete


def test_noise_of_the_two_stages_is_unrelated():
    seen = observe(PLAN, data())
    survey, first = (seen.released[t] - seen.sums[t] for t in (0, 1))
    size = min(len(survey), len(first))
    assert abs(np.corrcoef(survey[:size], first[:size])[0, 1]) < 0.99


def test_what_a_survey_does_not_allow_is_refused():
    rows, labels = data()
    with pytest.raises(dpsco.InvalidArgument, match="start"):
        dpsco.train(PLAN, dpsco.stream(rows, labels), start=np.zeros(P + 1))
    with pytest.raises(dpsco.InvalidArgument, match="survey='none'"):
        dpsco.train(PLAN, dpsco.stream(rows, labels), oracle=dpsco.LinearOracle(dpsco.Logistic(), True))
    with pytest.raises(dpsco.InvalidArgument, match="survey='none'"):
        Run(PLAN, oracle=None)
    with pytest.raises(dpsco.InvalidArgument, match="add-remove"):
        dpsco.train(BY_ID, dpsco.stream(rows, labels))
    custom = dpsco.Problem(dpsco.CustomLoss(1.0, 0.25), dpsco.L2Ball(20.0), P)  # per example, PyTorch, JAX
    with pytest.raises(dpsco.InvalidArgument, match="feature matrix"):
        dpsco.plan(custom, n=N, budget=BUDGET, survey="full")
    assert not isinstance(dpsco.plan(custom, n=N, budget=BUDGET).method, Surveyed)
    box = dataclasses.replace(PROBLEM, domain=dpsco.Box(-1.0, 1.0))
    with pytest.raises(dpsco.InvalidArgument, match="domain"):
        dpsco.Plan(box, N, BUDGET, PLAN.method)


def test_health_tells_of_labels_that_are_not_declared():
    rows, labels = data()
    sick = dpsco.train(PLAN, dpsco.stream(rows, labels + 5.0, non_finite="zero"), key=KEY)
    assert sick.health is not None
    assert sick.health.usable < 0.5
    assert any("check the classes" in line for line in sick.report.assumptions)
    long = dpsco.train(PLAN, dpsco.stream(rows * 100.0, labels), key=KEY)
    assert long.health is not None
    assert long.health.shortened > 0.5


def test_models_stay_in_the_domain_and_columns_need_no_scaling():
    rng = np.random.default_rng(8)
    n, scales = 20_000, np.array([1e-3, 1.0, 30.0, 1e-2])
    rows = rng.standard_normal((n, P)) * scales
    labels = (rows / scales @ [1.5, 1.0, -0.5, 0.0] + rng.logistic(size=n) > 0).astype(float)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1e4), P, feature_norm=100.0, intercept=True)
    plan = dpsco.Plan(problem, n, dpsco.Budget(math_inf(), 1e-6), Surveyed(rounds=6, rows=3000))
    model = dpsco.train(plan, dpsco.stream(rows, labels), key=KEY).model
    np.testing.assert_allclose(model.coef * scales, [1.5, 1.0, -0.5, 0.0], atol=0.15)
    small = dataclasses.replace(plan, problem=dataclasses.replace(problem, domain=dpsco.L2Ball(2.0)))
    bounded = dpsco.train(small, dpsco.stream(rows, labels), key=KEY).model
    assert np.hypot(np.linalg.norm(bounded.coef), bounded.intercept) <= 2.0 * (1 + 1e-9)


def test_the_report_states_rows_and_noise_of_the_survey_too():
    rows, labels = data()
    for plan, options, words in (
        (dataclasses.replace(BY_ID, budget=BUDGET), {}, "the first 300 rows"),
        (BY_ID, {"ids": [str(i) for i in range(N)]}, "about 300 rows, which their ids decide"),
    ):
        text = dpsco.train(plan, dpsco.stream(rows, labels, **options), key=KEY).report.to_text()
        noise = plan.schedule.most_noise
        assert words in text
        assert words in plan.explain().replace("\n ", "")
        for name, value in (("clip", noise.clip), ("sigma", noise.sigma), ("difference", noise.difference)):
            assert f"{name} {value:.6g}" in text


@pytest.mark.parametrize("loss", [dpsco.Logistic(), dpsco.Softmax(3)], ids=["logistic", "softmax"])
def test_a_box_stays_a_box_where_columns_are_scaled_alone(loss):
    rows, labels = data()
    bounds = (-0.5, 0.0, -0.25, 0.0, -1.0) * loss.outputs, (0.1, 1.0, 9.0, 0.2, 1.0) * loss.outputs
    problem = dpsco.Problem(loss, dpsco.Box(*bounds), P, feature_norm=3.0, intercept=True)
    plan = dpsco.plan(problem, n=N, budget=BUDGET, rounds=5, survey="diagonal")
    run = Run(plan, oracle=library_oracle(plan), key=KEY)
    run.push(rows, labels)
    inside = run._stage.schedule.problem.domain
    rng = np.random.default_rng(0)
    for u in 30 * rng.standard_normal((20, problem.parameters)):  # the projection in u is that of the box, exactly
        x, sides = run.second.map.parameters(inside.project(u)), np.tile(run.second.map.sides, loss.outputs)
        np.testing.assert_allclose(x, np.clip(u * sides, *bounds), rtol=1e-12)
    x = np.concatenate([np.atleast_2d(run.model.coef), np.atleast_1d(run.model.intercept)[:, None]], axis=1).ravel()
    assert np.all((x >= bounds[0]) & (x <= bounds[1]))
    assert any(x in (low, high) for x, low, high in zip(x, *bounds, strict=True))
    shape = dataclasses.replace(run.geometry, source="public rows")
    reused = dpsco.plan(problem, n=N, budget=BUDGET, rounds=5, geometry=shape)
    assert reused.method.map.diagonal
    with pytest.raises(dpsco.InvalidArgument, match="domain"):
        dpsco.plan(problem, n=N, budget=BUDGET, survey="full")
    assert not isinstance(dpsco.plan(problem, n=N, budget=BUDGET).method, Surveyed)


def math_inf() -> float:
    return float("inf")


def test_an_estimator_surveys_raw_columns():
    rng = np.random.default_rng(9)
    n, scales = 6_000, np.array([0.3, 1.0, 3.0])
    rows = rng.standard_normal((n, 3)) * scales
    labels = (rows / scales @ [2.0, -1.0, 1.0] + rng.logistic(size=n) > 0).astype(int)
    model = dpsco.PrivateLogisticRegression(
        epsilon=4.0, delta=1e-6, feature_norm=12.0, classes=[0, 1], rounds=6, survey="auto"
    ).fit(rows, labels)
    assert isinstance(model.plan_.method, Surveyed)
    assert model.geometry_ is not None
    assert model.health_.usable > 1 - 6 * model.health_.noise
    assert model.score(rows, labels) > 0.7
    assert model.privacy_.private


@pytest.mark.parametrize("complete", [False, True])
def test_rounds_that_release_squares_resume_with_their_own_radius_alone(complete, tmp_path, monkeypatch):
    rng, folder = np.random.default_rng(11), tmp_path / "run"
    features, labels = rng.standard_normal((N, P)), rng.integers(0, 2, N).astype(float)

    def stop(seen):
        if seen.step == 2 and not complete:
            raise KeyboardInterrupt

    def trained(**options):
        return dpsco.train(PLANS["measured"], dpsco.stream(features, labels), checkpoint=folder, **options)

    with contextlib.suppress(KeyboardInterrupt):
        trained(on_round=stop)
    with monkeypatch.context() as other:
        other.setattr("dpsco.planning.rounds_in_geometry._USUAL", 0.5)
        with pytest.raises(dpsco.CheckpointError):
            trained(resume=True)
    trained(resume=True)
