"""What a survey released, taken apart: means over its public number of rows, and the noise in each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpsco.clipping.survey import moment_size, unpack
from dpsco.query import Array, Moment

__all__ = ["Health", "ReleasedSurvey", "read_survey"]

_LEAST_USABLE = 1e-3


@dataclass(frozen=True)
class Health:
    """Private shares of the surveyed rows, each with noise of standard deviation ``noise``; publishable."""

    usable: float
    """Rows that were finite and had a valid label."""
    shortened: float
    """Usable rows that were longer than the feature norm."""
    classes: tuple[float, ...]
    """Usable rows of each class; empty for a regression."""
    noise: float
    squared_slope: float | None = None
    """Mean of ||s||^2 / G^2 over the usable rows, s the derivative of the loss at scores of 0 and G its bound; None for
    a classification."""

    def in_words(self) -> tuple[str, ...]:
        """Return what deserves a second look."""
        found = []
        if self.usable < 0.9 - 2 * self.noise:
            found.append(
                f"about {max(self.usable, 0.0):.0%} of the rows were usable (finite, with a label among the declared "
                "ones): check the classes, the label column and missing values"
            )
        if self.shortened > 0.1 + 2 * self.noise:
            found.append(
                f"about {self.shortened:.0%} of the rows were longer than the declared feature norm and were "
                "shortened: check the declared ranges"
            )
        for label, share in enumerate(self.classes):
            if share < 0.002 and self.noise < 0.01:
                found.append(f"class {label} is nearly absent: check the classes")
        return tuple(found)


@dataclass(frozen=True, eq=False)
class ReleasedSurvey:
    """A released survey as means over its rows, in units of the feature norm; private and publishable."""

    kind: str
    moment: Array
    """(p, p) for "full"; for "diagonal" the (2, p) diagonal and column of the constant; for "low-rank" (p, l)."""
    gradient: Array
    """(p, K): mean gradient at zero."""
    health: Health
    rows: int
    constant: float
    """The intercept's column; 0 without one."""
    moment_noise: float
    """Standard deviation of a packed moment entry."""
    gradient_noise: float
    energy: float = 0.0
    """Mean ||a||^2, where a low-rank survey asks for it."""


def read_survey(value: Array, moment: Moment, *, columns: int, rows: int, sigma: float) -> ReleasedSurvey:
    """Divide the released sum by the public number of rows, and take it apart. Post-processing.

    Parameters
    ----------
    value : array
        As released.
    moment : Moment
        What was asked.
    columns : int
        p, the intercept's column included.
    rows : int
        n_0.
    sigma : float
        Standard deviation of the noise in the sum.
    """
    p = columns
    square = 1 + moment.constant**2
    omega = moment.gradient * math.sqrt(square) / moment.slope
    sizes = np.cumsum([moment_size(moment.kind, p), p * moment.outputs])
    packed, gradient, health = (part / rows for part in np.split(np.asarray(value, dtype=np.float64), sizes))
    if moment.kind == "full":
        second = unpack(packed, p)
    elif moment.kind == "low-rank":
        second = packed[:-1].reshape(p, -1)
    else:
        second = np.stack([packed[:p], np.append(packed[p:] / math.sqrt(2.0), packed[p - 1])])
    shares = health / (moment.health * square)
    of_usable = np.clip(shares[1:] / max(float(shares[0]), _LEAST_USABLE), 0.0, 1.0)
    return ReleasedSurvey(
        kind=moment.kind,
        moment=second,
        gradient=gradient.reshape(moment.outputs, p).T / omega,
        health=Health(
            usable=float(np.clip(shares[0], 0.0, 1.0)),
            shortened=float(of_usable[0]),
            classes=tuple(of_usable[1:].tolist()) if moment.classes else (),
            noise=sigma / (moment.health * square * rows),
            squared_slope=None if moment.classes else float(of_usable[1]),
        ),
        energy=float(packed[-1]) / moment.health if moment.kind == "low-rank" else 0.0,
        rows=rows,
        constant=moment.constant,
        moment_noise=sigma / rows,
        gradient_noise=sigma / (omega * rows),
    )
