"""The section of a run's page about its survey."""

from __future__ import annotations

import numpy as np
import pytest

import dpsco
from dpsco.methods import Surveyed
from dpsco.pages import Subject, write_run_page
from dpsco.pages.survey_section import correlations, survey_section

RNG = np.random.default_rng(5)
ROWS = RNG.standard_normal((20_000, 4)) * [1.0, 0.5, 1.0, 1e-4]
ROWS[:, 2] = 0.9 * ROWS[:, 0] + 0.436 * ROWS[:, 2]
LABELS = (ROWS[:, 0] + RNG.logistic(size=len(ROWS)) > 0).astype(float)
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(50.0), 4, feature_norm=4.0, intercept=True)


@pytest.fixture(scope="module")
def result():
    plan = dpsco.Plan(PROBLEM, len(ROWS), dpsco.Budget(4.0, 1e-6), Surveyed(rounds=4, rows=5_000))
    return dpsco.train(plan, dpsco.stream(ROWS, LABELS), key=bytes(32))


def test_sizes_and_correlations_are_those_of_the_rows(result) -> None:
    variance, matrix, shown = correlations(result.geometry, 4)
    assert shown.tolist() == [True, True, True, False]
    np.testing.assert_allclose(4.0 * np.sqrt(variance[:3]), np.std(ROWS[:, :3], axis=0), rtol=0.1)
    assert matrix[0, 2] == pytest.approx(np.corrcoef(ROWS.T)[0, 2], abs=0.1)
    assert abs(matrix[0, 1]) < 0.1


def test_the_page_names_columns_and_the_noise_of_both_stages(result, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    names = ["age", "income", "debt", "pixel"]
    text = write_run_page(result, tmp_path / "page.html", subject=Subject(features=names)).read_text()
    for words in (*names, "What the survey saw: private, may be published", "hidden by the noise", "correlation"):
        assert words in text
    assert f"{result.plan.schedule.most_noise.sigma:.4g}" in text
    assert f"{result.report.noise_std:.4g}" in text


def test_a_run_without_a_survey_has_no_such_section() -> None:
    plan = dpsco.plan(PROBLEM, n=2_000, budget=dpsco.Budget(4.0, 1e-6), rounds=2, survey="none")
    assert survey_section(dpsco.train(plan, dpsco.stream(ROWS[:2_000], LABELS[:2_000])), []) == {}
