"""One odd cell makes an array of numbers into one of objects; the other rows keep kernel, arithmetic and bits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dpsco.audit.recording import Transcript, observe
from dpsco.clipping import choose_oracle
from dpsco.estimators import PrivateLogisticRegression

N, P, ODD = 3000, 4, 1700


def watched(features: np.ndarray, labels: np.ndarray, frozen: Transcript | None = None) -> Transcript:
    model = PrivateLogisticRegression(
        epsilon=2.0, delta=1e-5, classes=[0, 1], feature_norm=2.0, invalid_rows="zero", random_state=3
    )
    return observe(lambda: model.fit(features, labels).coef_.tobytes(), frozen)


def test_one_text_among_float64_changes_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of length 1e151 were zero rows where they were read in place, and unit rows where they were copied."""
    monkeypatch.setattr(choose_oracle, "COMPILED_FROM", 1)
    rng = np.random.default_rng(0)
    numbers, labels = 1e151 * rng.standard_normal((N, P)), rng.integers(0, 2, N)
    numbers[ODD, 2] = np.nan
    objects = numbers.astype(object)
    objects[ODD, 2] = "?"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the fixed random_state
        one = watched(numbers, labels)
        two = watched(objects, labels, one)
    assert one.error is two.error is None
    assert len(one.sums) > 1  # a survey, and rounds in its coordinates
    for a, b in zip(one.sums, two.sums, strict=True):
        assert np.array_equal(a, b)
