"""From the terms of a block of rows to its clipped sum.

    N^2 = sum over parameters of the squared norms,    M^2 = that of the majorants
    scale = min(1, C / N, K C / M)                     K = ``cancellation_limit``, about 3e4

so that a row's contribution, scale times its difference, is at most C long. What adding up may add to the distance of
neighbours is SUMMATION_SLACK C = 9.8e-4 C, half of it for each of the two sums, 4.88e-4 C:

    float64 products   gamma_m times the sum of scale M over a block of 4096 rows      at most  1.22e-4 C, by K
    float32 vectors    32 rows at a time, gamma_34 times 32 C                                   0.65e-4 C
    float32 products   r rows of L products, r (r L) <= 2^11, gamma_(r L) r 2 C                 2.47e-4 C
                       four of these sums, one by one, 2^-24 (2 + 3 + 4) r 2 C                  0.49e-4 C

Float32 sums are added up in float64, and neighbours have the same sums in all groups of rows but one. Rows whose
scale M exceeds 2 C, where terms cancel, have their products added in float64 (``apart``); K binds only where almost all
digits cancel. Which way a row takes depends on that row alone, like everything else about it.

Guarantee: the contribution of a row is a function of that row and the query, and its norm is at most C in exact
arithmetic. A row whose norm is not finite is taken out before anything is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dpsco.clipping.bound import LARGEST_NORM, clip_scale
from dpsco.clipping.torch.terms import SINGLE_GROUP, UNIT_ROUNDOFF, Dense, Outer, Term
from dpsco.query import SUMMATION_SLACK

__all__ = ["BLOCK_ROWS", "add_clipped", "cancellation_limit", "on_grid_"]

BLOCK_ROWS = 4096
"""Rows whose sum is rounded to the grid together."""

Tensor = Any

_SINGLE_CLIPS = (2.0**-50, 2.0**50)
"""Clips far enough from the ends of float32 that nothing under- or overflows where it counts."""

_SINGLE_FACTOR = 2.0**75
"""Products with a v this many clips long go apart: what is lost where scale u underflows, 2^-126 |v|, is 2^-50 C."""

_SINGLE_MAJORANT = 2.0

_SINGLE_RATIO = 1e30
"""Rows this many clips long count as zero there: a factor below it would lose its digits in float32."""


def on_grid_(total: Tensor, grid: float) -> Tensor:
    """``values.to_grid`` in place: a power of two divides and multiplies without rounding."""
    return total if grid == 0.0 else total.div_(grid).round_().mul_(grid)


def cancellation_limit(length: int) -> float:
    """K with gamma_m BLOCK_ROWS K <= SUMMATION_SLACK / 8, for ``length`` terms a row.

    >>> cancellation_limit(2) > 3e4
    True
    """
    additions = BLOCK_ROWS * length + 8
    return SUMMATION_SLACK / 8 / (1.01 * additions * UNIT_ROUNDOFF * BLOCK_ROWS)


def add_clipped(
    terms: Mapping[str, Term], bad: Tensor, clip: float, totals: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Add the clipped rows of ``terms`` to ``totals``; which rows were shortened, and which count as zero."""
    low, high = _SINGLE_CLIPS
    single = (
        bad.device.type == "cpu"
        and torch.get_float32_matmul_precision() == "highest"
        and low <= clip <= high
        and any(_is_single(term) for term in terms.values())
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
        norms *= 1.0 + 2.0**-21  # the factor and its products with u, at most 2 C long, are rounded to float32
        bad |= norms > _SINGLE_RATIO * clip
    norms[bad] = 0.0
    factors, shortened = clip_scale(norms.cpu().numpy(), clip, len(terms))
    scale = torch.from_numpy(factors).to(bad.device)
    limit = cancellation_limit(max(term.length for term in terms.values())) * clip
    scale = torch.where(majorants * scale > limit, limit / majorants, scale)
    scale[bad] = 0.0
    apart = majorants * scale > _SINGLE_MAJORANT * clip
    for term in terms.values():
        if isinstance(term, Outer):
            apart |= term.longest > _SINGLE_FACTOR * clip
    for name, term in terms.items():
        if bad.any():
            term.drop(bad)  # 0 times NaN is NaN
        term.add_sum(scale, totals[name], apart if single and _is_single(term) else None)
    return torch.from_numpy(shortened).to(bad.device) & ~bad, bad


def _is_single(term: Term) -> bool:
    """Whether its numbers are float32, and few enough to add up for a row."""
    if isinstance(term, Outer):
        return term.length <= SINGLE_GROUP and all(part.dtype == torch.float32 for part in (*term.u, *term.v))
    return isinstance(term, Dense) and term.d.dtype == torch.float32
