"""Rounding between two ways to compute one merit must not leave the search without a candidate."""

from __future__ import annotations

import numpy as np

import dpsco
from dpsco.planning.second_stage import second_stage


def test_a_release_of_noise_alone_on_one_column_is_planned() -> None:
    """The bound of the best candidate may exceed its own merit by a rounding."""
    problem = dpsco.Problem(dpsco.MulticlassHinge(4), dpsco.L2Ball(radius=2000.0), dimension=1, feature_norm=0.1)
    budget = dpsco.Budget(9.5, 3.6e-7, adjacency="replace")
    plan = dpsco.plan(problem, n=877_950, budget=budget, survey="full")
    rng, sigma = np.random.default_rng(0), plan.schedule.calibration.at(0).sigma
    for _ in range(30):
        made = second_stage(plan, rng.standard_normal(plan.schedule.sum_length) * sigma)
        assert made.plan.rounds >= 1
