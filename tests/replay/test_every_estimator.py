"""Mark 12 for estimators on degenerate data: fitted at once, pushed in pieces, sparse; one row exchanged.

Odd rows in ordinary data are in tests/estimators/test_neighbours.py.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone

from dpsco.audit.recording import Transcript, observe
from dpsco.estimators import PrivateLinearRegression, PrivateLinearSVC, PrivateLogisticRegression

N, P, T = 90, 3, 4  # 22 rows per round, two left over
COMMON = {"epsilon": 1.0, "delta": 1e-5, "rounds": T, "invalid_rows": "zero", "adjacency": "replace", "n": N}
COMMON |= {"random_state": 7}  # the same order of the rows in both runs
ESTIMATORS = {
    "logistic": PrivateLogisticRegression(**COMMON, classes=[0, 1]),
    "softmax": PrivateLogisticRegression(**COMMON, classes=[0, 1, 2]),
    "svc": PrivateLinearSVC(**COMMON, classes=[0, 1]),
    "huber": PrivateLinearRegression(**COMMON, label_bound=2.0),
    "squared": PrivateLinearRegression(**COMMON, label_bound=2.0, loss="squared"),
}
FAST = ("logistic", "huber")
Rows = tuple[np.ndarray, np.ndarray]


def data(seed: int, n: int = N) -> Rows:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, P)), rng.integers(0, 2, n).astype(float)


DATA: dict[str, Rows] = {
    "duplicate rows": (np.tile(data(0, 1)[0], (N, 1)), np.ones(N)),
    "one class only": (data(1)[0], np.zeros(N)),
    "all rows zero": (np.zeros((N, P)), np.zeros(N)),
    "all rows nan": (np.full((N, P), np.nan), np.zeros(N)),
}
FEWER: dict[str, Rows] = {
    "short last batch": data(2, N - 13),
    "last batches empty": data(3, N // 3),
    "one row in all": data(4, 1),
}
"""Fewer rows than were announced: only where rows are pushed, or n would tell."""
ODD: dict[str, tuple[list[float], float]] = {
    "mirrored": ([-5.0, 5.0, 2.0], 1.0),
    "huge": ([1e200, -1e200, 0.0], 0.0),
    "nan": ([np.nan, 1.0, 1.0], 1.0),
    "unknown label": ([1.0, 1.0, 1.0], 77.0),
}


def at_once(model: Any, rows: Rows) -> Any:
    return model.fit(*rows)


def sparse(model: Any, rows: Rows) -> Any:
    return model.fit(csr_matrix(rows[0]), rows[1])


def in_pieces(model: Any, rows: Rows) -> Any:
    """Uneven calls; every model on the way is shown."""
    edges = sorted({0, 1, min(40, len(rows[1])), min(41, len(rows[1])), len(rows[1])})
    model.seen = [model.partial_fit(rows[0][a:b], rows[1][a:b]).coef_.tobytes() for a, b in itertools.pairwise(edges)]
    return model


def watch(model: Any, how: Callable[[Any, Rows], Any], rows: Rows, frozen: Transcript | None = None) -> Transcript:
    def run() -> bytes:
        fitted = how(clone(model), rows)
        shown = repr(dataclasses.replace(fitted.privacy_, run_id="")) + repr(fitted.plan_)
        points = np.random.default_rng(9).standard_normal((20, P))
        predicted = fitted.predict(points).tobytes() + pickle.dumps(getattr(fitted, "seen", None))
        return shown.encode() + fitted.coef_.tobytes() + np.atleast_1d(fitted.intercept_).tobytes() + predicted

    return observe(run, frozen)


@functools.cache
def declared(kind: str) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the fixed random_state
        return float(clone(ESTIMATORS[kind]).fit(*data(5)).plan_.schedule.calibration.difference)


CASES = [
    *((how, name, rows) for how in (at_once, sparse, in_pieces) for name, rows in DATA.items()),
    *((in_pieces, name, rows) for name, rows in FEWER.items()),
]


@pytest.mark.parametrize(("how", "name", "rows"), CASES, ids=[f"{how.__name__} {name}" for how, name, _ in CASES])
@pytest.mark.parametrize(
    "kind", [*FAST, *(pytest.param(kind, marks=pytest.mark.slow) for kind in ESTIMATORS if kind not in FAST)]
)
def test_degenerate_data_and_its_neighbours_look_alike(
    kind: str, how: Callable[[Any, Rows], Any], name: str, rows: Rows, mark_figure: Callable[[int, str], None]
) -> None:
    model = ESTIMATORS[kind]
    one = watch(model, how, rows)
    assert one.error is None
    difference = declared(kind)
    for place, odd in itertools.product({0, len(rows[1]) - 1}, ODD):
        x, y = rows[0].copy(), rows[1].copy()
        x[place], y[place] = ODD[odd]
        two = watch(model, how, (x, y), one)
        assert (one.error, one.warned, one.visible) == (two.error, two.warned, two.visible)
        assert [q.digest() for q in one.queries] == [q.digest() for q in two.queries]
        distances = [float(np.linalg.norm(a - b)) for a, b in zip(one.sums, two.sums, strict=True)]
        assert sum(distance > 0 for distance in distances) <= 1
        assert max(distances, default=0.0) <= difference
        if distances and name == "one class only" and how is at_once and odd == "mirrored" and place == 0:
            assert max(distances) > 0.1 * difference  # what was exchanged counts
            mark_figure(12, f"{kind} {max(distances) / difference:.2f}")
