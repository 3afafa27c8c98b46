"""Objective perturbation behind a survey: each row is in one release, and moves it no further than accounted for."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.accounting.objective import alpha_of, objective_delta
from dpsco.audit import audit
from dpsco.planning import second_stage as stages
from dpsco.planning.second_stage import SecondStage, second_stage
from dpsco.planning.table_problem import table_plan
from dpsco.query import Array, Batch
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.run import Run, row_passes, watching
from dpsco.run.facts import Clipping, Facts
from dpsco.run.row_access import CountedRows
from dpsco.run.row_passes import within
from dpsco.run.train import library_oracle

N, P, NAME = 3_000, 4, "surveyed-objective-perturbation"
KEY = bytes(range(32))
SCALES = np.array([0.5, 0.1, 0.03, 0.01])
LOSSES = [dpsco.Logistic(), dpsco.SmoothedHinge(0.5), dpsco.Huber(0.3), dpsco.Squared(1.0), dpsco.Softmax(3)]
ODD_ROWS: dict[str, tuple[list[float], float]] = {
    "ordinary": ([0.3, -0.1, 0.2, 0.0], 1.0),
    "along the smallest column": ([0.0, 0.0, 0.0, 1.0], 1.0),
    "huge": ([1e149, -1e149, 0.0, 0.0], 1.0),
    "beyond huge": ([1e308, 1e308, -1e308, 1.0], 0.0),
    "nan": ([np.nan, 0.0, 1.0, 0.0], 1.0),
    "label unknown": ([1.0, 1.0, 1.0, 1.0], 77.5),
    "subnormal": ([5e-324, 1e-310, 0.0, 0.0], 1.0),
}


def plan_of(loss: Any, *, epsilon: float = 1.0, adjacency: str = "zero-out", intercept: bool = True) -> dpsco.Plan:
    problem = dpsco.Problem(loss, dpsco.L2Ball(1000.0), P, intercept=intercept)
    return dpsco.plan(problem, n=N, budget=dpsco.Budget(epsilon, 1e-5, adjacency), method=NAME, passes=None)


def rows_of(loss: dpsco.problem.Loss, n: int = N) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(n, P)) * SCALES
    signal = a / SCALES @ [0.8, -0.5, 0.5, 0.8] + 0.3
    if isinstance(loss, (dpsco.Huber, dpsco.Squared)):
        return a, np.clip(signal / 4 + 0.1 * rng.normal(size=n), -1, 1)
    return a, np.clip(np.round(signal + rng.normal(size=n)), 0, loss.outputs - 1 if loss.outputs > 1 else 1)


def watched(plan: dpsco.Plan, rows: tuple[Array, Array], **options: Any) -> tuple[list[Any], list[Array], dpsco.Result]:
    """Un-noised values, released values, and the result."""
    seen: list[tuple[Array, Array]] = []
    with watching(lambda query, clipped, released: seen.append((clipped.total.copy(), released.value)), **options):
        result = dpsco.train(plan, dpsco.stream(*rows, non_finite="zero"), key=KEY)
    return [one for one, _ in seen], [value for _, value in seen], result


def behind(plan: dpsco.Plan, rows: tuple[Array, Array]) -> SecondStage:
    return second_stage(plan, watched(plan, rows)[1][0])


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_both_releases_have_the_whole_budget_and_no_more(loss, adjacency) -> None:
    plan = plan_of(loss, epsilon=2.0, adjacency=adjacency)
    second = behind(plan, rows_of(loss))
    rounds = dpsco.plan(plan.problem, n=N, budget=plan.budget, survey="full")
    same = dataclasses.replace(rounds, method=dataclasses.replace(rounds.method, rows=plan.method.rows))
    assert plan.schedule.calibration == same.schedule.calibration
    later, method = second.plan, second.plan.method
    form = method.objective(later.problem)
    alpha = alpha_of(form.shape, later.schedule.settings["ridge"], form.spread, form.classes)
    options = {"noise": later.schedule.inner_sigma / form.lipschitz, "alpha": alpha, "classes": form.classes}
    spent = objective_delta(2.0, shape=form.shape, replace=adjacency == "replace", **options)
    assert 0.9 * plan.budget.delta < spent <= plan.budget.delta
    assert later.budget == plan.budget
    assert later.n == N - plan.method.rows
    assert form.lipschitz == pytest.approx(min(method.clip, loss.lipschitz(later.problem.feature_norm, form.radius)))


def test_it_has_no_mu_and_accounts_refuse_it(tmp_path) -> None:
    plan = plan_of(dpsco.Logistic())
    account = dpsco.Account.create(tmp_path / "account.json", dpsco.Budget(3.0, 1e-4))
    with pytest.raises(dpsco.AccountError, match="Gaussian-DP"):
        dpsco.train(plan, dpsco.stream(*rows_of(dpsco.Logistic())), account=account)
    assert not account.runs


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_one_row_moves_gradient_and_determinant_by_no_more_than_was_accounted_for(loss, intercept) -> None:
    """White box, at every point and in the survey's coordinates, for rows that nobody expected."""
    plan, (features, labels) = plan_of(loss, intercept=intercept), rows_of(loss)
    second = behind(plan, (features, labels))
    problem, ridge = second.plan.problem, second.plan.schedule.settings["ridge"]
    form, p = second.plan.method.objective(problem), problem.parameters
    alpha = alpha_of(form.shape, ridge, form.spread, form.classes)
    access = CountedRows(None, problem, lambda *_: np.zeros(0, int), True, row_map=second.map)
    features, labels = features[-200:], labels[-200:]

    def at(x: Array, row: tuple[list[float], float] | None) -> tuple[Array, float]:
        a, y = features.copy(), labels.copy()
        a[7], y[7] = ([0.0] * P, np.nan) if row is None else row
        passes = access.passes(Batch(0, [(a, y)]), len(y), form.lipschitz, form.constant, 1)
        g, hessian = passes.derivatives(x, 0.0)
        assert hessian is not None
        return g, float(np.linalg.slogdet(hessian + ridge * np.eye(p))[1])

    rng, most = np.random.default_rng(5), 0.0
    for scale in (0.0, 0.1, 1.0, 30.0):
        x = scale * rng.standard_normal(p)
        without = at(x, None)
        for row in ODD_ROWS.values():
            g, log_det = at(x, row)
            moved = float(np.linalg.norm(g - without[0]))
            most = max(most, moved / form.lipschitz)
            assert moved <= form.lipschitz * (1 + 1e-9)
            assert -1e-9 <= log_det - without[1] <= alpha + 1e-9
    assert most > 0.5


