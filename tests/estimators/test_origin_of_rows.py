"""What a report assumes about steps before an estimator: rows of declared columns need none, if unchanged."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import dpsco
from dpsco.rows.encoded_rows import declared_norm

ASKED = "no step before this one"
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.uniform(0, 100, 3_000), "city": RNG.choice(["a", "b", "c"], 3_000)})
Y = (FRAME["age"] > 50).to_numpy().astype(int)
DENSE = dpsco.PublicColumns(ranges={"age": (0, 100)}, categories={"city": ["a", "b"]})
SPARSE = dpsco.PublicColumns(ranges={"age": (0, 100)}, hashed={"city": 200})


def asked(X: Any, **more: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dpsco.PrivateLogisticRegression(
            1.0, 1e-6, classes=[0, 1], n=3_000, survey="none", rounds=2, random_state=1, **more
        )
        model = model.fit(X) if hasattr(X, "__next__") else model.fit(X, Y)
    return any(ASKED in each for each in model.privacy_.assumptions)


def in_place(X: Any) -> Any:
    X *= 0.5
    return X


@pytest.mark.parametrize("columns", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda X: X, False),
        (in_place, True),
        (lambda X: MaxAbsScaler(copy=False).fit_transform(X), True),
        (lambda X: StandardScaler(copy=False, with_mean=False).fit_transform(X), True),
        (lambda X: (StandardScaler(copy=False, with_mean=False).fit_transform(X), X)[1], True),
        (lambda X: X[::-1], True),
    ],
    ids=["unchanged", "arithmetic", "largest", "scaled", "scaled behind the back", "reversed"],
)
def test_rows_that_a_step_changed_in_place_do_not_speak_for_themselves(
    columns: dpsco.PublicColumns, step: Callable[[Any], Any], expected: bool
) -> None:
    rows = step(columns.transform(FRAME))
    assert (declared_norm(rows) is None) == expected
    assert asked(rows) == expected


def test_a_column_named_feature_norm_says_nothing_and_later_chunks_are_unknown() -> None:
    table = pd.DataFrame({"feature_norm": FRAME["age"] / 100, "other": 0.5})
    assert declared_norm(table) is None
    assert asked(table)
    chunks = ((DENSE.transform(FRAME[k : k + 1_000]), Y[k : k + 1_000]) for k in range(0, 3_000, 1_000))
    assert asked(chunks, invalid_rows="zero")
    assert not asked(FRAME, columns=dpsco.PublicColumns(["age"]), feature_norm=100.0)


def test_permuted_rows_refuse_portions_that_sample() -> None:
    from dpsco.estimators.permuted_rows import PermutedRows
    from dpsco.query import Portion

    rows = PermutedRows(np.ones((8, 2)), np.zeros(8), np.arange(8), 1.0)
    with pytest.raises(dpsco.InvalidArgument, match=r"rate=0\.5"):
        rows._check_portions([Portion(0, 4), Portion(4, 8, rate=0.5)])
    with pytest.raises(dpsco.InvalidArgument, match=r"rate=0\.5"):
        list(rows._portions([Portion(0, 8, rate=0.5)], None))
