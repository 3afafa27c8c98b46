"""Intervals of surveyed runs: they cover, their privacy part is the mechanism's own, and wrong ones are refused."""

from __future__ import annotations

import dataclasses
import pickle
from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpsco
from dpsco.algorithm_1 import update
from dpsco.datasets import people
from dpsco.inference.curvature import curvature
from dpsco.inference.doubts import Signs, refuse
from dpsco.inference.estimate import _averaged
from dpsco.methods import Surveyed
from dpsco.run import Run
from dpsco.run.train import library_oracle

N, P, COEF = 12_000, 3, np.array([0.4, -0.3, 0.2])


def table(seed: int, loss: str = "squared", n: int = N):
    rng = np.random.default_rng(seed)
    rows = np.clip(rng.standard_normal((n, P)), -2.5, 2.5)
    scores = rows @ COEF + 0.1
    if loss == "logistic":
        return rows, (rng.random(n) < 1 / (1 + np.exp(-2 * scores))).astype(float)
    if loss == "softmax":
        return rows, np.argmax(np.stack([scores, -scores, 0 * scores], axis=1) + rng.gumbel(size=(n, 3)), axis=1)
    return rows, np.clip(scores + 0.3 * rng.standard_normal(n), -2.0, 2.0)


LOSSES = {
    "squared": dpsco.Squared(2.0),
    "logistic": dpsco.Logistic(),
    "huber": dpsco.Huber(0.5),
    "softmax": dpsco.Softmax(3),
}


def trained(seed: int, loss: str = "squared", epsilon: float = 4.0, **changes) -> dpsco.Result:
    rows, labels = table(seed, loss if loss in ("logistic", "softmax") else "squared")
    problem = dpsco.Problem(LOSSES[loss], dpsco.L2Ball(100.0), P, feature_norm=4.0, intercept=True)
    plan = dpsco.Plan(problem, N, dpsco.Budget(epsilon, 1e-6), Surveyed(rounds=6, rows=1800, **changes))
    return dpsco.train(plan, dpsco.stream(rows, labels), key=np.random.default_rng(seed + 999).bytes(32))


@cache
def one(loss: str) -> dpsco.Result:
    return trained(5, loss)


@pytest.mark.parametrize(("loss", "truth"), [("squared", [*COEF, 0.1]), ("logistic", [*(2 * COEF), 0.2])])
def test_intervals_cover_the_truth_and_are_no_wider_than_needed(loss, truth):
    runs = [trained(seed, loss) for seed in range(50)]
    ends = np.array([run.confidence_intervals() for run in runs])
    inside = (ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1])
    assert np.mean(inside) >= 0.9
    errors = np.array([np.append(run.model.coef, run.model.intercept) for run in runs]) - truth
    rows = table(1, n=5)[0]
    means = np.column_stack([rows, np.ones(5)]) @ truth
    means = 1 / (1 + np.exp(-means)) if loss == "logistic" else means
    ends = np.array([run.predict_interval(rows) for run in runs])
    assert np.mean((ends[:, :, 0] <= means) & (means <= ends[:, :, 1])) >= 0.9
    ratio = np.median([run.standard_errors() for run in runs], axis=0) / np.sqrt(np.mean(errors**2, axis=0))
    assert 0.8 < np.median(ratio) < 1.3


