"""The scale of a loss that plans count on, against the population that it is said to be of."""

from __future__ import annotations

import numpy as np
import pytest

import dpsco
from dpsco.planning.spectrum_priors import loss_scale


@pytest.mark.parametrize("width", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_the_smoothed_hinge_bends_as_its_rows_do_and_not_as_its_steepest_row(width) -> None:
    """Gaussian scores, logistic labels: the chord from 0 to the optimum, and E[slope^2] / E[curvature] there."""
    loss = dpsco.SmoothedHinge(width)
    scale = loss_scale(dpsco.Problem(loss, dpsco.L2Ball(10.0), 3))
    z = np.linspace(-6, 6, 4001)
    density = np.exp(-z * z / 2) / np.sum(np.exp(-z * z / 2))
    chance = 1 / (1 + np.exp(-1.25 * z))

    def mean(part) -> float:
        """Mean of a derivative's function over rows and labels."""
        return float(density @ (chance * part(np.ones_like(z)) + (1 - chance) * part(np.zeros_like(z))))

    lengths = np.linspace(0.05, 3.0, 600)
    best = lengths[np.argmin([mean(lambda y, t=t: loss.value(t * z, y)) for t in lengths])]
    chord = -mean(lambda y: loss.slope(0.0 * z, y) * z) / best
    scatter = mean(lambda y: loss.slope(best * z, y) ** 2) / mean(lambda y: loss.curvature(best * z, y))
    assert scale.curvature == pytest.approx(chord, rel=0.15)
    assert scale.disagreement == pytest.approx(scatter, rel=0.15)
