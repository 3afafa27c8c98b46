"""Intervals of every estimator behind public columns: in the units of the table, around its own predictions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import dpsco

N = 30_000
COMMON = {"epsilon": 8.0, "delta": 1e-6, "survey": "intervals", "random_state": 3}
MODELS = {
    "logistic": lambda: dpsco.PrivateLogisticRegression(classes=[0, 1], **COMMON),
    "softmax": lambda: dpsco.PrivateLogisticRegression(classes=[0, 1, 2], **COMMON),
    "hinge": lambda: dpsco.PrivateLinearSVC(classes=[0, 1], **COMMON),
    "squared": lambda: dpsco.PrivateLinearRegression(label_bound=20.0, loss="squared", **COMMON),
    "huber": lambda: dpsco.PrivateLinearRegression(label_bound=20.0, loss="huber", **COMMON),
}


def table() -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.uniform(20, 80, N), "hours": rng.uniform(0, 60, N), "member": rng.integers(0, 2, N)}
    )
    scores = 0.05 * (frame["age"] - 50) - 0.03 * (frame["hours"] - 30) + 0.5 * frame["member"]
    two = (rng.random(N) < 1 / (1 + np.exp(-scores))).astype(int).to_numpy()
    three = np.argmax(np.stack([scores, -scores, 0 * scores], axis=1) + rng.gumbel(size=(N, 3)), axis=1)
    numbers = np.clip(2 * scores + 2 * rng.standard_normal(N), -20, 20).to_numpy()
    return frame, {"logistic": two, "hinge": two, "softmax": three, "squared": numbers, "huber": numbers}


@pytest.mark.parametrize("kind", MODELS)
def test_every_estimator_says_how_sure_it_is(kind):
    frame, labels = table()
    columns = dpsco.PublicColumns(ranges={"age": (20, 80), "hours": (0, 60), "member": (0, 1)})
    pipeline = make_pipeline(columns, MODELS[kind]())
    with pytest.warns(UserWarning, match="random_state"):
        pipeline.fit(frame, labels[kind])
    model, rows = pipeline[-1], pipeline[0].transform(frame[:50])
    assert "intercept" in model.summary()
    ends = model.predict_interval(rows)
    if kind == "hinge":
        middle = model.decision_function(rows)
    else:
        middle = model.predict_proba(rows) if kind in ("logistic", "softmax") else model.predict(rows)
        middle = middle[:, 1] if kind == "logistic" else middle
    assert ends.shape == (*middle.shape, 2)
    assert np.all((ends[..., 0] < middle) & (middle < ends[..., 1]))
    errors = model.standard_errors()
    assert errors.shape == ((3, 4) if kind == "softmax" else (4,))
    if kind in ("logistic", "squared", "huber"):
        truth = np.array([0.05, -0.03, 0.5]) * (1 if kind == "logistic" else 2)
        assert np.all(np.abs(model.inference_.estimate[:3] - truth) < 5 * errors[:3])