def test_the_response_to_each_released_mean_is_that_of_the_algorithm():
    ratio, rounds, beta = 0.6, 5, 2.0
    for step in "listed", "halved":
        answer = _averaged(np.array([ratio]), np.zeros(1), rounds, step, beta)
        for t in range(rounds):
            x = z = np.zeros(1)
            for i in range(rounds):
                prefix = 1.0 if i >= t else 0.0  # a unit error of the mean of round t stays in every later sum
                nabla = ratio * beta * x + prefix / (i + 1)
                x, y, z = update(i, x, z, nabla, beta=beta, z_step=step)
            assert answer.gains[0, t] == pytest.approx(float(y[0]), rel=1e-12)
        np.testing.assert_allclose(answer.again[0], np.outer(answer.gains[0], answer.gains[0]), rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_has_errors_in_parts_that_add_up(loss):
    result = one(loss)
    covariance = result.covariance()
    parts = sum(result.covariance(part) for part in ("sampling", "privacy", "optimisation"))
    np.testing.assert_allclose(covariance, parts)
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-12 * np.max(covariance))
    assert np.min(np.linalg.eigvalsh(covariance)) > -1e-9 * np.max(covariance)
    shape = (3, P + 1) if loss == "softmax" else (P + 1,)
    assert result.standard_errors().shape == shape
    assert np.all(result.standard_errors() > 0)
    assert result.confidence_intervals(0.9).shape == (*shape, 2)
    assert np.all(np.ptp(result.confidence_intervals(0.5), axis=-1) < np.ptp(result.confidence_intervals(), axis=-1))


def test_more_noise_widens_the_privacy_part():
    little, much = one("squared").inference, trained(5, "squared", epsilon=1.5).inference
    assert np.all(np.diag(much.privacy) > 2 * np.diag(little.privacy))


def test_the_residual_scale_is_found():
    rows = 0.85 * N
    expected = 0.3**2 / rows  # residual variance over the rows of the rounds, columns of variance about 1
    found = np.median([np.diag(trained(seed).covariance("sampling"))[:P] for seed in (5, 6, 7)], axis=0)
    assert np.all((0.6 * expected < found) & (found < 1.8 * expected))


def test_the_logistic_hessian_is_that_of_gaussian_rows():
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((400_000, P)) @ np.array([[1, 0.4, 0], [0, 1, 0.2], [0, 0, 0.7]]) + [0.3, 0, -0.2]
    x = np.array([[1.0, -0.5, 0.8]])
    form = curvature(dpsco.Logistic(), rows.T @ rows / len(rows), rows.mean(axis=0), x)
    slope = 0.25 / np.cosh(0.5 * rows @ x[0]) ** 2
    np.testing.assert_allclose(form.rows, (rows * slope[:, None]).T @ rows / len(rows), atol=2e-3)


def test_predictions_have_intervals():
    rows, _ = table(1, n=40)
    for loss in LOSSES:
        result = one(loss)
        ends = result.predict_interval(rows)
        if loss == "softmax":
            assert ends.shape == (40, 3, 2)
        else:
            scores = result.model.scores(rows)
            middle = 1 / (1 + np.exp(-scores)) if loss == "logistic" else scores
            assert np.all((ends[:, 0] < middle) & (middle < ends[:, 1]))
        assert loss not in ("logistic", "softmax") or (np.min(ends) >= 0 and np.max(ends) <= 1)
    with pytest.raises(dpsco.DataError, match="3 features"):
        one("squared").predict_interval(rows[:, :2])


def test_the_summary_is_a_table():
    text = one("logistic").summary()
    for word in ("coef", "std err", "sampling", "privacy", "optimis.", "P>|z|", "x2", "intercept", "2.5 %"):
        assert word in text
    assert "class 2" in one("softmax").summary(0.9)


def test_a_ball_that_binds_is_said():
    rows, labels = table(5)
    problem = dpsco.Problem(LOSSES["squared"], dpsco.L2Ball(0.3), P, feature_norm=4.0, intercept=True)
    plan = dpsco.Plan(problem, N, dpsco.Budget(4.0, 1e-6), Surveyed(rounds=6, rows=1800))
    result = dpsco.train(plan, dpsco.stream(rows, labels), key=bytes(32))
    assert any("ball" in note for note in result.inference.notes)
    assert "ball" in result.summary()


