"""The weighted difference of two points in a form that does not cancel.

    w_0 g_0 a_0' + w_1 g_1 a_1'  =  e a_0' + (w_1 g_1) b',      e = w_0 g_0 + w_1 g_1,    b = a_1 - a_0

for signals g (derivatives with respect to a layer's output) and activations a (the layer's input). In round t the
weights are t + 1 and -t: the two products on the left are t times longer than their difference; e and b are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

__all__ = ["difference", "differences", "pairs", "same"]

Tensor = Any

SMALLEST = 1e-140
"""Smaller entries count as 0: if their squares underflowed beside a long factor, the norm would be too small."""


def difference(weights: Sequence[float], values: Sequence[Tensor]) -> Tensor:
    """Compute sum_j w_j v_j in float64."""
    total = values[0].to(torch.float64, copy=True).mul_(weights[0])
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total.add_(value, alpha=weight)
    return total


def differences(
    weights: Sequence[float], signals: Sequence[Tensor], activations: Sequence[Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the products whose sum is the difference: (e, a_0), then (w_j g_j, a_j - a_0) for each further point.

    They are in the model's type, to which the signals are rounded anyway. The latter are omitted if the layer has the
    same input at both points, as the first layer has.
    """
    e = weights[0] * signals[0]
    for weight, signal in zip(weights[1:], signals[1:], strict=True):
        e.add_(signal, alpha=weight)
    yield e, activations[0]
    for j in range(1, len(weights)):
        if not same(activations[j], activations[0]):
            yield weights[j] * signals[j], activations[j] - activations[0]


def pairs(
    weights: Sequence[float], signals: Sequence[Tensor], activations: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the left and the right factors of ``differences`` as lists, each (rows, positions, .)."""
    u, v = (list(factors) for factors in zip(*differences(weights, signals, activations), strict=True))
    if signals[0].dtype == torch.float64:  # float64 holds the squares of narrower types
        u, v = ([torch.nn.functional.hardshrink(part, SMALLEST) for part in parts] for parts in (u, v))
    return u, v


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are views of the same memory in the same layout."""
    places = [(t.data_ptr(), t.shape, t.stride(), t.dtype) for t in (one, other)]
    return places[0] == places[1]