def test_a_row_is_in_one_release_and_changes_nothing_else() -> None:
    plan, (features, labels) = plan_of(dpsco.Logistic()), rows_of(dpsco.Logistic())
    released = watched(plan, (features, labels))[1]
    for place in (7, N - 7):
        surveyed = place < plan.method.rows
        labels[place] = np.nan  # a zero row
        sums, _, result = watched(plan, (features, labels), replay=released[:1])
        assert np.linalg.norm(sums[1]) > 0.1
        changed = False
        for row in ODD_ROWS.values():
            a, y = features.copy(), labels.copy()
            a[place], y[place] = row
            others, _, other = watched(plan, (a, y), replay=released[:1])
            changed |= not all(map(np.array_equal, others, sums))
            if surveyed:  # given the released survey, its rows are not used
                assert np.array_equal(others[1], sums[1])
            else:
                assert np.array_equal(others[0], sums[0])
            assert np.linalg.norm(others[0] - sums[0]) <= plan.schedule.calibration.difference
            assert other.counts == result.counts
            assert other.trace == result.trace
            reports = [str(run.report).replace(run.report.run_id, "") for run in (result, other)]
            assert reports[0] == reports[1]
        assert changed


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_without_noise_it_is_the_minimiser_in_the_coordinates_of_the_survey(loss) -> None:
    plan, rows = plan_of(loss, epsilon=math.inf), rows_of(loss)
    sums, released, result = watched(plan, rows)
    second = second_stage(plan, released[0])
    problem, left, u = second.plan.problem, slice(plan.method.rows, N), sums[1]
    [(b, y)] = within([(second.map.rows(rows[0][left]), rows[1][left])], problem.feature_norm)
    scores = b @ u.reshape(loss.outputs, -1).T
    slopes = loss.slope(scores if loss.outputs > 1 else scores[:, 0], y)
    ridge = second.plan.schedule.settings["ridge"] * (u - second.start)
    g = (slopes.reshape(len(y), -1).T @ b).ravel() + ridge
    assert np.linalg.norm(u) > 0.1
    assert np.linalg.norm(g) <= 1e-6
    whole = np.concatenate([np.atleast_2d(result.model.coef), np.reshape(result.model.intercept, (-1, 1))], axis=1)
    np.testing.assert_allclose(whole.ravel(), second.map.parameters(u), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_hard_rows_end_in_a_release_too(loss) -> None:
    hard = (np.zeros((N, P)), np.tile([1.0, 0.5, -0.2, 0.0], (N, 1)), np.full((N, P), 1e-200), np.full((N, P), np.nan))
    for features in hard:
        for labels in (np.ones(N), np.arange(N) % 2.0):
            for epsilon in (0.1, 4.0):
                run = dpsco.train(plan_of(loss, epsilon=epsilon), dpsco.stream(features, labels, non_finite="zero"))
                assert np.all(np.isfinite(run.model.coef))


def test_a_survey_that_shows_nothing_gives_the_plain_objective(monkeypatch) -> None:
    plan, rows = plan_of(dpsco.Logistic(), epsilon=4.0), rows_of(dpsco.Logistic())
    monkeypatch.setattr(stages, "objective_in", lambda *args, **options: None)
    _, released, result = watched(plan, rows)
    second = second_stage(plan, released[0])
    assert second.plan.method.name == "objective-perturbation"
    assert second.plan.problem.feature_norm == math.hypot(1.0, 0.5)
    assert result.model.coef[0] > 0.3


def test_plans_are_kept_in_files_and_say_what_the_proof_needs() -> None:
    plan = plan_of(dpsco.Logistic())
    assert dpsco.Plan.from_json(plan.to_json()) == plan
    same = dpsco.plan(plan.problem, n=N, budget=plan.budget, method="objective-perturbation", survey="full")
    assert same == plan
    assert "convex" in plan.explain()
    assert "no mu of its own" in " ".join(plan.explain().split())
    assert not plan.method.single_epoch
    report = dpsco.train(plan, dpsco.stream(*rows_of(dpsco.Logistic()))).report
    assert report.private
    assert not report.gaussian
    assert report.needs == "convexity"
    assert report.rows_missing == report.rows_unread == 0
    assert "pass after pass" in report.sampling
    assert any("exact minimiser" in line for line in report.assumptions)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rounds": 4}, "two rounds"),
        ({"survey": "none"}, "begins with a survey"),
        ({"survey": "intervals"}, "decides on every hyperparameter"),
        ({"memory": 1e6}, "decides on every hyperparameter"),
        ({"budget": dpsco.Budget(1.0, 1e-5, "add-remove")}, "public bound on the number of rows"),
        ({"budget": dpsco.Budget(1.0, 1e-5, "zero-out", 2)}, "records=1"),
    ],
)
def test_what_its_proof_or_its_plan_does_not_cover_is_refused(given, words) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1000.0), P)
    with pytest.raises(dpsco.InvalidArgument, match=words):
        dpsco.plan(problem, **{"n": N, "budget": dpsco.Budget(1.0, 1e-5), "method": NAME, **given})


