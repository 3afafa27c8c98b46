"""Do two coordinates share noise? Their difference would leave without any.

Whitened noise is i.i.d. N(0, 1). For two coordinates i, j of N numbers each, over rounds and runs, the squared cosine

    r_ij^2 = <u_i, u_j>^2 / (|u_i|^2 |u_j|^2)      has the law Beta(1/2, (N - 1) / 2), exactly.

Up to ``WIDEST`` coordinates all pairs are compared. Of more, all distances L at once: the sum over j of <u_j, u_(j+L)>,
N (p - L) products of mean 0 and variance 1, which is normal for so many; a stretch of noise that is used twice shows at
the distance of the two. Pairs without a common distance are not found then.
Cost: N p^2 operations up to ``WIDEST``, then N p log p.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsco.query import Array

__all__ = ["shared_noise"]

WIDEST = 1024
_LEAST = 512
"""Products in the sum of one distance, at least."""


def shared_noise(white: Sequence[Array], alpha: float) -> str | None:
    """Return what two coordinates share, in words; None if nothing is found at ``alpha``.

    ``white`` holds the whitened noise of each run, of shape (rounds, coordinates), the same coordinates in each.
    """
    u = np.concatenate(white, axis=0)
    numbers, width = u.shape
    if width < 2:
        return None
    return _in_pairs(u, alpha) if width <= WIDEST else _at_distances(u, alpha) if numbers else None


def _in_pairs(u: Array, alpha: float) -> str | None:
    from scipy.stats import beta

    numbers, width = u.shape
    if numbers < 2:
        return None
    lines = u / np.maximum(np.linalg.norm(u, axis=0), np.finfo(np.float64).tiny)
    cosines = np.triu(np.abs(lines.T @ lines), 1)
    i, j = np.unravel_index(int(np.argmax(cosines)), cosines.shape)
    largest = min(1.0, float(cosines[i, j]))
    if largest**2 <= float(beta.isf(alpha / (width * (width - 1) / 2), 0.5, (numbers - 1) / 2)):
        return None
    return f"the noise of coordinates {i} and {j} has correlation {largest:.3f}: noise is shared between coordinates."


def _at_distances(u: Array, alpha: float) -> str | None:
    from scipy.special import ndtri

    numbers, width = u.shape
    size = 1 << (2 * width - 1).bit_length()
    power = sum(np.abs(np.fft.rfft(line, size)) ** 2 for line in u)
    sums = np.fft.irfft(power, size)[:width]
    distances = np.arange(1, width)
    products = numbers * (width - distances)
    distances = distances[products >= _LEAST]
    found = np.abs(sums[distances]) / np.sqrt(numbers * (width - distances))
    at = int(np.argmax(found))
    if float(found[at]) <= -float(ndtri(alpha / (2 * len(distances)))) * 1.05:
        return None
    share = float(sums[distances[at]]) / (numbers * (width - int(distances[at])))
    return (
        f"the noise of coordinates {distances[at]:,} apart has correlation {share:.3f} in the mean: noise is shared "
        "between coordinates."
    )
