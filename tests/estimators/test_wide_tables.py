"""Estimators on sparse tables of very many columns: a diagonal survey by default where it pays, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.run.test_wide_survey import words

import dpsco
from dpsco.clipping.diagonal_map import DiagonalMap
from dpsco.methods import Surveyed

N, WIDTH = 12_000, 100_000
OPTIONS = {"epsilon": 15.0, "delta": 1e-5, "classes": [0, 1]}


@pytest.fixture(scope="module")
def table():
    rows, labels = words(N, WIDTH)
    return rows.astype(np.float32), labels.astype(int)


def test_a_default_fit_of_a_hundred_thousand_columns_surveys_them(table, tmp_path: Path) -> None:
    model = dpsco.PrivateLogisticRegression(**OPTIONS).fit(*table)
    assert isinstance(model.plan_.method, Surveyed)
    assert model.plan_.method.kind == "diagonal"
    assert model.geometry_.axes
    assert model.geometry_.p == WIDTH + 1
    assert model.privacy_.private
    assert model.privacy_.rounds <= 14
    assert model.score(*table) > np.mean(table[1] == np.round(np.mean(table[1])))
    page = model.report_page(tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"of {WIDTH + 1}" in page
    again = dpsco.PrivateLogisticRegression(**OPTIONS, geometry=model.geometry_).fit(*table)
    assert isinstance(again.plan_.method.map, DiagonalMap)


def test_few_rows_and_few_columns_keep_their_plans(table) -> None:
    rows, labels = table
    few = dpsco.PrivateLogisticRegression(**OPTIONS | {"epsilon": 0.2}).fit(rows[:2000], labels[:2000])
    assert few.geometry_ is None
    narrow = dpsco.PrivateLogisticRegression(**OPTIONS).fit(rows[:, :3000], labels)
    assert narrow.geometry_ is None
    assert dpsco.PrivateLogisticRegression(**OPTIONS, survey="none").fit(rows, labels).geometry_ is None


def test_partial_fit_surveys_the_first_rows(table) -> None:
    rows, labels = table
    model = dpsco.PrivateLogisticRegression(**OPTIONS, n=N)
    for start in range(0, N, 5000):
        model.partial_fit(rows[start : start + 5000], labels[start : start + 5000])
    assert model.geometry_.axes
    assert np.any(model.coef_)


def test_what_needs_a_matrix_of_all_columns_is_refused_before_a_row_is_used(table) -> None:
    with pytest.raises(dpsco.InvalidArgument, match="at most 2,048"):
        dpsco.PrivateLogisticRegression(**OPTIONS, penalty=0.1).fit(*table)
    with pytest.raises(dpsco.InvalidArgument, match="survey='diagonal'"):
        dpsco.PrivateLogisticRegression(**OPTIONS, survey="intervals").fit(*table)


def test_a_regression_of_many_columns_takes_a_survey_by_name(table) -> None:
    rows, labels = table
    model = dpsco.PrivateLinearRegression(epsilon=8.0, delta=1e-5, label_bound=1.0, survey="diagonal")
    model.fit(rows, labels - 0.5)
    assert model.geometry_.axes
    assert np.all(np.isfinite(model.coef_))
