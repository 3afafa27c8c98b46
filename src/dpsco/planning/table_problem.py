"""What estimators and commands decide alike for tables: the ball of models and delta."""

from __future__ import annotations

import math

from dpsco.problem import L2Ball, Loss

__all__ = ["default_delta", "model_ball"]


def default_delta(n: int) -> float:
    """min(1e-5, n^-1.1): a function of the public n alone, safely below one row in n."""
    return min(1e-5, float(n) ** -1.1)


def model_ball(radius: float, loss: Loss) -> L2Ball:
    """The ball of models: ``radius``, and radius sqrt(K / 2) for K > 2 classes together."""
    return L2Ball(radius if loss.outputs == 1 else radius * math.sqrt(loss.outputs / 2))
