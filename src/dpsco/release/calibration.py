"""Calibration: from clip, mechanism and budget to sigma, including floating-point error.

One round's sum, as ``release`` receives it, is a sum of block sums, each rounded to a grid. Two neighbouring data sets
share every block but one, so their sums differ by at most

    S C                          S = 1 (zero-out, add-remove) or 2 (replace), C the clip, exact per row
  + sqrt(p) grid                 rounding of that block, half a grid step in each data set
  + 2^-10 C                      floating-point summation of its rows: SUMMATION_SLACK, the oracles' contract

(sums of rounded blocks are exact). The noise is rounded to the same grid. Because ``D + round(w) = round(D + w)`` for
D on the grid, this is post-processing of the Gaussian mechanism, and its output is on the grid for either neighbour.
Then

    sigma = sensitivity(mechanism) * (that sum) / mu.

Float64 noise is not exactly Gaussian. float_noise.py bounds the privacy cost and chooses a dither that keeps it small.
The cost counts as slack, a factor on that sum. Where the bound does not hold, with probability e^``log_float_loss``, a
part of delta pays that mu does not use: ``Budget.mu`` is that of (epsilon, delta (1 - 2^-30)).

Other methods have rounds that differ: ``calibrate_uneven`` gives each round its own clip under correlated noise.
``calibrate_round`` and ``calibrate_output`` calibrate the noise of a single round to a multiple of that sum or to a
declared sensitivity, ``calibrate_residual`` to the error of a solver. ``Uneven`` holds one ``Calibration`` per round.
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
    "calibrate_residual",
    "calibrate_round",
    "calibrate_survey",
    "calibrate_uneven",
    "check_support",
]

_GRID_SHARE = 2.0**-10
_SLACK_LIMIT = 0.01
_EXACT_RANGE = 2.0**53
_LEAST_CLIP = 1e-100  # divided by the longest gradient, of norm 1e150, it still has all its digits
_FINEST_GRID = 2.0**-40  # of sigma: each step of the grid still contains thousands of float64 normals
_SAFE = 1.0 + 1e-12


@dataclass(frozen=True)
class Calibration:
    """The noise of a run. All of it is public."""

    clip: float
    sigma: float
    """Standard deviation of each entry of Z; 0 without noise."""
    grid: float
    """Power of two to which sums and noise are rounded; 0 without noise."""
    difference: float
    """Largest l2 distance between one round's sums on neighbouring data sets, including ``slack``."""
    slack: float
    """The part of ``difference`` that floating point adds to S * C."""
    rowwise: bool
    """Whether to round each row by itself: a deleted or unsampled row shifts the others between blocks."""
    window: float = 0.0
    """Width of the uniform dither, a power of two times the grid; 0 without dither (float_noise.py)."""

    def at(self, step: int) -> Calibration:
        """Return the calibration of round ``step``: this one."""
        return self

    def deviation(self, row: int) -> float:
        """Return sigma of row ``row`` of Z."""
        return self.sigma


@dataclass(frozen=True)
class Uneven:
    """One calibration per round; many rounds may share one object."""

    rounds: tuple[Calibration, ...]

    def at(self, step: int) -> Calibration:
        """Return the calibration of round ``step``."""
        return self.rounds[step]

    def deviation(self, row: int) -> float:
        """Return sigma of row ``row`` of Z. Z has more rows than rounds only under correlated noise, with one sigma."""
        return self.rounds[min(row, len(self.rounds) - 1)].sigma


def calibrate(budget: Budget, mechanism: Mechanism, *, clip: float, dimension: int, rows: int) -> Calibration:
    """Calibrate the noise of one run.

    Parameters
    ----------
    budget : Budget
        The guarantee.
    mechanism : Mechanism
        The noise of a run.
    clip : float
        Bound on the norm of a row's contribution.
    dimension : int
        Length p of the sums.
    rows : int
        Largest number of rows in one round's sum.

    Returns
    -------
    Calibration

    Raises
    ------
    InvalidArgument
        If floating point cannot give the guarantee: clip not finite or extreme, sums too large for the grid, or delta
        too small for the noise.

    Guarantee
    ---------
    The run is ``budget.mu_per_record``-GDP for one record under ``budget.adjacency``.
    """
    if not budget.private:
        return _without_noise(budget, clip)
    grid, slack, difference = _apart(budget, clip, dimension)
    sigma = _SAFE * mechanism.sensitivity * difference / budget.mu_per_record
    _check_range(rows * clip + 4 * NOISE_SUPPORT * sigma * mechanism.max_error, sigma, grid)
    pays, window = _smooth(budget, mechanism, sigma, grid, dimension)
    check_support(budget, mechanism.rows * dimension)
    return _calibration(clip, sigma, grid, difference, slack, budget.adjacency == "add-remove", window, pays)


