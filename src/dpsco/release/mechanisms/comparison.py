"""A table of all mechanisms at one horizon, and the lower bound that no mechanism can beat.

Lower bound
    For any B C = A the max error ||B||_{2->inf} ||C||_{1->2} is at least the root mean square error, which is at
    least ||A||_* / T, the nuclear norm of the prefix matrix over T (Li et al. 2015; Henzinger, Upadhyay, Upadhyay
    2023). The singular values of A are 1 / (2 sin((2j - 1) pi / (4 T + 2))), so the bound is a closed form,
    0.701 + (ln T) / pi + o(1). The least max error of all factorisations, the norm gamma_2(A), is between that and
    0.846 + (ln T) / pi + o(1) (Kalinin, McKenna, Upadhyay, Lampert 2025).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dpsco.algorithm_1 import response
from dpsco.errors import InvalidArgument
from dpsco.query import Array
from dpsco.release.mechanisms import LARGEST_FIT, MECHANISMS, mechanism
from dpsco.release.mechanisms.buffered_workload import BufferedWorkload
from dpsco.release.mechanisms.prior import Prior, prior_for, square_root_noise
from dpsco.release.mechanisms.protocol import Mechanism

__all__ = [
    "LARGEST_TABLE",
    "Row",
    "algorithm_errors",
    "comparison",
    "excess_noise",
    "factorisation_norm",
    "lower_bound",
    "max_errors",
    "names_at",
]

LARGEST_TABLE = 4096
"""Longest horizon of the table. Its T x T matrices do not fit into memory beyond that."""


@dataclass(frozen=True)
class Row:
    """One mechanism at one horizon; errors at unit clip and mu = 1."""

    name: str
    sensitivity: float
    max_error: float
    mean_error: float
    algorithm_error_halved: float
    """RMS noise of Algorithm 1's final iterate under the default prior, halved z-step; square-root Toeplitz is 1."""
    algorithm_error_listed: float
    """The same for the listed z-step."""
    vectors: int
    """Number of p-vectors kept between rounds."""
    bytes: int | None
    """The same in bytes, if the dimension is given."""
    over_lower_bound: float
    """Max error divided by ``lower_bound(T)``."""


def comparison(horizon: int, dimension: int | None = None) -> list[Row]:
    """Return one row per mechanism that exists at ``horizon``, sorted; the best for Algorithm 1 comes last.

    Parameters
    ----------
    horizon : int
        Number of rounds T, at most ``LARGEST_TABLE``.
    dimension : int, optional
        Number of parameters p, for the memory in bytes.

    Raises
    ------
    InvalidArgument
        If ``horizon`` is too long.
    """
    if horizon > LARGEST_TABLE:
        raise InvalidArgument(
            f"Expected horizon={horizon} to be at most {LARGEST_TABLE}: the table is computed from T x T matrices. "
            "At longer horizons, read the errors of a single mechanism."
        )
    rows = []
    for name, halved, listed in _candidates(horizon):
        rows.append(
            Row(
                name=name,
                sensitivity=halved.sensitivity,
                max_error=halved.max_error,
                mean_error=halved.mean_error,
                algorithm_error_halved=_algorithm_error(halved, "halved"),
                algorithm_error_listed=_algorithm_error(listed, "listed"),
                vectors=halved.memory,
                bytes=None if dimension is None else 8 * dimension * halved.memory,
                over_lower_bound=halved.max_error / lower_bound(horizon),
            )
        )
    return sorted(rows, key=lambda row: -row.algorithm_error_halved)


def excess_noise(mechanism: Mechanism, prior: Prior, z_step: str) -> float:
    """Compute ``sum_k share_k || v(q_k)' B ||^2 sensitivity^2``.

    If the prior is a spectrum, this is the excess risk caused by noise, up to the problem's factor
    p (clip / (batch mu))^2 / (2 beta).
    """
    weights = response(prior.ratios, mechanism.horizon, z_step).gains @ mechanism.decoder()
    return float(prior.shares @ np.sum(weights**2, axis=1) * mechanism.sensitivity**2)


def lower_bound(horizon: int) -> float:
    """Compute ``||A||_* / T``: no mechanism has a smaller max or mean error."""
    angles = (2.0 * np.arange(1.0, horizon + 1.0) - 1.0) * np.pi / (4.0 * horizon + 2.0)
    return float(np.mean(0.5 / np.sin(angles)))


def factorisation_norm(horizon: int) -> tuple[float, float]:
    """Compute the known bounds on the least max error, without their o(1): 0.701 and 0.846, each plus (ln T) / pi."""
    growth = float(np.log(horizon)) / np.pi
    return 0.701 + growth, 0.846 + growth


def max_errors(names: Iterable[str], horizons: Iterable[int]) -> dict[str, Array]:
    """Return the max error per horizon for each name; NaN where the mechanism is not available."""
    horizons = list(horizons)
    return {
        name: np.array([mechanism(name, horizon=t).max_error if name in names_at(t) else np.nan for t in horizons])
        for name in names
    }


def algorithm_errors(names: Iterable[str], horizons: Iterable[int], z_step: str = "halved") -> dict[str, Array]:
    """Return the RMS noise of the final iterate per horizon, square-root Toeplitz = 1; NaN where not available."""
    horizons = list(horizons)
    return {
        name: np.array(
            [
                _algorithm_error(mechanism(name, horizon=t, z_step=z_step), z_step) if name in names_at(t) else np.nan
                for t in horizons
            ]
        )
        for name in names
    }


def names_at(horizon: int) -> list[str]:
    """List the mechanisms that are ready in seconds at ``horizon``; the dense optimum is not beyond T = 512."""
    return [name for name in MECHANISMS if name != "dense" or horizon <= LARGEST_FIT]


def _candidates(horizon: int) -> Iterable[tuple[str, Mechanism, Mechanism]]:
    """Yield (name, mechanism for the halved z-step, mechanism for the listed one)."""
    for name in names_at(horizon):
        halved, listed = (mechanism(name, horizon=horizon, z_step=z_step) for z_step in ("halved", "listed"))
        yield (name if not isinstance(halved, BufferedWorkload) else "workload, buffered"), halved, listed
    if horizon <= LARGEST_FIT:
        yield "workload, buffered", BufferedWorkload(horizon, "halved"), BufferedWorkload(horizon, "listed")


def _algorithm_error(made: Mechanism, z_step: str) -> float:
    prior = prior_for("robust", made.horizon, z_step)
    of_root = float(prior.shares @ square_root_noise(prior.ratios, made.horizon, z_step))
    return float(np.sqrt(excess_noise(made, prior, z_step) / of_root))
