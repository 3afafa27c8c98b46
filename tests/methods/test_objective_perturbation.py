"""Objective perturbation: its minimiser is certified, its rows move the objective no further than was accounted for."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.accounting.objective import alpha_of
from dpsco.json_files import canonical
from dpsco.methods import minimise
from dpsco.methods.objective_perturbation import objective_of
from dpsco.query import Array, Batch
from dpsco.release.noise import derive, normals
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.run import row_passes, watching
from dpsco.run.row_passes import RowPasses, within

N, P = 400, 3
KEY = bytes(range(32))
LOSSES = [dpsco.Logistic(), dpsco.SmoothedHinge(0.5), dpsco.Huber(0.3), dpsco.Squared(1.0), dpsco.Softmax(3)]


def problem_of(loss: dpsco.problem.Loss, *, intercept: bool = False, radius: float = 3.0) -> dpsco.Problem:
    return dpsco.Problem(loss, dpsco.L2Ball(radius), P, feature_norm=1.5, intercept=intercept)


def plan_of(loss: Any, *, adjacency: str = "zero-out", epsilon: float = 1.0, **options: Any) -> dpsco.Plan:
    keep = {name: options.pop(name) for name in ("intercept", "radius") if name in options}
    problem = problem_of(loss, **keep)
    method = dpsco.ObjectivePerturbation(**{"clip": problem.lipschitz, **options})
    return dpsco.Plan(problem, N, dpsco.Budget(epsilon, 1e-5, adjacency), method)


def rows_of(loss: dpsco.problem.Loss, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(N, P)) * [1.0, 0.3, 0.1]
    signal = a @ [1.0, -2.0, 1.0] + 0.3
    if isinstance(loss, (dpsco.Huber, dpsco.Squared)):
        return a, np.clip(signal / 3 + 0.1 * rng.normal(size=N), -1, 1)
    return a, np.clip(np.round(signal + rng.normal(size=N)), 0, loss.outputs - 1 if loss.outputs > 1 else 1)


def solved(plan: dpsco.Plan, stream: dpsco.Stream, **options: Any) -> tuple[Array, Array, dpsco.Result]:
    """What reached release, what was released, and the result."""
    seen: list[tuple[Array, Array]] = []
    with watching(lambda query, clipped, released: seen.append((clipped.total.copy(), released.value))):
        result = dpsco.train(plan, stream, **{"key": KEY, **options})
    return *seen[0], result


def gradient(plan: dpsco.Plan, rows: tuple[Array, Array], x: Array, tilt: Array) -> Array:
    """Gradient of the objective in extended precision, written anew."""
    problem, settings = plan.problem, plan.schedule.settings
    form, loss = objective_of(problem, plan.clip), plan.problem.loss
    wide = np.longdouble
    a = rows[0].astype(wide)
    long = np.sqrt(np.sum(a * a, axis=1))
    a *= np.minimum(1, problem.feature_norm * (1 - wide(1e-12)) / np.maximum(long, wide(1e-300)))[:, None]
    if problem.intercept:
        a = np.hstack([a, np.full((len(a), 1), wide(form.constant))])
    points = x.astype(wide).reshape(loss.outputs, -1)
    scores = a @ points.T
    if loss.outputs == 1:
        slope = loss.slope(scores[:, 0], rows[1].astype(wide))
        most = form.lipschitz / np.maximum(np.sqrt(np.sum(a * a, axis=1)), wide(1e-300))
        g = np.clip(slope, -most, most) @ a
    else:
        g = (loss.slope(scores, rows[1]).T @ a).ravel()
    length = np.sqrt(np.sum(x.astype(wide) ** 2))
    wall = settings["wall"] * max(wide(0), 1 - form.radius / length) if length else 0
    return np.asarray(g + (settings["ridge"] + wall) * x + tilt)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_the_certificate_tells_the_truth(loss, intercept) -> None:
    """The gradient at what reaches release, in extended precision, is within the tolerance that noise pays for."""
    plan, rows = plan_of(loss, intercept=intercept), rows_of(loss)
    schedule = plan.schedule
    x, released, _ = solved(plan, dpsco.stream(*rows))
    about = {"plan": plan.to_dict(), "start": sha256(np.zeros(plan.problem.parameters).tobytes()).hexdigest()}
    about |= {"seeded": True, "watched": True, "noise": schedule.noise_digest()}
    key = derive(KEY, "run", sha256(canonical(about)).hexdigest())
    tilt = schedule.inner_sigma * normals(derive(key, "objective"), 0, plan.problem.parameters)
    g = np.asarray(gradient(plan, rows, x, tilt), dtype=np.float64)
    assert np.linalg.norm(g) <= schedule.settings["tolerance"]
    assert schedule.settings["tau"] == schedule.settings["tolerance"] / schedule.settings["ridge"]
    noise = schedule.most_noise
    assert noise.difference >= 2 * schedule.settings["tau"]
    assert noise.difference / noise.sigma <= plan.method.objective(plan.problem).lipschitz / schedule.inner_sigma / 32
    assert 0 < np.linalg.norm(released - x) <= 8 * noise.sigma * math.sqrt(x.size)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_rounding_is_within_its_bound(loss) -> None:
    plan, rows = plan_of(loss), rows_of(loss)
    form, settings = objective_of(plan.problem, plan.clip), plan.schedule.settings
    passes = RowPasses(plan.problem, Batch(0, [rows]), form.lipschitz, form.constant)
    rng = np.random.default_rng(4)
    for reach in (0.0, 1.0, 2 * form.radius):
        x = rng.standard_normal(plan.problem.parameters)
        x *= reach / np.linalg.norm(x)
        length = float(np.linalg.norm(x))
        computed, _ = passes.derivatives(x, None)
        beyond = max(0.0, 1 - form.radius / length) if length else 0.0
        computed = computed + (settings["ridge"] + settings["wall"] * beyond) * x
        off = np.linalg.norm((computed - gradient(plan, rows, x, np.zeros_like(x))).astype(np.float64))
        assert off <= form.rounding(N, length, settings["wall"], plan.schedule.inner_sigma, P, x.size)


ODD_ROWS: dict[str, tuple[list[float], float]] = {
    "ordinary": ([3.0, -1.0, 2.0], 1.0),
    "huge": ([1e149, -1e149, 0.0], 1.0),
    "beyond huge": ([1e308, 1e308, -1e308], 0.0),
    "nan": ([np.nan, 0.0, 1.0], 1.0),
    "label unknown": ([1.0, 1.0, 1.0], 77.5),
    "subnormal": ([5e-324, 1e-310, 0.0], 1.0),
    "far label": ([1.0, -1.0, 0.5], 1e308),
}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_one_row_moves_gradient_and_determinant_by_no_more_than_was_accounted_for(loss, intercept) -> None:
    """White box: at every point, what the proof takes from the rows holds for rows that nobody expected."""
    plan, (features, labels) = plan_of(loss, intercept=intercept), rows_of(loss)
    form, ridge, p = objective_of(plan.problem, plan.clip), plan.schedule.settings["ridge"], plan.problem.parameters
    alpha = alpha_of(form.shape, ridge, form.spread, form.classes)
    rng, most = np.random.default_rng(5), 0.0
    points = [scale * rng.standard_normal(p) for scale in (0.0, 0.1, 1.0, 30.0)]
    directions: dict[str, list[Array]] = {name: [] for name in ODD_ROWS}

    def at(x: Array, row: tuple[list[float], float] | None) -> tuple[Array, float]:
        a, y = features.copy(), labels.copy()
        a[7], y[7] = ([0.0] * P, np.nan) if row is None else row
        g, hessian = RowPasses(plan.problem, Batch(0, [(a, y)]), form.lipschitz, form.constant).derivatives(x, 0.0)
        assert hessian is not None
        return g, float(np.linalg.slogdet(hessian + ridge * np.eye(p))[1])

    for x in points:
        without = at(x, None)
        for name, row in ODD_ROWS.items():
            g, log_det = at(x, row)
            moved = g - without[0]
            most = max(most, float(np.linalg.norm(moved)) / form.lipschitz)
            assert np.linalg.norm(moved) <= form.lipschitz * (1 + 1e-9)
            assert -1e-9 <= log_det - without[1] <= alpha + 1e-9
            if np.linalg.norm(moved) > 1e-6:
                directions[name].append(moved / np.linalg.norm(moved))
    assert most > 0.5
    if form.shape == "one sign":  # the gradient of a row is on one ray, wherever the model is
        for found in directions.values():
            assert all(one @ other > 1 - 1e-5 for one in found for other in found)


@pytest.mark.parametrize("norm", [0.5, 1.0, 2.0, 3.0, 100.0])
def test_the_planned_clip_clips_no_row_of_several_classes(norm) -> None:
    """Privacy rests on convexity, and a softmax loss that is clipped below its own L is not convex."""
    problem = dpsco.Problem(dpsco.Softmax(3), dpsco.L2Ball(3.0), 1, feature_norm=norm, intercept=True)
    method = dpsco.ObjectivePerturbation.planned(problem, N, dpsco.Budget(1.0, 1e-6))
    form = method.objective(problem)
    assert form.lipschitz >= problem.loss.lipschitz(math.hypot(norm, form.constant), form.radius) * (1 - 1e-12)
    passes = RowPasses(problem, Batch(0, [(np.array([[norm]]), np.array([0.0]))]), form.lipschitz, form.constant)
    row = np.array([norm, form.constant])
    for share in (0.03, 0.1, 0.2):  # the steepest gradients, where a clip would bend
        scores = np.array([-20.0, math.log(share), math.log(1 - share)])
        x, step = np.outer(scores, row / (row @ row)).ravel(), 1e-5 / norm
        columns = [
            (passes.derivatives(x + h, None)[0] - passes.derivatives(x - h, None)[0]) / (2 * step)
            for h in step * np.eye(len(x))
        ]
        assert np.linalg.eigvalsh(np.add(columns, np.transpose(columns)) / 2)[0] > -1e-6 * form.smoothness


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_one_row_changes_nothing_but_the_release(adjacency) -> None:
    plan, (features, labels) = plan_of(dpsco.Logistic(), adjacency=adjacency), rows_of(dpsco.Logistic())
    base = solved(plan, dpsco.stream(features, labels))
    for row in ODD_ROWS.values():
        a, y = features.copy(), labels.copy()
        a[7], y[7] = row
        other = solved(plan, dpsco.stream(a, y, non_finite="zero"))
        assert other[2].counts == base[2].counts
        assert other[2].trace == base[2].trace == ()
        reports = [str(run[2].report).replace(run[2].report.run_id, "") for run in (base, other)]
        assert reports[0] == reports[1]


def test_the_noise_in_the_objective_is_what_was_promised() -> None:
    """On zero rows the minimiser is -b / ridge, and 6 sqrt(2 / 6000) = 11 % covers the mean square."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1e4), dimension=1000)
    method = dpsco.ObjectivePerturbation(clip=1.0, ridge=4.0)
    plan = dpsco.Plan(problem, 50, dpsco.Budget(1.0, 1e-5), method)
    rows = np.zeros((50, 1000)), np.zeros(50)
    runs = [dpsco.train(plan, dpsco.stream(*rows), key=bytes([k]) * 32).model.coef for k in range(6)]
    expected = (plan.schedule.inner_sigma / 4.0) ** 2 + plan.schedule.most_noise.sigma**2
    assert np.mean(np.square(runs)) == pytest.approx(expected, rel=0.11)
    assert abs(runs[0] @ runs[1]) <= 6 * expected * math.sqrt(1000)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_without_noise_it_is_the_regularised_minimiser(loss) -> None:
    plan = plan_of(loss, epsilon=math.inf, clip=math.inf, ridge=2.0, radius=50.0)
    rows = rows_of(loss)
    x = np.ravel(dpsco.train(plan, dpsco.stream(*rows)).model.coef)
    assert np.linalg.norm(x) > 0.1
    assert np.linalg.norm(gradient(plan, rows, x, np.zeros_like(x)).astype(np.float64)) <= 1e-8


