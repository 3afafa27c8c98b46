"""Regressions on tables with little to learn: about as good as a constant, and no worse where there is something.

Means over 20 fits, mean squared error over that of the mean label (both losses, targets around 0 and far from it),
before and after shrinkage: n = 8,000 with 20 features and R^2 = 0, 0.05, 0.3, 0.7: 1.13 and 1.01, 1.08 and 1.00, 0.83
and 0.81, 0.42 and 0.42. n = 20,000 with 40 features: 1.08 and 1.00, 1.04 and 0.99, 0.78 and 0.78, 0.37 and 0.38. n =
3,000 with 10 features: 1.33 and 1.10, 1.24 and 1.04, 0.94 and 0.88, 0.65 and 0.64.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dpsco
from dpsco.inference import towards_constant

N, P = 8_000, 20
BOUND = 5.0


def table(explained: float, mean: float = 3.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0, 1, (N + 5_000, P))
    score = (rows - 0.5)[:, :3] @ [1.0, -1.0, 0.5]
    noise = rng.standard_normal(len(rows))
    targets = mean + 0.25 * (np.sqrt(explained) * score / score.std() + np.sqrt(1 - explained) * noise)
    return rows[:N], targets[:N], rows[N:], targets[N:]


def fitted(rows, targets, **arguments):
    columns = dpsco.PublicColumns(ranges={str(j): (0, 1) for j in range(P)})
    return dpsco.PrivateLinearRegression(
        **{"epsilon": 1.0, "delta": 1e-6, "label_bound": BOUND, "columns": columns, **arguments}
    ).fit(rows, targets)


def errors(model, rows, targets, constant: float) -> tuple[float, float]:
    """Squared errors over that of a constant: of the model as it was released, and of the estimator."""
    released = model._result.model
    raw = rows @ (released.coef * BOUND / model._norm) + released.intercept * BOUND
    base = np.mean((targets - constant) ** 2)
    return float(np.mean((targets - raw) ** 2) / base), float(np.mean((targets - model.predict(rows)) ** 2) / base)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_with_nothing_to_learn_a_regression_is_about_a_constant(loss) -> None:
    before, after = [], []
    for seed in range(4):
        rows, targets, new, truth = table(0.0, seed=seed)
        raw, shrunk = errors(fitted(rows, targets, loss=loss), new, truth, float(targets.mean()))
        before.append(raw)
        after.append(shrunk)
    assert np.mean(after) < 1.08  # 1.01, with a standard deviation of 0.014 per fit
    assert np.mean(after) < np.mean(before)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_with_much_to_learn_little_is_lost(loss) -> None:
    pairs = []
    for seed in range(3):
        rows, targets, new, truth = table(0.7, mean=0.0, seed=seed)
        pairs.append(errors(fitted(rows, targets, loss=loss), new, truth, float(targets.mean())))
    assert np.mean(pairs, axis=0)[1] < 0.75  # 0.47 for the squared loss, with a standard deviation of 0.11 per fit


def test_shrinkage_is_post_processing_of_released_values() -> None:
    rows, targets, *_ = table(0.3)
    model = fitted(rows, targets)
    evidence = model._result.evidence
    assert model.privacy_.mu == model._result.report.mu <= dpsco.mu_of(1.0, 1e-6)
    share, x = towards_constant(evidence)
    assert 0 <= share <= 0.9
    np.testing.assert_allclose(x[:-1] * BOUND / model._norm, model.coef_, rtol=1e-12)
    again, _ = towards_constant(evidence)
    assert again == share
    means = evidence.second.geometry.mean[:-1]
    released = evidence.second.map.parameters(evidence.final)
    np.testing.assert_allclose(means @ x[:-1] + x[-1], means @ released[:-1] + released[-1], atol=1e-9)
    assert towards_constant(dataclasses.replace(evidence, complete=False)) is None
    noisier = dataclasses.replace(evidence.second.plan.prediction, noise=1e3)
    plan = dataclasses.replace(evidence.second.plan, prediction=noisier)
    second = dataclasses.replace(evidence.second, plan=plan)
    none, constant = towards_constant(dataclasses.replace(evidence, second=second))
    assert none == 0
    np.testing.assert_allclose(constant[:-1], 0.0, atol=1e-12)


def test_intervals_and_penalties_leave_the_model_as_it_was_released() -> None:
    rows, targets, *_ = table(0.3)
    model = fitted(rows, targets, survey="intervals", epsilon=4.0)
    np.testing.assert_allclose(model.coef_, model._result.model.coef * BOUND / model._norm)
    assert model._shrinkage == ""
    assert "penalty" in fitted(rows, targets, penalty=0.01, epsilon=4.0)._shrinkage
