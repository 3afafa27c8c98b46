"""Large arrays: the check of their values runs beside the first round, and ends before anything is released."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco import Account, Budget, DataError, PrivateLogisticRegression
from dpsco.estimators import validation
from dpsco.release.releaser import Releaser
from dpsco.rows import gate

N, WIDTH = 6_000, 5


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    monkeypatch.setattr(validation, "BESIDE_FROM", 1)
    random = np.random.default_rng(0)
    rows = random.normal(size=(N, WIDTH)).astype(np.float32) / 4
    return rows, (rows[:, 0] > 0).astype(np.int64)


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps that were released."""
    seen: list[int] = []
    released = Releaser.release

    def release(self: Releaser, query: Any, clipped: Any) -> Any:
        seen.append(query.step)
        return released(self, query, clipped)

    monkeypatch.setattr(Releaser, "release", release)
    return seen


@pytest.fixture
def slow_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check ends long after the sum of the first round."""
    finite = gate._finite

    def late(part: Any) -> bool:
        time.sleep(0.3)
        return finite(part)

    monkeypatch.setattr(gate, "_finite", late)


def classifier(**options: Any) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(epsilon=1.0, delta=1e-6, classes=[0, 1], **options)


@pytest.mark.parametrize("survey", ["auto", "none"])
@pytest.mark.usefixtures("slow_check")
def test_a_row_that_does_not_fit_stops_the_run_before_anything_is_released(
    survey: str, table: tuple[Any, Any], releases: list[int]
) -> None:
    rows, labels = table
    rows[-1, 2] = np.nan
    with pytest.raises(DataError, match="X has cells that are NaN"):
        classifier(survey=survey).fit(rows, labels)
    assert releases == []


@pytest.mark.usefixtures("slow_check")
def test_an_account_is_charged_after_the_check(table: tuple[Any, Any], tmp_path: Path) -> None:
    rows, labels = table
    account = Account.create(tmp_path / "account.json", Budget(5.0, 1e-5))
    rows[0, 0] = np.inf
    with pytest.raises(DataError):
        classifier(account=account).fit(rows, labels)
    assert account.runs == []
    rows[0, 0] = 0.0
    classifier(account=account).fit(rows, labels)
    assert len(account.runs) == 1


@pytest.mark.usefixtures("slow_check")
def test_what_is_wrong_with_x_is_said_first(table: tuple[Any, Any]) -> None:
    rows, labels = table
    labels[3] = 7
    with pytest.raises(DataError, match="y has labels"):
        classifier().fit(rows, labels)
    rows[5, 1] = np.nan
    with pytest.raises(DataError, match="X has cells"):
        classifier().fit(rows, labels)


@pytest.mark.filterwarnings("ignore::dpsco.estimators.public_facts.PrivacyLeakWarning")
def test_the_model_is_that_of_a_check_before_the_run(table: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = table
    beside = classifier(random_state=1).fit(rows, labels)
    monkeypatch.setattr(validation, "BESIDE_FROM", 1 << 40)
    before = classifier(random_state=1).fit(rows, labels)
    assert np.array_equal(beside.coef_, before.coef_)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_one_odd_value_anywhere_is_found(alone: bool, odd: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_LOOK_BYTES", 1 << 12)
    rows = np.full((1_000, 7), 3e38, dtype=np.float32)  # their sum leaves the range: that alone is no error
    assert gate.all_finite(rows, alone=alone)
    assert gate.all_finite(np.asfortranarray(rows), alone=alone)
    for place in (0, 3_456, 6_999):
        one = rows.copy()
        one.flat[place] = odd
        assert not gate.all_finite(one, alone=alone)
        assert not gate.all_finite(one[:, ::-1], alone=alone)


def test_small_tables_are_checked_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(validation, "CheckBeside", started.append)
    rows = np.zeros((100, 2), np.float32)
    rows[0, 0] = np.nan
    with pytest.raises(DataError):
        dpsco.PrivateLogisticRegression(classes=[0, 1]).fit(rows, np.arange(100) % 2)
    assert not started