def test_refusals_name_their_reason():
    rows, labels = table(5)
    problem = dpsco.Problem(LOSSES["squared"], dpsco.L2Ball(100.0), P, feature_norm=4.0, intercept=True)
    plain = dpsco.plan(problem, n=N, budget=dpsco.Budget(4.0, 1e-6), survey="none")
    with pytest.raises(dpsco.IntervalError, match="survey='intervals'"):
        dpsco.train(plain, dpsco.stream(rows, labels)).summary()
    with pytest.raises(dpsco.IntervalError, match="correlations"):
        trained(5, kind="diagonal").standard_errors()
    with pytest.raises(dpsco.IntervalError, match="survey's noise is"):
        trained(5, epsilon=0.05).standard_errors()
    with pytest.raises(dpsco.InvalidArgument, match="level"):
        one("squared").confidence_intervals(1.0)
    with pytest.raises(dpsco.InvalidArgument, match="level='95'"):
        one("squared").confidence_intervals("95")
    with pytest.raises(dpsco.InvalidArgument, match="part"):
        one("squared").covariance("other")
    evidence = one("squared").evidence
    assert evidence is not None
    unfinished = dataclasses.replace(one("squared"), evidence=dataclasses.replace(evidence, complete=False))
    with pytest.raises(dpsco.IntervalError, match="not complete"):
        unfinished.standard_errors()


@pytest.mark.parametrize(
    ("sign", "value", "reason"),
    [
        ("hidden", 2.6, "survey='intervals'"),
        ("misfit", 3.0, "did not settle"),
        ("left", 2.0, "more rounds"),
        ("clip", 0.9, "of the clip"),
        ("scores", 0.7, "not quadratic"),
        ("overshoot", 0.3, "overshot"),
        ("least", 0.01, "collinear"),
        ("curved", 0.3, "a few extreme rows"),
        ("misfit", np.nan, "did not settle"),
    ],
)
def test_each_sign_is_refused_beyond_its_limit(sign, value, reason):
    good = Signs(hidden=0.1, misfit=1.0, numbers=60, left=0.0, clip=0.4, scores=0.01, distance=1.0)
    refuse(good)
    with pytest.raises(dpsco.IntervalError, match=reason):
        refuse(good._replace(**{sign: value}))


def test_a_ball_that_binds_is_the_reason_of_a_refusal():
    signs = Signs(hidden=0.1, misfit=3.0, numbers=60, left=0.0, clip=0.4, scores=0.01, distance=1.0)
    with pytest.raises(dpsco.IntervalError, match="radius=1 binds"):
        refuse(signs, radius=1.0)
    with pytest.raises(dpsco.IntervalError, match="did not settle"):
        refuse(signs, radius=2.0)


def test_rounds_that_contradict_the_survey_are_refused():
    evidence = one("squared").evidence
    assert evidence is not None
    sums = evidence.sums + 40 * np.std(evidence.sums) * np.random.default_rng(0).standard_normal(evidence.sums.shape)
    odd = dataclasses.replace(one("squared"), evidence=dataclasses.replace(evidence, sums=sums))
    with pytest.raises(dpsco.IntervalError):
        odd.standard_errors()


@pytest.mark.filterwarnings("ignore:random_state")
@pytest.mark.parametrize("latency", [True, False])
def test_a_column_that_varies_by_a_few_extreme_rows_is_noticed(latency):
    """1 % of broken sensors at the end of the range: the clip shortens these rows, and the loss is flat on them."""
    table = people(n=100_000)
    ranges = {"age": (0, 120), "clicks": (0, 1000), **({"latency": (0, 1000)} if latency else {})}
    columns = dpsco.PublicColumns(ranges=ranges, log=["clicks"], booleans=["member"])
    frame = pd.DataFrame({name: table.columns[name] for name in (*ranges, "member")})
    model = dpsco.PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, classes=["no", "yes"], columns=columns, survey="intervals", random_state=0
    )
    model.fit(frame, table.labels)
    try:
        said = "".join(model.inference_.notes)
    except dpsco.IntervalError as refused:
        said = str(refused)
    assert ("extreme rows" in said) == latency


