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

Float64 noise is not exactly Gaussian. float_noise.py bounds what that costs and chooses a dither that keeps it small;
the cost counts as slack, a factor on that sum.

Rounds of other methods need not be alike: ``calibrate_uneven`` allows each round a clip of its own under correlated
noise, ``calibrate_round`` and ``calibrate_output`` make the noise of one round by itself, a multiple of that sum or of
a declared sensitivity. ``Uneven`` holds one ``Calibration`` a round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument
from dpsco.query import SUMMATION_SLACK
from dpsco.release.float_noise import GDP_COST, smoothing
from dpsco.release.mechanisms.protocol import Mechanism
from dpsco.release.noise import NOISE_SUPPORT

__all__ = [
    "Calibration",
    "Uneven",
    "calibrate",
    "calibrate_output",
    "calibrate_round",
    "calibrate_uneven",
    "check_support",
]

_GRID_SHARE = 2.0**-10
_SLACK_LIMIT = 0.01
_EXACT_RANGE = 2.0**53
_LEAST_CLIP = 1e-100  # over the norm of the longest gradient, 1e150, it still has all its digits
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
    """Round row by row: a row deleted (add-remove) or not sampled shifts the others, and no block may feel it."""
    window: float = 0.0
    """Width of the uniform dither, a power of two times the grid; 0 without dither (float_noise.py)."""

    def at(self, step: int) -> Calibration:
        """The calibration of round ``step``: this one, for every round."""
        return self

    def deviation(self, row: int) -> float:
        """sigma of row ``row`` of Z."""
        return self.sigma


@dataclass(frozen=True)
class Uneven:
    """A calibration for each round; many rounds may share one object."""

    rounds: tuple[Calibration, ...]

    def at(self, step: int) -> Calibration:
        """The calibration of round ``step``."""
        return self.rounds[step]

    def deviation(self, row: int) -> float:
        """sigma of row ``row`` of Z; Z has more rows than rounds only where noise is correlated, sigma one number."""
        return self.rounds[min(row, len(self.rounds) - 1)].sigma


def calibrate(budget: Budget, mechanism: Mechanism, *, clip: float, dimension: int, rows: int) -> Calibration:
    """Noise for one run: ``rows`` is the most that one round's sum may hold, ``dimension`` its length.

    Guarantee: the run is ``budget.mu_per_record``-GDP for one record under ``budget.adjacency``.
    Refuses what floating point cannot honour.
    """
    if not budget.private:
        return _silent(budget, clip)
    grid, slack, difference = _apart(budget, clip, dimension)
    sigma = _SAFE * mechanism.sensitivity * difference / budget.mu_per_record
    _check_range(rows * clip + 4 * NOISE_SUPPORT * sigma * mechanism.max_error, sigma, grid)
    pays, window = _smooth(budget, mechanism, sigma, grid, dimension)
    check_support(budget, mechanism.rows * dimension)
    return _calibration(clip, sigma, grid, difference, slack, budget.adjacency == "add-remove", window, pays)


def calibrate_uneven(
    budget: Budget, mechanism: Mechanism, *, clips: Sequence[float], dimension: int, rows: int
) -> Uneven:
    """Correlated noise for a run whose round t has the public clip ``clips[t]``.

        sigma = max over t of (column norm t of the strategy) * difference(clips[t]) / mu

    Guarantee: as ``calibrate``; one row is in one round, so it moves C D by that column times its difference.
    """
    if not budget.private:
        return Uneven(tuple(_silent(budget, clip) for clip in clips))
    apart = [_apart(budget, clip, dimension) for clip in clips]
    columns = mechanism.column_norms
    moves = (float(column) * difference for column, (_, _, difference) in zip(columns, apart, strict=True))
    sigma = _SAFE * max(moves) / budget.mu_per_record
    finest = min(grid for grid, _, _ in apart)
    _check_range(rows * max(clips) + 4 * NOISE_SUPPORT * sigma * mechanism.max_error, sigma, finest)
    pays, window = _smooth(budget, mechanism, sigma, finest, dimension)
    check_support(budget, mechanism.rows * dimension)
    rowwise = budget.adjacency == "add-remove"
    return Uneven(
        tuple(
            _calibration(clip, sigma, grid, difference, slack, rowwise, max(window, grid), pays)
            for clip, (grid, slack, difference) in zip(clips, apart, strict=True)
        )
    )


def calibrate_round(
    budget: Budget, *, clip: float, dimension: int, rows: int, multiplier: float, rounds: int, sampled: bool = False
) -> Calibration:
    """Independent noise for the sum of one round among ``rounds``: ``sigma = multiplier * difference``.

    Whoever chooses the multiplier answers for the composition: sqrt(k)/mu if a row is in k rounds, or what an
    accountant says of ``sampled`` rounds. Amplification by sampling counts on a zeroed row that is in the sample
    leaving the sum that there is without it; in a sample cut into blocks it would shift every later one, so that
    sampled rounds round row by row.
    """
    if not budget.private:
        return _silent(budget, clip)
    grid, slack, difference = _apart(budget, clip, dimension)
    sigma = _SAFE * multiplier * difference
    _check_range(rows * clip + 4 * NOISE_SUPPORT * sigma * math.sqrt(rounds), sigma, grid)
    pays, window = _smooth_alone(budget, sigma, grid, dimension, rounds)
    check_support(budget, rounds * rounds * dimension, shift=max(budget.mu, 1.0 / multiplier))
    rowwise = sampled or budget.adjacency == "add-remove"
    return _calibration(clip, sigma, grid, difference, slack, rowwise, window, pays)


