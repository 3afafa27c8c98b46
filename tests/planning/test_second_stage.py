"""The plan behind a released survey: every release gives one, within the rounds that were promised."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import dpsco
from dpsco.methods import Surveyed
from dpsco.planning.second_stage import second_stage

LOSSES = (
    dpsco.Logistic(),
    dpsco.Softmax(3),
    dpsco.Squared(2.0),
    dpsco.Huber(0.5),
    dpsco.SmoothedHinge(0.5),
    dpsco.MulticlassHinge(3),
)
RELEASES = {
    "nothing": lambda length, sigma: np.zeros(length),
    "tiny": lambda length, sigma: np.full(length, 1e-300),
    "noise": lambda length, sigma: sigma * np.random.default_rng(0).standard_normal(length),
    "negative": lambda length, sigma: -1e3 * np.abs(np.random.default_rng(1).standard_normal(length)),
    "beyond all rows": lambda length, sigma: 1e12 * np.random.default_rng(2).standard_normal(length),
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", ["full", "diagonal"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_a_spent_survey_is_never_followed_by_a_refusal(loss, kind, release) -> None:
    for intercept, domain in ((True, dpsco.L2Ball(5.0)), (False, dpsco.Everything())):
        problem = dpsco.Problem(loss, domain, 2, feature_norm=2.0, intercept=intercept)
        plan = dpsco.Plan(problem, 900, dpsco.Budget(0.5, 1e-5), Surveyed(rounds=3, rows=100, kind=kind))
        schedule = plan.schedule
        value = RELEASES[release](schedule.sum_length, schedule.calibration.at(0).sigma)
        second = second_stage(plan, value)
        assert np.all(np.isfinite(second.start))
        assert second.plan.rounds <= 2
        assert second.plan.schedule.rows + 100 <= 900
        assert second.plan.budget == plan.budget
        assert math.isfinite(second.plan.predicted_excess)


def test_under_add_remove_every_round_has_room_for_all_rows() -> None:
    """Which round a row is in is secret then: all n may be in the survey, or in one round behind it."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 2)
    method, by_id = Surveyed(rounds=3, rows=100), dpsco.Budget(0.5, 1e-5, "add-remove")
    far = 10**13
    dpsco.Plan(problem, far, dpsco.Budget(0.5, 1e-5), method)
    with pytest.raises(dpsco.InvalidArgument, match="do not fit the grid"):
        dpsco.Plan(problem, far, by_id, method)
    plan = dpsco.Plan(problem, 900, by_id, method)
    length, sigma = plan.schedule.sum_length, plan.schedule.calibration.at(0).sigma
    for release in RELEASES.values():
        later = second_stage(plan, release(length, sigma)).plan
        assert later.schedule.n == 900  # what fresh_schedule calibrates for
        assert later.schedule.rows + 100 <= 900
        same = dataclasses.replace(later, n=800)
        assert later.schedule.calibration == same.schedule.calibration
        assert later.schedule.settings == same.schedule.settings