def calibrate_uneven(
    budget: Budget, mechanism: Mechanism, *, clips: Sequence[float], dimension: int, rows: int
) -> Uneven:
    """Calibrate correlated noise for a run whose round t has the public clip ``clips[t]``.

        sigma = max over t of (column norm t of the strategy) * difference(clips[t]) / mu

    Guarantee: as for ``calibrate``. One row is in one round, so it moves C D by that column times its difference.
    """
    if not budget.private:
        return Uneven(tuple(_without_noise(budget, clip) for clip in clips))
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
    """Calibrate independent noise for the sum of one round among ``rounds``: ``sigma = multiplier * difference``.

    The caller chooses the multiplier and is responsible for the composition: sqrt(k)/mu if a row is in k rounds, or
    the result of an accountant for ``sampled`` rounds. Amplification by sampling requires that a sampled zero row does
    not change the sum. In blocks it would shift every later row, so sampled rounds are rounded row by row.
    """
    if not budget.private:
        return _without_noise(budget, clip)
    grid, slack, difference = _apart(budget, clip, dimension)
    sigma = _SAFE * multiplier * difference
    _check_range(rows * clip + 4 * NOISE_SUPPORT * sigma * math.sqrt(rounds), sigma, grid)
    pays, window = _smooth_alone(budget, sigma, grid, dimension, rounds)
    check_support(budget, rounds * dimension)
    rowwise = sampled or budget.adjacency == "add-remove"
    return _calibration(clip, sigma, grid, difference, slack, rowwise, window, pays)


def calibrate_output(
    budget: Budget, *, sensitivity: float, error: float, dimension: int, largest: float, rounds: int
) -> Calibration:
    """Calibrate noise for one output, a vector of norm up to ``largest``.

    Neighbours change it by at most ``S * sensitivity``. ``error`` bounds the distance between the computed output and
    the exact one, so it counts twice.

    Guarantee: the output is ``budget.mu_per_record``-GDP, provided that the sensitivity holds.
    """
    if not budget.private:
        return _without_noise(budget, sensitivity)
    grid = _grid_for(sensitivity, dimension)
    slack = _SAFE * (math.sqrt(dimension) * grid + 2 * error)
    difference = budget.clips_apart * sensitivity + slack
    sigma = _SAFE * difference / budget.mu_per_record
    _check_range(largest + 4 * NOISE_SUPPORT * sigma, sigma, grid)
    pays, window = _smooth_alone(budget, sigma, grid, dimension, rounds)
    check_support(budget, rounds * dimension)
    return _calibration(sensitivity, sigma, grid, difference, slack, False, window, pays)


def calibrate_residual(
    budget: Budget, *, clip: float, error: float, mu: float, dimension: int, largest: float
) -> Calibration:
    """Calibrate noise that hides how far one output, of norm up to ``largest``, is from an exact one.

    The exact one is private by itself (accounting/objective.py), and the computed one within ``error`` of it. ``clip``
    is the bound on a row's gradient, for the report.

    Guarantee: given the exact output, the release is ``mu``-GDP for any rows.
    """
    if not budget.private:
        return _without_noise(budget, clip)
    grid = _grid_for(2 * error, dimension)
    difference = _SAFE * (math.sqrt(dimension) * grid + 2 * error)
    sigma = _SAFE * difference / mu
    _check_range(largest + 4 * NOISE_SUPPORT * sigma, sigma, grid)
    loss = budget.log_float_loss
    found = smoothing(mu=mu, log_loss=loss, sigma=sigma, grid=grid, dimension=dimension, rounds=1)
    check_support(budget, 2 * dimension, shifted=False)  # of this noise, and of that in the objective
    pays = 1.0 + 2.0 * GDP_COST * found.loss / mu
    return _calibration(clip, sigma, grid, difference, difference, False, found.window, pays)


def calibrate_survey(budget: Budget, *, clip: float, apart: float, dimension: int, rows: int) -> Calibration:
    """Noise for the one sum of a survey: contributions of norm up to ``clip``, two of them at most ``apart`` apart.

        sigma = (clip or, under replace-one, apart; plus slack) / mu

    Guarantee: the survey is ``budget.mu_per_record``-GDP for its rows, where the two bounds hold (clipping/survey.py).
    """
    if not budget.private:
        return _without_noise(budget, clip)
    grid, slack, _ = _apart(budget, clip, dimension)
    difference = _SAFE * (apart if budget.adjacency == "replace" else clip) + slack
    sigma = _SAFE * difference / budget.mu_per_record
    _check_range(rows * clip + 4 * NOISE_SUPPORT * sigma, sigma, grid)
    pays, window = _smooth_alone(budget, sigma, grid, dimension, 1)
    check_support(budget, dimension)
    return _calibration(clip, sigma, grid, difference, slack, budget.adjacency == "add-remove", window, pays)