def test_gradient_steps_find_what_newton_steps_find(monkeypatch) -> None:
    plan, rows = plan_of(dpsco.Huber(0.3)), rows_of(dpsco.Huber(0.3))
    x, _, _ = solved(plan, dpsco.stream(*rows))
    monkeypatch.setattr(minimise, "_NEWTON", 0)
    other, _, _ = solved(plan, dpsco.stream(*rows))
    assert not np.array_equal(x, other)
    assert np.linalg.norm(x - other) <= 2 * plan.schedule.settings["tau"]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_hard_rows_are_solved_too(loss) -> None:
    """One label, copies of one row, columns of very different size: the run always ends in a release."""
    rng = np.random.default_rng(8)
    columns = rng.normal(size=(N, P)) * [1.0, 1e-4, 1e-9]
    for features in (np.tile([1.0, 0.5, -0.2], (N, 1)), columns, 1e6 * columns):
        for labels in (np.ones(N), np.zeros(N), np.arange(N) % 2):
            for intercept in (False, True):
                plan = plan_of(loss, epsilon=4.0, intercept=intercept, ridge=0.3, radius=100.0)
                run = dpsco.train(plan, dpsco.stream(features, labels.astype(float)), key=KEY)
                assert np.all(np.isfinite(run.model.coef))


