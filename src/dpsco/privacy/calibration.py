"""How much noise: from clip, mechanism and budget to sigma, with floating point counted in.

What reaches ``release`` in one round is a sum of block sums, each rounded to a grid. Two neighbouring
data sets share every block but one, so their sums differ by at most

    S C                          S = 1 (zero-out, add-remove) or 2 (replace), C the clip, exact per row
  + sqrt(p) grid                 rounding of that block, half a grid step on either side
  + 2^-10 C                      summation of its rows in floating point: SUMMATION_SLACK, the oracles' contract

(sums of rounded blocks are exact). The noise is rounded to the same grid; since
``D + round(w) = round(D + w)`` for D on the grid, that is post-processing of the Gaussian mechanism, and
no output of it lies off the grid for either neighbour. Then

    sigma = sensitivity(mechanism) * (that sum) / mu.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsco.errors import InvalidArgument
from dpsco.mechanisms.base import Mechanism
from dpsco.privacy.budget import Budget
from dpsco.privacy.noise import NOISE_SUPPORT
from dpsco.values import SUMMATION_SLACK

__all__ = ["Calibration", "calibrate"]

_GRID_SHARE = 2.0**-10
_SLACK_LIMIT = 0.01
_EXACT_RANGE = 2.0**53
_FINEST_GRID = 2.0**-40  # of sigma: float64 normals still have thousands of values in each step of the grid
_SAFE = 1.0 + 1e-12


@dataclass(frozen=True)
class Calibration:
    """Noise of a run: all of it public."""

    clip: float
    sigma: float
    """Standard deviation of each entry of Z; 0 without noise."""
    grid: float
    """Power of two that sums and noise are rounded to; 0 without noise."""
    difference: float
    """Largest l2 distance of one round's sums on neighbouring data sets, slack included."""
    slack: float
    """The part of ``difference`` that floating point adds to S * C."""
    rowwise: bool
    """Round row by row: under add-remove a deleted row shifts the others, and no block may feel it."""


def calibrate(budget: Budget, mechanism: Mechanism, *, clip: float, dimension: int, rows: int) -> Calibration:
    """Noise for one run: ``rows`` is the most that one round's sum may hold, ``dimension`` its length.

    Guarantee: the run is ``budget.mu_per_record``-GDP for one record under ``budget.adjacency``.
    Refuses what floating point cannot honour.
    """
    if not budget.private:
        difference = budget.clips_apart * clip
        return Calibration(clip=clip, sigma=0.0, grid=0.0, difference=difference, slack=0.0, rowwise=False)
    if not math.isfinite(clip):
        raise InvalidArgument(
            f"Expected a finite clip={clip} with epsilon={budget.epsilon}: without a clip one row can move the sum by "
            "any "
            "amount and no noise hides it. The Lipschitz constant of the loss is a good clip."
        )
    mu = budget.mu_per_record
    grid = 2.0 ** math.floor(math.log2(_GRID_SHARE * clip / math.sqrt(dimension)))
    slack = _SAFE * (math.sqrt(dimension) * grid + SUMMATION_SLACK * clip)
    difference = budget.clips_apart * clip + slack
    sigma = _SAFE * mechanism.sensitivity * difference / mu
    if slack > _SLACK_LIMIT * clip:
        raise InvalidArgument(f"Floating-point slack {slack:.3g} exceeds 1 % of clip={clip:.3g}. Use another clip.")
    _check_range(rows * clip + 4 * NOISE_SUPPORT * sigma * mechanism.max_error, sigma, grid)
    _check_support(budget, mechanism.rows * dimension)
    rowwise = budget.adjacency == "add-remove"
    return Calibration(clip=clip, sigma=sigma, grid=grid, difference=difference, slack=slack, rowwise=rowwise)


def _check_range(largest: float, sigma: float, grid: float) -> None:
    if largest > _EXACT_RANGE * grid or grid < _FINEST_GRID * sigma:
        raise InvalidArgument(
            f"Sums up to {largest:.3g} with noise of {sigma:.3g} do not fit the grid {grid:.3g} exactly (2^53 steps). "
            "Use more rounds (smaller batches), or a larger epsilon."
        )


def _check_support(budget: Budget, coordinates: int) -> None:
    """Noise of bounded support: a shift of mu standard deviations uncovers a little probability in each coordinate."""
    uncovered = math.sqrt(coordinates) * math.erfc((NOISE_SUPPORT - budget.mu) / math.sqrt(2.0))
    if uncovered > budget.delta / 100:
        raise InvalidArgument(
            f"Float64 noise ends at {NOISE_SUPPORT:.0f} standard deviations, which cannot honour "
            f"delta={budget.delta:.3g} "
            f"at epsilon={budget.epsilon:.6g} (mu={budget.mu:.3g}). Use a smaller epsilon, a larger delta, or "
            "epsilon=math.inf for no privacy at all."
        )