def calibrate_output(
    budget: Budget, *, sensitivity: float, error: float, dimension: int, largest: float, rounds: int
) -> Calibration:
    """Noise for one output, a vector of norm up to ``largest`` that neighbours move by ``S * sensitivity`` at most.

    ``error`` bounds the distance between the computed output and the exact one, so it counts twice.
    Guarantee: the output is ``budget.mu_per_record``-GDP, where the sensitivity holds.
    """
    if not budget.private:
        return _silent(budget, sensitivity)
    grid = _grid_for(sensitivity, dimension)
    slack = _SAFE * (math.sqrt(dimension) * grid + 2 * error)
    difference = budget.clips_apart * sensitivity + slack
    sigma = _SAFE * difference / budget.mu_per_record
    _check_range(largest + 4 * NOISE_SUPPORT * sigma, sigma, grid)
    pays, window = _smooth_alone(budget, sigma, grid, dimension, rounds)
    check_support(budget, rounds * dimension)
    return _calibration(sensitivity, sigma, grid, difference, slack, False, window, pays)


def _silent(budget: Budget, clip: float) -> Calibration:
    return Calibration(clip, sigma=0.0, grid=0.0, difference=budget.clips_apart * clip, slack=0.0, rowwise=False)


def _apart(budget: Budget, clip: float, dimension: int) -> tuple[float, float, float]:
    """(grid, slack, difference) of a sum of rows clipped at ``clip``."""
    if not math.isfinite(clip):
        raise InvalidArgument(
            f"Expected a finite clip={clip} with epsilon={budget.epsilon}: without a clip one row can move the sum by "
            "any "
            "amount and no noise hides it. The Lipschitz constant of the loss is a good clip."
        )
    if not _LEAST_CLIP <= clip <= 1.0 / _LEAST_CLIP:
        raise InvalidArgument(
            f"Expected clip={clip:.3g} between {_LEAST_CLIP:g} and {1 / _LEAST_CLIP:g}: beyond, the arithmetic of "
            "float64 loses digits and a row may exceed the clip. Scale features or labels."
        )
    grid = _grid_for(clip, dimension)
    slack = _SAFE * (math.sqrt(dimension) * grid + SUMMATION_SLACK * clip)
    if slack > _SLACK_LIMIT * clip:
        raise InvalidArgument(f"Floating-point slack {slack:.3g} exceeds 1 % of clip={clip:.3g}. Use another clip.")
    return grid, slack, budget.clips_apart * clip + slack


def _smooth(budget: Budget, mechanism: Mechanism, sigma: float, grid: float, dimension: int) -> tuple[float, float]:
    """(factor that pays for what float64 takes of mu, window) of correlated noise."""
    absolute, deviation = mechanism.increment_norms
    found = smoothing(
        mu=budget.mu,
        delta=budget.delta,
        sigma=sigma,
        grid=grid,
        dimension=dimension,
        rounds=mechanism.horizon,
        sensitivity=mechanism.sensitivity,
        absolute=absolute,
        deviation=deviation,
    )
    return 1.0 / (1.0 - GDP_COST * found.loss / budget.mu), found.window


def _smooth_alone(budget: Budget, sigma: float, grid: float, dimension: int, rounds: int) -> tuple[float, float]:
    """(factor, window) of one among ``rounds`` rounds with independent noise.

    An accountant's epsilon at most doubles its share when sigma grows by a share, so 4 kappa / epsilon covers 2 kappa.
    """
    found = smoothing(
        mu=budget.mu, delta=budget.delta, sigma=sigma, grid=grid, dimension=dimension, rounds=rounds, boxes=1
    )
    share = max(GDP_COST / budget.mu, 4.0 / budget.epsilon) * found.loss
    return 1.0 + 2.0 * share, found.window


def _calibration(
    clip: float, sigma: float, grid: float, apart: float, slack: float, rowwise: bool, window: float, pays: float
) -> Calibration:
    """What float64 noise costs counts as slack: ``difference`` and sigma grow by the same factor."""
    difference = pays * apart
    return Calibration(clip, pays * sigma, grid, difference, slack + (difference - apart), rowwise, window)


def _grid_for(bound: float, dimension: int) -> float:
    return float(2.0 ** math.floor(math.log2(_GRID_SHARE * bound / math.sqrt(dimension))))


def _check_range(largest: float, sigma: float, grid: float) -> None:
    if largest > _EXACT_RANGE * grid or grid < _FINEST_GRID * sigma:
        raise InvalidArgument(
            f"Sums up to {largest:.3g} with noise of {sigma:.3g} do not fit the grid {grid:.3g} exactly (2^53 steps). "
            "Use more rounds (smaller batches), or a larger epsilon."
        )


def check_support(budget: Budget, coordinates: int, shift: float | None = None) -> None:
    """Noise of bounded support: a shift of mu standard deviations uncovers a little probability in each coordinate."""
    shift = budget.mu if shift is None else shift
    uncovered = math.sqrt(coordinates) * math.erfc((NOISE_SUPPORT - shift) / math.sqrt(2.0))
    if uncovered > budget.delta / 100:
        raise InvalidArgument(
            f"Float64 noise ends at {NOISE_SUPPORT:.0f} standard deviations, which cannot honour "
            f"delta={budget.delta:.3g} "
            f"at epsilon={budget.epsilon:.6g} (mu={budget.mu:.3g}). Use a smaller epsilon, a larger delta, or "
            "epsilon=math.inf for no privacy at all."
        )
