"""What an objective behind a survey counts on: the lengths of mapped rows, and how well they are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.planning.test_second_stage import RELEASES

import dpsco
from dpsco.methods import SurveyedObjective
from dpsco.planning.geometry import Geometry, clean_spectrum, metric
from dpsco.planning.objective_in_geometry import METRICS, _energy, _most
from dpsco.planning.second_stage import second_stage
from dpsco.planning.survey_start import Start
from dpsco.planning.survey_worlds import assumed_worlds
from dpsco.query import Array

P, CONSTANT = 11, 0.5


def moment_of(decay: float) -> Array:
    """Second moment of rows of mean square 0.8 whose columns fade, beside a constant."""
    sizes = np.arange(1.0, P) ** (-2 * decay)
    return np.diag(np.append(0.8 * sizes / np.sum(sizes), CONSTANT**2))


def surveyed(moment: Array, noise: float, rng: np.random.Generator) -> Geometry:
    draw = noise * rng.standard_normal(moment.shape)
    upper = np.triu(draw, 1) / math.sqrt(2.0)
    observed, directions = np.linalg.eigh(moment + upper + upper.T + np.diag(np.diag(draw)))
    radius, mean = noise * math.sqrt(2 * P), np.append(np.zeros(P - 1), CONSTANT)
    return Geometry(np.ones(P), directions, clean_spectrum(observed, radius / 2), 0.0, observed, noise, radius, mean)


@pytest.mark.parametrize("constant", [0.0, CONSTANT])
@pytest.mark.parametrize("ridge", METRICS)
def test_no_row_is_longer_than_the_longest_that_is_counted_on(ridge, constant) -> None:
    """Rows of norm 1 in every direction and along the steepest; the bound is within a tenth of the longest."""
    rng = np.random.default_rng(0)
    form = metric(shape := surveyed(moment_of(0.5), 0.01, rng), ridge)
    rows = rng.standard_normal((20_000, P))
    steepest = np.linalg.svd(form.matrix[:, :-1])[2][0]
    rows[:2, :-1] = steepest, -steepest
    if constant:
        rows[:, :-1] /= np.linalg.norm(rows[:, :-1], axis=1)[:, None]
        rows[:, -1] = constant
    else:
        rows[:2, -1] = 0.0
        rows /= np.linalg.norm(rows, axis=1)[:, None]
    longest = float(np.max(np.linalg.norm(rows @ form.matrix.T, axis=1)))
    assert longest <= _most(shape, form, constant) <= 1.1 * longest


@pytest.mark.parametrize(("decay", "noise"), [(1.0, 0.0166), (0.5, 0.0166), (0.5, 0.005), (0.0, 0.0166)])
def test_the_mean_length_of_mapped_rows_is_known_as_well_as_the_worlds_say(decay, noise) -> None:
    """N = 100 surveys: the error of log E ||P a||^2 over the deviation that is counted on is about standard normal."""
    rng, moment = np.random.default_rng(0), moment_of(decay)
    known = {"curvature": 1.0, "base_curvature": 1.0, "steepest": 1.0, "gap": 0.25}
    start = Start(x=np.zeros(P), **known, moved=np.zeros(P), left=np.full(P, 0.1), gradient_variance=np.full(P, 1e-4))
    errors = []
    for _ in range(100):
        shape = surveyed(moment, noise, rng)
        worlds = assumed_worlds(shape, start, survey_rows=800, ridges=METRICS)
        forms = [metric(shape, ridge) for ridge in worlds.ridges]
        true = np.array([np.trace(form.matrix @ moment @ form.matrix.T) for form in forms])
        lifted = np.array([_energy(shape, form, True) for form in forms])
        expected = np.log(worlds.true_energy / worlds.lifted_energy)
        errors.append((np.log(true / lifted) - expected) / worlds.energy_doubt)
    assert np.all(np.abs(np.mean(errors, axis=0)) < 0.7)
    assert np.all(np.abs(np.std(errors, axis=0) - 0.85) < 0.35)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", ["full", "diagonal"])
@pytest.mark.parametrize(
    "loss", [dpsco.Logistic(), dpsco.Softmax(3), dpsco.Squared(2.0), dpsco.Huber(0.5)], ids=lambda loss: loss.kind
)
def test_a_spent_survey_is_never_followed_by_a_refusal(loss, kind, release) -> None:
    for intercept in (True, False):
        problem = dpsco.Problem(loss, dpsco.L2Ball(5.0), 2, feature_norm=2.0, intercept=intercept)
        plan = dpsco.Plan(problem, 900, dpsco.Budget(0.5, 1e-5), SurveyedObjective(rows=100, kind=kind))
        schedule = plan.schedule
        second = second_stage(plan, RELEASES[release](schedule.sum_length, schedule.calibration.at(0).sigma))
        assert second.plan.method.name == "objective-perturbation"
        assert np.all(np.isfinite(second.start))
        assert second.plan.budget == plan.budget
        assert 0 < second.plan.problem.feature_norm < math.inf