def test_rounds_that_stopped_short_are_refused():
    rows, labels = table(5)
    problem = dpsco.Problem(dpsco.SmoothedHinge(0.1), dpsco.L2Ball(100.0), P, feature_norm=4.0, intercept=True)
    plan = dpsco.Plan(problem, N, dpsco.Budget(4.0, 1e-6), Surveyed(rounds=3, rows=1800))
    result = dpsco.train(plan, dpsco.stream(rows, (labels > 0).astype(float)), key=bytes(32))
    with pytest.raises(dpsco.IntervalError, match=r"stopped short|scatter|One round"):
        result.standard_errors()


def test_a_run_in_parts_gives_the_same_evidence(tmp_path):
    rows, labels = table(5)
    plan, key = one("squared").plan, np.random.default_rng(5 + 999).bytes(32)
    run = Run(plan, oracle=library_oracle(plan), key=key)
    run.push(rows[:7000], labels[:7000])
    assert not run.result.evidence.complete
    run.push(rows[7000:], labels[7000:])
    np.testing.assert_array_equal(run.result.standard_errors(), one("squared").standard_errors())


def test_estimators_state_errors_in_the_units_of_the_table():
    rows, labels = table(5, "logistic", 20_000)
    model = dpsco.PrivateLogisticRegression(
        epsilon=8.0, delta=1e-6, feature_norm=4.0, classes=[0, 1], survey="full", random_state=3
    )
    with pytest.warns(UserWarning, match="random_state"):
        model.fit(rows, labels)
    ends = model.confidence_intervals()
    centre = np.append(model.coef_[0], model.intercept_)
    np.testing.assert_allclose(ends.mean(axis=-1), centre, rtol=1e-9)
    assert np.mean(np.abs(centre - [*(2 * COEF), 0.2]) < 4 * model.standard_errors()) == 1
    chances, middle = model.predict_interval(rows[:20]), model.predict_proba(rows[:20])[:, 1]
    assert np.all((chances[:, 0] < middle) & (middle < chances[:, 1]))
    assert "intercept" in model.summary()
    model.penalty = 0.1
    model._learned(model._result)
    assert "ridge" in model.summary()
    again = pickle.loads(pickle.dumps(model))  # noqa: S301  our own bytes
    np.testing.assert_array_equal(again.standard_errors(), model.standard_errors())


def test_regressions_state_errors_in_the_units_of_the_table():
    rows, labels = table(5, "squared", 20_000)
    model = dpsco.PrivateLinearRegression(
        epsilon=8.0, delta=1e-6, feature_norm=4.0, label_bound=30.0, loss="squared", survey="full", random_state=3
    )
    with pytest.warns(UserWarning, match="random_state"):
        model.fit(rows, 10 * labels)
    np.testing.assert_allclose(model.confidence_intervals().mean(axis=-1), [*model.coef_, model.intercept_], rtol=1e-9)
    assert np.all(np.abs(model.coef_ - 10 * COEF) < 4.5 * model.standard_errors()[:P])
    ends, middle = model.predict_interval(rows[:20]), model.predict(rows[:20])
    np.testing.assert_allclose(ends.mean(axis=1), middle, rtol=1e-6)


def test_a_survey_for_intervals_takes_more_rows():
    problem = dpsco.Problem(LOSSES["squared"], dpsco.L2Ball(100.0), 10, feature_norm=4.0, intercept=True)
    budget = dpsco.Budget(1.0, 1e-6)
    auto, more = (dpsco.plan(problem, n=30_000, budget=budget, survey=kind).method for kind in ("auto", "intervals"))
    assert isinstance(auto, Surveyed)
    assert isinstance(more, Surveyed)
    assert auto.rows < more.rows <= 0.25 * 30_000
    assert more.kind == "full"
    with pytest.raises(dpsco.InvalidArgument, match="cheap projection"):
        dpsco.plan(
            dataclasses.replace(problem, domain=dpsco.Box(-1.0, 1.0)), n=30_000, budget=budget, survey="intervals"
        )