def test_the_intercept_is_learned_in_its_own_units() -> None:
    rng = np.random.default_rng(3)
    a = rng.normal(size=(N * 20, P)) / 3
    y = (rng.random(len(a)) < 1 / (1 + np.exp(-(a @ [2.0, -1.0, 0.0] + 1.5)))).astype(float)
    problem = problem_of(dpsco.Logistic(), intercept=True, radius=20.0)
    plan = dpsco.plan(problem, n=len(a), budget=dpsco.Budget(4.0, 1e-5), method="objective-perturbation")
    model = dpsco.train(plan, dpsco.stream(a, y), key=KEY).model
    assert float(model.intercept) == pytest.approx(1.5, abs=0.2)
    np.testing.assert_allclose(model.coef, [2.0, -1.0, 0.0], atol=0.3)


def test_a_secret_number_of_rows_is_refused_because_rounding_grows_with_it() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="public bound on the number of rows"):
        _ = plan_of(dpsco.Logistic(), adjacency="add-remove").schedule


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_a_solver_that_never_certifies_still_comes_within_tau(loss, monkeypatch) -> None:
    """So whether a run ends in a release says nothing about its rows."""
    plan, rows = plan_of(loss, ridge=60.0), rows_of(loss)
    x, _, _ = solved(plan, dpsco.stream(*rows))
    monkeypatch.setattr(minimise, "_NEWTON", 0)
    monkeypatch.setattr(minimise, "_MOST", 0)
    other, _, _ = solved(plan, dpsco.stream(*rows))
    assert not np.array_equal(x, other)
    assert np.linalg.norm(x - other) <= 2 * plan.schedule.settings["tau"]


