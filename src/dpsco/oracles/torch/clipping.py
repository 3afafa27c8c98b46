"""From the terms of a block of rows to its clipped sum.

    N^2 = sum over parameters of the squared norms,    M^2 = that of the majorants
    scale = min(1, C / N, K C / M)                     K = ``cancellation_limit``, about 6e4

so that a row's contribution, scale times its difference, is at most C long, and the error of adding up a block in
float64, at most gamma_m times the sum of scale M over its rows, is at most a quarter of the summation slack: the factor
K C / M only ever binds for a row whose terms cancel in almost all of their digits. Vectors that were formed in float32
are added in float32, 32 rows at a time, with an error of 6.5e-5 C in the only 32 rows where neighbours differ: together
less than half the slack, 4.9e-4 C.

Guarantee: the contribution of a row is a function of that row and the query, and its norm is at most C in exact
arithmetic. A row whose norm is not finite is taken out before anything is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dpsco.oracles.clipping import LARGEST_NORM, clip_scale
from dpsco.oracles.torch.terms import UNIT_ROUNDOFF, Dense, Term
from dpsco.values import SUMMATION_SLACK

__all__ = ["BLOCK_ROWS", "add_clipped", "cancellation_limit", "on_grid_"]

BLOCK_ROWS = 4096
"""Rows whose sum is rounded to the grid together."""

Tensor = Any

_SINGLE_CLIPS = (1e-25, 1e25)
"""Clips far enough from the ends of float32 that nothing under- or overflows where it counts."""

_SINGLE_RATIO = 1e30
"""Rows this many clips long count as zero there: a factor below it would lose its digits in float32."""


def on_grid_(total: Tensor, grid: float) -> Tensor:
    """``values.to_grid`` in place: a power of two divides and multiplies without rounding."""
    return total if grid == 0.0 else total.div_(grid).round_().mul_(grid)


def cancellation_limit(length: int) -> float:
    """K with gamma_m BLOCK_ROWS K <= SUMMATION_SLACK / 4, for ``length`` terms a row.

    >>> cancellation_limit(2) > 6e4
    True
    """
    additions = BLOCK_ROWS * length + 8
    return SUMMATION_SLACK / 4 / (1.01 * additions * UNIT_ROUNDOFF * BLOCK_ROWS)


def add_clipped(
    terms: Mapping[str, Term], bad: Tensor, clip: float, totals: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Add the clipped rows of ``terms`` to ``totals``; which rows were shortened, and which count as zero."""
    low, high = _SINGLE_CLIPS
    single = (
        bad.device.type == "cpu"
        and torch.get_float32_matmul_precision() == "highest"
        and low <= clip <= high
        and any(isinstance(term, Dense) and term.d.dtype == torch.float32 for term in terms.values())
    )
    squares = torch.zeros(bad.shape, dtype=torch.float64, device=bad.device)
    majorants = torch.zeros_like(squares)
    for term in terms.values():
        square, majorant = term.measure(single)
        squares += square
        majorants += majorant**2
    norms, majorants = squares.sqrt(), majorants.sqrt()
    bad = bad | ~((norms <= LARGEST_NORM) & (majorants <= LARGEST_NORM))
    if single:
        bad |= norms > _SINGLE_RATIO * clip
    norms[bad] = 0.0
    factors, shortened = clip_scale(norms.cpu().numpy(), clip, len(terms))
    scale = torch.from_numpy(factors).to(bad.device)
    limit = cancellation_limit(max(term.length for term in terms.values())) * clip
    scale = torch.where(majorants * scale > limit, limit / majorants, scale)
    scale[bad] = 0.0
    for name, term in terms.items():
        if bad.any():
            term.drop(bad)  # 0 times NaN is NaN
        term.add_sum(scale, totals[name], single)
    return torch.from_numpy(shortened).to(bad.device) & ~bad, bad
