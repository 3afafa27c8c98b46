"""What a report assumes about steps before an estimator: rows of declared columns need none, if unchanged."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import dpsco
from dpsco.rows.encoded_rows import encoded_by

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


@pytest.mark.parametrize("columns", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda X: X, False),
        (lambda X: X * 0.5, True),
        (lambda X: MaxAbsScaler(copy=False).fit_transform(X), True),
        (lambda X: StandardScaler(copy=False, with_mean=False).fit_transform(X), True),
        (lambda X: (StandardScaler(copy=False, with_mean=False).fit_transform(X), X)[1], False),
        (lambda X: X[::-1], True),
        (lambda X: copy.deepcopy(X), True),
        (lambda X: pickle.loads(pickle.dumps(X)), True),  # noqa: S301 - its own bytes
    ],
    ids=["unchanged", "arithmetic", "largest", "scaled", "a scaled copy aside", "reversed", "copied", "pickled"],
)
def test_rows_that_a_step_made_do_not_speak_for_themselves(
    columns: dpsco.PublicColumns, step: Callable[[Any], Any], expected: bool
) -> None:
    rows = step(columns.transform(FRAME))
    assert (encoded_by(rows) is None) == expected
    assert asked(rows) == expected


def clipped(X: Any) -> Any:
    return np.clip(X, 0.0, 0.95, out=X)


def halved(X: Any) -> Any:
    X *= 0.5
    return X


def no_number_above(X: Any) -> Any:
    X[X > 0.95] = 0.95
    return X


IN_PLACE = {
    "clip": (DENSE, clipped),
    "arithmetic": (DENSE, halved),
    "mask": (DENSE, no_number_above),
    "no NaN": (DENSE, lambda X: np.nan_to_num(X, copy=False)),
    "sorted": (DENSE, lambda X: X.sort(axis=0)),
    "the owner of the memory": (DENSE, lambda X: clipped(X.base)),
    "flags": (DENSE, lambda X: X.setflags(write=True)),
    "CSR arithmetic": (SPARSE, halved),
    "CSR values": (SPARSE, lambda X: clipped(X.data)),
    "CSR flags": (SPARSE, lambda X: X.data.setflags(write=True)),
    "CSR indices": (SPARSE, lambda X: np.minimum(X.indices, 100, out=X.indices)),
    "CSR zeros": (SPARSE, lambda X: X.eliminate_zeros()),
    "CSR cell": (SPARSE, lambda X: X.__setitem__((0, 0), 0.5)),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("changes", [False, True], ids=["no cell changes", "one cell changes"])
def test_a_step_in_place_fails_whatever_the_cells_hold(name: str, changes: bool) -> None:
    """If it ran, its effect on one row would decide whether all rows keep their norm."""
    columns, step = IN_PLACE[name]
    frame = pd.DataFrame({"age": np.full(50, 50.0), "city": "a"})
    if changes:
        frame.loc[7, "age"] = 97.0
    with pytest.raises(ValueError, match=r"read-only|WRITEABLE"):
        step(columns.transform(frame))


def test_rows_whose_parts_were_replaced_carry_no_norm() -> None:
    rows = SPARSE.transform(FRAME)
    rows.data = np.asarray(rows.data)[:]
    assert encoded_by(rows) is None  # read-only, the same cells, another array
    dense = DENSE.transform(FRAME)
    dense.shape = (dense.shape[0], dense.shape[1], 1)
    assert encoded_by(dense) is None


def test_a_column_named_feature_norm_says_nothing_and_later_chunks_are_unknown() -> None:
    table = pd.DataFrame({"feature_norm": FRAME["age"] / 100, "other": 0.5})
    assert encoded_by(table) is None
    assert asked(table)
    chunks = ((DENSE.transform(FRAME[k : k + 1_000]), Y[k : k + 1_000]) for k in range(0, 3_000, 1_000))
    assert asked(chunks, invalid_rows="zero")
    assert not asked(FRAME, columns=dpsco.PublicColumns(["age"]), feature_norm=100.0)


def test_permuted_rows_refuse_portions_that_sample() -> None:
    from dpsco.estimators.permuted_rows import PermutedRows
    from dpsco.query import Portion
    from dpsco.rows.random_order import Positions

    rows = PermutedRows(np.ones((8, 2)), np.zeros(8), Positions(8), 1.0)
    with pytest.raises(dpsco.InvalidArgument, match=r"rate=0\.5"):
        rows._check_portions([Portion(0, 4), Portion(4, 8, rate=0.5)])
    with pytest.raises(dpsco.InvalidArgument, match=r"rate=0\.5"):
        list(rows._portions([Portion(0, 8, rate=0.5)], None))