def test_a_hessian_that_is_singular_up_to_rounding_ends_no_run(monkeypatch) -> None:
    plan, rows = plan_of(dpsco.Logistic()), rows_of(dpsco.Logistic())

    def singular(matrix: Array, vector: Array) -> Array:
        raise np.linalg.LinAlgError

    monkeypatch.setattr(np.linalg, "solve", singular)
    x, _, _ = solved(plan, dpsco.stream(*rows))
    monkeypatch.setattr(np.linalg, "solve", lambda matrix, vector: np.full_like(vector, np.inf))
    other, _, _ = solved(plan, dpsco.stream(*rows))
    assert np.array_equal(x, other)


def test_plain_steps_come_as_close_as_stated_with_errors_of_the_stated_size() -> None:
    rng = np.random.default_rng(3)
    curvature, tolerance = np.geomspace(1.0, 200.0, 6), 1e-6
    steps = minimise.steps_enough(tolerance, 1.0, 200.0, 3.0)
    for _ in range(5):
        minimum = rng.normal(size=6)
        minimum *= 3.0 / np.linalg.norm(minimum)
        wrong = rng.normal(size=6)
        wrong *= tolerance / 4 / np.linalg.norm(wrong)
        off = lambda x, damping, m=minimum, w=wrong: (curvature * (x - m) + w, None)  # noqa: E731
        end = minimise._plain_steps(off, np.zeros(6), 200.0, steps)
        assert np.linalg.norm(end - minimum) <= tolerance


def test_a_ridge_that_float64_does_not_resolve_is_refused() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="2\\^-40"):
        _ = plan_of(dpsco.Squared(1.0), epsilon=40.0, ridge=1e-11).schedule


