"""The headline on the reference problem, at sixteen rounds. `python -m benchmarks reference` prints it."""

from __future__ import annotations

import numpy as np
from benchmarks.reference import excess_by_mechanism


def test_sixteen_rounds_reach_1_2_percent_of_the_initial_excess() -> None:
    """Mean of 5 keys, fixed, so the test cannot fail by chance: T = 16, C = 1, listed z-step, sqrt mechanism."""
    start, excess = excess_by_mechanism(("sqrt", "tree"), keys=5)
    assert np.mean(excess["sqrt"]) <= 0.012 * start
    assert np.mean(excess["sqrt"]) < np.mean(excess["tree"])
