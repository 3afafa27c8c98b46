"""The shrunk start behind a survey: shorter ways to the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from dpsco.planning import survey_start
from dpsco.planning.survey_start import LEANINGS, Wiener


def gradient(seed: int, k: int = 12, outputs: int = 1) -> Wiener:
    rng = np.random.default_rng(seed)
    sizes = np.sort(rng.uniform(1e-4, 0.3, k))
    return Wiener(0.05 * rng.standard_normal((k, outputs)), sizes, np.full(k, 1e-5), 1e-3, 800)


@pytest.mark.parametrize("outputs", [1, 4])
def test_the_step_alone_is_that_of_all_that_is_known(outputs: int) -> None:
    made = gradient(3, outputs=outputs)
    for curvature in (0.25, 0.1, 0.25):  # nothing of one curvature stays for the next
        step, left, leaning = made.known(curvature)
        np.testing.assert_array_equal(made.step(curvature), step)
        np.testing.assert_array_equal(step, gradient(3, outputs=outputs).step(curvature))
        assert np.all(left > 0)
        assert len(leaning) == len(LEANINGS)
        assert np.sum(leaning) == pytest.approx(1.0)


@pytest.mark.parametrize("share", [0.001, 0.2, 0.5, 0.93])
def test_one_deviation_keeps_the_share_as_many_do(share: float) -> None:
    spreads = np.array([0.0, 0.3, 2.0, 5.0])
    together = survey_start._kept_share(share, spreads)
    for spread, expected in zip(spreads, together, strict=True):
        found = survey_start._kept_share(share, np.asarray(spread))
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert found @ survey_start._MASS == pytest.approx(share, rel=1e-9)