@pytest.mark.parametrize("kept", [1 << 30, 0])
def test_files_are_read_again_and_give_the_same_bits(tmp_path, monkeypatch, kept) -> None:
    monkeypatch.setattr(row_passes, "_KEPT", kept)
    features, labels = rows_of(dpsco.Logistic())
    features = features.astype(np.float32)
    np.savez(tmp_path / "rows.npz", X=features, y=labels.astype(np.int64))
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(3.0), P)
    plan = dpsco.plan(problem, n=N - 10, budget=dpsco.Budget(1.0, 1e-5), method="objective-perturbation")
    passes: list[int] = []

    class Counted(FileRows):
        def __iter__(self):
            passes.append(1)
            return super().__iter__()

    files = solved(plan, dpsco.stream(Counted(tmp_path / "rows.npz", Labels("y", classes=("0", "1")), P)))
    unit = features / np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]
    array = solved(plan, dpsco.stream(unit.astype(np.float32), labels))
    assert np.linalg.norm(files[0] - array[0]) <= 1e-4
    assert files[2].report.rows_missing == 0
    assert (len(passes) > 3) == (kept == 0)
    once = solved(plan, dpsco.stream(iter([(unit, labels)]), dtype="float32"))
    assert np.linalg.norm(once[0] - array[0]) <= 1e-4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (partial(dpsco.Budget, 1.0, 1e-5, "zero-out", 2), "records=1"),
        (partial(dpsco.Budget, 0.01, 1e-5), "ridge"),
    ],
)
def test_budgets_that_its_proof_does_not_cover_are_refused(make, words) -> None:
    with pytest.raises(dpsco.InvalidArgument, match=words):
        dpsco.Plan(problem_of(dpsco.Logistic()), N, make(), dpsco.ObjectivePerturbation(clip=1.5, ridge=1.0))


def test_what_its_proof_does_not_cover_is_refused() -> None:
    refused = pytest.raises(dpsco.InvalidArgument)
    with refused:
        plan_of(dpsco.CustomLoss())
    with refused:
        plan_of(dpsco.Softmax(3), clip=0.5)
    with refused:
        plan_of(dpsco.Softmax(3), constants="paper")
    with refused:
        plan_of(dpsco.Logistic(), constants="paper", adjacency="replace")
    with refused:
        plan_of(dpsco.Logistic(), constants="paper", ridge=0.1)
    with refused:
        dpsco.Plan(dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), 5000), N, dpsco.Budget(1.0, 1e-5),
                   dpsco.ObjectivePerturbation(clip=1.0))  # fmt: skip
    with refused:
        dpsco.Plan(dpsco.Problem(dpsco.Logistic(), dpsco.Everything(), P), N, dpsco.Budget(1.0, 1e-5),
                   dpsco.ObjectivePerturbation(clip=1.0))  # fmt: skip
    paper = plan_of(dpsco.Logistic(), constants="paper", ridge=4.0)
    assert paper.schedule.inner_sigma > plan_of(dpsco.Logistic(), ridge=4.0).schedule.inner_sigma


def test_plan_and_report_say_what_the_proof_needs(tmp_path) -> None:
    plan = plan_of(dpsco.Logistic())
    assert "convex" in plan.explain()
    assert "certified" in plan.explain()
    report = dpsco.train(plan, dpsco.stream(*rows_of(dpsco.Logistic()))).report
    assert report.private
    assert not report.gaussian
    assert any("exact minimiser" in line for line in report.assumptions)
    assert "ridge" in report.accounting
    account = dpsco.Account.create(tmp_path / "account.json", dpsco.Budget(3.0, 1e-5))
    with pytest.raises(dpsco.AccountError, match="objective-perturbation"):
        dpsco.train(plan, dpsco.stream(*rows_of(dpsco.Logistic())), account=account)


@pytest.mark.parametrize("feature_norm", [1.0, 1e-9, 1e-15, 1e-160])
def test_no_row_is_longer_than_the_norm_that_was_declared(feature_norm: float) -> None:
    """In exact arithmetic: a factor below the normal numbers would be rounded by up to a third of itself."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 3)) * 10.0 ** rng.uniform(290, 307, (300, 1))
    rows[0], rows[1, 0] = (3.0, 4.0, 0.0), np.inf
    for short, _ in within([(rows, np.zeros(300))], feature_norm):
        for row in short[np.all(np.isfinite(short), axis=1)]:
            assert sum(Fraction(value) ** 2 for value in row.tolist()) <= Fraction(feature_norm) ** 2
