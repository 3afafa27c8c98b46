"""The clipped sum of a block of rows, from the terms of its parameters.

    N^2 = sum over parameters of the squared norms,    M^2 = that of the majorants
    scale = min(1, C / N, K C / M)                     K = ``cancellation_limit``, about 3e4

so a row's contribution, scale times its difference, has norm at most C. Rounding in the sums may add at most
SUMMATION_SLACK C = 9.8e-4 C to the distance between neighbours, half of it, 4.88e-4 C, per sum:

    float64 products   gamma_m times the sum of scale M over a block of 4096 rows      at most  1.22e-4 C, by K
    float32 vectors    32 rows at a time, gamma_34 times 32 C                                   0.65e-4 C
    float32 products   r rows of L products, r (r L) <= 2^11, gamma_(r L) r 2 C                 2.47e-4 C
                       four of these sums, one after the other, 2^-24 (2 + 3 + 4) r 2 C         0.49e-4 C

Float32 sums are accumulated in float64, and neighbours have the same sums in all groups of rows but one. Rows with
scale M > 2 C, whose terms cancel, are added in float64 (``apart``). K is active only if almost all digits cancel.
The path of a row depends on that row only, like everything else about it.

Guarantee: the contribution of a row is a function of that row and the query, and its norm is at most C in exact
arithmetic. A row whose norm is not finite is removed before anything is added.
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
"""Clips far enough from the range limits of float32 that under- and overflow stay harmless."""

_SINGLE_FACTOR = 2.0**75
"""Products with |v| above this many clips are added in float64; below, an underflow of scale u loses under 2^-50 C."""

_SINGLE_MAJORANT = 2.0

_SINGLE_RATIO = 1e30
"""Rows longer than this many clips count as zero in float32, where a smaller factor would lose its digits."""


def on_grid_(total: Tensor, grid: float) -> Tensor:
    """Round to the grid in place, as ``to_grid`` does: dividing and multiplying by a power of two is exact."""
    return total if grid == 0.0 else total.div_(grid).round_().mul_(grid)


def cancellation_limit(length: int) -> float:
    """Return K with gamma_m BLOCK_ROWS K <= SUMMATION_SLACK / 8, for ``length`` terms per row.

    >>> cancellation_limit(2) > 3e4
    True
    """
    additions = BLOCK_ROWS * length + 8
    return SUMMATION_SLACK / 8 / (1.01 * additions * UNIT_ROUNDOFF * BLOCK_ROWS)


def add_clipped(
    terms: Mapping[str, Term], bad: Tensor, clip: float, totals: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Add the clipped rows of ``terms`` to ``totals``; return which rows were scaled and which count as zero."""
    low, high = _SINGLE_CLIPS
    single = (
        bad.device.type == "cpu"
        and _exact_products()
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
        norms *= 1.0 + 2.0**-21  # the factor, and its products with u of norm at most 2 C, are rounded to float32
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


def _exact_products() -> bool:
    """Whether float32 products are computed in float32 for certain: no setting allows bfloat16 or TF32."""
    try:
        return bool(torch.get_float32_matmul_precision() == "highest")
    except RuntimeError:  # set by torch.backends.*.fp32_precision, for some products or all
        return False


def _is_single(term: Term) -> bool:
    """Whether its numbers are float32, and there are few enough terms per row."""
    if isinstance(term, Outer):
        return term.length <= SINGLE_GROUP and all(part.dtype == torch.float32 for part in (*term.u, *term.v))
    return isinstance(term, Dense) and term.d.dtype == torch.float32