def test_rows_that_are_pushed_or_elsewhere_and_audits_are_refused_before_the_survey() -> None:
    plan, rows = plan_of(dpsco.Logistic()), rows_of(dpsco.Logistic())
    with Run(plan, oracle=library_oracle(plan)) as run, pytest.raises(dpsco.InvalidArgument, match="position"):
        run.push(*rows)
    with pytest.raises(dpsco.InvalidArgument, match="the library's own oracles"):
        Run(plan, oracle=None)
    with pytest.raises(dpsco.InvalidArgument, match="private for convex losses only"):
        Run(plan, oracle=None, facts=Facts(clipping=Clipping.CLIENTS))
    with pytest.raises(dpsco.InvalidArgument, match="worst pair"):
        audit(plan)


def test_a_run_stopped_behind_its_survey_goes_on_to_the_same_bits(tmp_path) -> None:
    plan, rows = plan_of(dpsco.Logistic()), rows_of(dpsco.Logistic())
    whole = dpsco.train(plan, dpsco.stream(*rows), key=KEY)

    def stop(seen: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dpsco.train(plan, dpsco.stream(*rows), key=KEY, checkpoint=tmp_path, on_round=stop)
    other = rows[0].copy()
    other[7] += 0.1
    with pytest.raises(dpsco.LedgerError):
        dpsco.train(plan, dpsco.stream(other, rows[1]), key=KEY, checkpoint=tmp_path, resume=True)
    for _ in range(2):  # it goes on, and is given back
        again = dpsco.train(plan, dpsco.stream(*rows), key=KEY, checkpoint=tmp_path, resume=True)
        np.testing.assert_array_equal(again.model.coef, whole.model.coef)


@pytest.mark.parametrize("kept", [1 << 30, 0])
def test_files_are_read_again_behind_the_survey_and_give_the_same_bits(tmp_path, monkeypatch, kept) -> None:
    monkeypatch.setattr(row_passes, "_KEPT", kept)
    features, labels = rows_of(dpsco.Logistic())
    features = (features / np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]).astype(np.float32)
    np.savez(tmp_path / "rows.npz", X=features, y=labels.astype(np.int64))
    plan = plan_of(dpsco.Logistic())
    reads: list[int] = []

    class Counted(FileRows):
        def __iter__(self):
            reads.append(1)
            return super().__iter__()

    files = dpsco.train(plan, dpsco.stream(Counted(tmp_path / "rows.npz", Labels("y", classes=("0", "1")), P)), key=KEY)
    array = dpsco.train(plan, dpsco.stream(features, labels), key=KEY)
    np.testing.assert_allclose(files.model.coef, array.model.coef, rtol=1e-4, atol=1e-4)
    assert files.report.rows_missing == 0
    assert files.counts == array.counts
    assert (len(reads) > 3) == (kept == 0)


def test_columns_of_very_different_size_are_what_it_is_for() -> None:
    """Four columns that differ fiftyfold: a third of the excess of one pass and of plain objective perturbation."""
    loss, n = dpsco.Logistic(), 20_000
    rng = np.random.default_rng(1)
    a = rng.normal(size=(n, P)) * SCALES
    truth = np.array([0.8, -0.8, 0.8, 0.8]) / SCALES
    chance = 0.5 * (1 + np.tanh(a @ truth / 2))
    y = (rng.random(n) < chance).astype(float)
    least = float(np.mean(np.logaddexp(0, a @ truth) - chance * (a @ truth)))

    def excess(solver: str) -> float:
        plan = table_plan(loss, P, n=n, budget=dpsco.Budget(1.0, 1e-5), intercept=True, solver=solver)
        runs = [dpsco.train(plan, dpsco.stream(a, y), key=bytes([k]) * 32).model for k in range(4)]
        scores = [a @ run.coef + run.intercept for run in runs]
        return float(np.mean([np.mean(np.logaddexp(0, s) - chance * s) for s in scores])) - least

    assert excess("auto") < min(excess("one-pass"), excess("objective-perturbation")) / 3
