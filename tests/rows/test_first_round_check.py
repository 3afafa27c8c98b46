"""Large tables: kernels count the rows that do not fit, and the rows are looked at again only if there are any."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco import Account, Budget, DataError
from dpsco.clipping import CompiledOracle, LinearOracle
from dpsco.release.releaser import Releaser

ROUNDS, N, WIDTH = 4, 400, 3
PLAN = dpsco.Plan(
    dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), WIDTH),
    N,
    Budget(1.0, 1e-6),
    dpsco.AcceleratedSRGD(rounds=ROUNDS, beta=0.25, clip=1.0),
)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the parts that were looked at, in runs that count as large and have compiled kernels."""
    package, sizes = sys.modules["dpsco.rows.stream"], list[int]()
    finite = package.all_finite

    def look(rows: Any) -> bool:
        sizes.append(len(rows))
        return bool(finite(rows))

    monkeypatch.setattr(package, "CHECKED_WHOLE", 1)
    monkeypatch.setattr(package, "all_finite", look)
    monkeypatch.setattr(
        sys.modules["dpsco.run.train"], "linear_oracle", lambda *_, **__: CompiledOracle(dpsco.Logistic())
    )
    return sizes


def table(dtype: Any = np.float64) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.normal(size=(N, WIDTH)).astype(dtype), random.integers(0, 2, N).astype(float)


def test_rows_that_all_fit_are_read_by_the_kernels_alone(looks: list[int]) -> None:
    dpsco.train(PLAN, dpsco.stream(*table()))
    assert looks == []


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("where", "value"), [("X", np.nan), ("X", np.inf), ("X", -np.inf), ("y", np.nan), ("y", np.inf), ("y", 2.0)]
)
def test_a_row_of_the_first_round_that_does_not_fit_is_refused_before_a_release(
    where: str, value: float, dtype: Any, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Releaser, "release", None)
    features, labels = table(dtype)
    (features[:, 1] if where == "X" else labels)[N // ROUNDS - 1] = value
    with pytest.raises(DataError, match=rf"{where} .*non_finite='zero'"):
        dpsco.train(PLAN, dpsco.stream(features, labels))


def test_a_finite_row_that_is_too_long_to_count_is_not_refused(looks: list[int]) -> None:
    features, labels = table()
    features[3, 1] = 1e200
    dpsco.train(PLAN, dpsco.stream(features, labels))
    assert looks == [N // ROUNDS]


def test_an_account_is_charged_after_the_check(looks: list[int], tmp_path: Path) -> None:
    features, labels = table()
    features[3, 1] = np.nan
    account = Account.create(tmp_path / "account.json", Budget(9.0, 1e-3))
    with pytest.raises(DataError, match="X "):
        dpsco.train(PLAN, dpsco.stream(features, labels), account=account)
    assert not account.runs


def test_an_oracle_of_the_caller_is_not_believed(looks: list[int]) -> None:
    """It may clip a row that does not fit and say nothing."""

    class Silent(LinearOracle):
        def answer(self, query: Any, batch: Any) -> Any:
            clipped = super().answer(query, batch)
            clipped.zeroed_rows = 0
            return clipped

    features, labels = table()
    features[3, 1] = np.nan
    with pytest.raises(DataError, match="X "):
        dpsco.train(PLAN, dpsco.stream(features, labels), oracle=Silent(dpsco.Logistic()))
    assert looks == [N // ROUNDS]