def _without_noise(budget: Budget, clip: float) -> Calibration:
    return Calibration(clip, sigma=0.0, grid=0.0, difference=budget.clips_apart * clip, slack=0.0, rowwise=False)


def _apart(budget: Budget, clip: float, dimension: int) -> tuple[float, float, float]:
    """Compute (grid, slack, difference) of a sum of rows clipped at ``clip``."""
    if not math.isfinite(clip):
        raise InvalidArgument(
            f"Expected a finite clip={clip} with epsilon={budget.epsilon}: without a clip one row can move the sum by "
            "any amount, and no noise hides that. The Lipschitz constant of the loss is a good clip."
        )
    if not _LEAST_CLIP <= clip <= 1.0 / _LEAST_CLIP:
        raise InvalidArgument(
            f"Expected clip={clip:.3g} between {_LEAST_CLIP:g} and {1 / _LEAST_CLIP:g}: outside this range float64 "
            "loses digits, and a row may exceed the clip. Scale features or labels."
        )
    grid = _grid_for(clip, dimension)
    slack = _SAFE * (math.sqrt(dimension) * grid + SUMMATION_SLACK * clip)
    if slack > _SLACK_LIMIT * clip:
        raise InvalidArgument(f"Floating-point slack {slack:.3g} exceeds 1 % of clip={clip:.3g}. Use another clip.")
    return grid, slack, budget.clips_apart * clip + slack


def _smooth(budget: Budget, mechanism: Mechanism, sigma: float, grid: float, dimension: int) -> tuple[float, float]:
    """Compute (factor on sigma that covers the cost of float64 noise, window) for correlated noise."""
    found = smoothing(
        mu=budget.mu_per_record,
        log_loss=budget.log_float_loss,
        sigma=sigma,
        grid=grid,
        dimension=dimension,
        rounds=mechanism.horizon,
        sensitivity=mechanism.sensitivity,
        increments=mechanism.increments,
    )
    return 1.0 / (1.0 - GDP_COST * found.loss / budget.mu_per_record), found.window


def _smooth_alone(budget: Budget, sigma: float, grid: float, dimension: int, rounds: int) -> tuple[float, float]:
    """Compute (factor, window) of one among ``rounds`` rounds with independent noise.

    Under an accountant P is (epsilon' + 2 kappa, delta)-DP if the exact rounds are (epsilon', delta)-DP. Noise that is
    larger by 8 kappa / epsilon pays for it if epsilon' falls by at least a quarter of the share by which the noise
    grows. Without sampling it falls by more than that share; with sampling a test checks it, no proof does.
    """
    found = smoothing(
        mu=budget.mu_per_record,
        log_loss=budget.log_float_loss,
        sigma=sigma,
        grid=grid,
        dimension=dimension,
        rounds=rounds,
        boxes=1,
    )
    share = max(GDP_COST / budget.mu_per_record, 4.0 / budget.epsilon) * found.loss
    return 1.0 + 2.0 * share, found.window


def _calibration(
    clip: float, sigma: float, grid: float, apart: float, slack: float, rowwise: bool, window: float, pays: float
) -> Calibration:
    """Count the cost of float64 noise as slack: ``difference`` and sigma grow by the same factor."""
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


def check_support(budget: Budget, draws: int, *, shifted: bool = True) -> None:
    """Raise InvalidArgument if noise of bounded support cannot give ``budget.delta``.

    Of ``draws`` normals, one is beyond the support with probability b. That changes either neighbour's law by b, so
    delta by at most (1 + e^epsilon) b. Or count directly what a shift of mu, spread over the draws, moves beyond the
    support, where neighbours differ by a shift. The smaller of the two must be at most half of what
    ``budget.log_float_loss`` allows.
    """
    beyond = draws * math.erfc(NOISE_SUPPORT / math.sqrt(2.0))
    moved = math.sqrt(draws) * math.erfc((NOISE_SUPPORT - budget.mu) / math.sqrt(2.0))
    both = math.log1p(math.exp(-budget.epsilon)) + budget.epsilon  # log(1 + e^epsilon)
    counted = math.log(2.0 * beyond + moved) if shifted else math.inf
    if min(math.log(beyond) + both, counted) > budget.log_float_loss + both - math.log(2.0):
        raise InvalidArgument(
            f"Float64 noise ends at {NOISE_SUPPORT:g} standard deviations, which is too few for "
            f"delta={budget.delta:.3g} at epsilon={budget.epsilon:.6g} (mu={budget.mu:.3g}). Use a smaller epsilon, a "
            "larger delta, or epsilon=math.inf for no privacy at all."
        )
