"""The built-in losses as PyTorch modules give the same clipped sums as the NumPy and compiled oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dpsco.torch
from dpsco import Huber, LinearOracle, Logistic, SmoothedHinge, Softmax, Squared
from dpsco.clipping import CompiledOracle
from dpsco.query import Batch, Query

ROWS, WIDTH = 700, 7


def logistic(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(scores[:, 0], labels, reduction="none")


def squared(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (scores[:, 0] - labels).square() / 2


def huber(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.huber_loss(scores[:, 0], labels, reduction="none", delta=0.5)


def smoothed_hinge(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    short = torch.relu(1.0 - (2.0 * labels - 1.0) * scores[:, 0])
    inside = short.clamp(max=1.0)
    return inside * (short - inside / 2)


def softmax(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores, labels.long(), reduction="none")


LOSSES = [
    (Logistic(), logistic),
    (Squared(label_bound=1.0), squared),
    (Huber(width=0.5), huber),
    (SmoothedHinge(), smoothed_hinge),
    (Softmax(classes=3), softmax),
]


@pytest.mark.parametrize("ghost", [True, False], ids=["ghost", "vmap"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("loss", "written"), LOSSES, ids=lambda part: getattr(part, "kind", ""))
def test_numpy_numba_and_torch_agree_on_every_built_in_loss(
    loss: Any, written: Any, intercept: bool, ghost: bool
) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, WIDTH)) * np.exp(rng.normal(size=(ROWS, 1)))
    labels = rng.integers(0, loss.outputs + (loss.outputs == 1), ROWS).astype(float)
    model = nn.Linear(WIDTH, loss.outputs, bias=intercept)
    points = tuple(rng.normal(size=loss.outputs * (WIDTH + intercept)) for _ in range(2))
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        oracle = dpsco.torch.oracle(model.to(dtype), written, ghost=ghost)
        for clip in (0.4, 3.0, 1e3):
            query = Query(4, points, (5.0, -4.0), clip, ROWS)
            rows = features.astype(np.float32) if dtype == torch.float32 else features
            batch = [(rows, labels)]
            at = tuple(_moved(point, loss.outputs, intercept) for point in points)
            answer = oracle.answer(Query(4, at, (5.0, -4.0), clip, ROWS), Batch(4, batch))
            for reference in (LinearOracle(loss, intercept), CompiledOracle(loss, intercept)):
                expected = reference.answer(query, Batch(4, batch))
                moved = _moved(expected.total, loss.outputs, intercept)
                assert np.linalg.norm(answer.total - moved) <= tolerance * np.linalg.norm(moved)
                assert answer.rows == expected.rows


def _moved(x: np.ndarray, outputs: int, intercept: bool) -> np.ndarray:
    """From (class by class: weights, intercept) to the order of nn.Linear: all weights, all intercepts."""
    rows = x.reshape(outputs, -1)
    return np.concatenate([rows[:, :WIDTH].ravel(), rows[:, WIDTH:].ravel()]) if intercept else x
