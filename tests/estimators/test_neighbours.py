"""Replay on a neighbour with the released values frozen: what reaches release moves by no more than was declared.

Estimators, pushed rows and files, with rows that are huge, not finite, of an undeclared class, or garbled text; and
whole units of several rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.estimators import PrivateLinearRegression, PrivateLinearSVC, PrivateLogisticRegression
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns
from dpsco.run import watching
from dpsco.run.result import Result

N, P, T = 900, 4, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, P))
Y = RNG.integers(0, 2, N)


class Watch:
    """Sums handed to release, and the values it gave back; a second watch replays the first one's values."""

    def __init__(self, frozen: Watch | None = None) -> None:
        self.sums: list[np.ndarray] = []
        self.released: list[np.ndarray] = []
        self.warned: list[str] = []
        self._frozen = frozen
        self.made: Any = None

    def __call__(self, query: Any, clipped: Any, released: Any) -> None:
        self.sums.append(clipped.total.copy())
        self.released.append(released.value)

    def run(self, action: Callable[[], Any]) -> Watch:
        replay = None if self._frozen is None else self._frozen.released
        with watching(self, replay=replay), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.made = action()
        self.warned = sorted(str(w.message) for w in caught)
        return self


def covered(made: Any) -> tuple[float, float]:
    """The difference that the first release's noise was calibrated for, and that of the others."""
    plan, report = (made.plan, made.report) if isinstance(made, Result) else (made.plan_, made.privacy_)
    return plan.schedule.calibration.difference, report.difference


def compare(action: Callable[..., Any], data: tuple, other: tuple, rows: int = 1) -> None:
    """At most ``rows`` sums' worth of difference in all, and the same warnings.

    A released survey decides on the clip of the later rounds: the bound is that of the recorded run itself.
    """
    run = Watch().run(lambda: action(*data))
    first, later = covered(run.made)
    replay = Watch(run).run(lambda: action(*other))
    apart = [float(np.linalg.norm(a - b)) for a, b in zip(run.sums, replay.sums, strict=True)]
    assert sum(apart[:1]) / first + sum(apart[1:]) / later <= rows
    assert sum(apart) > 0
    assert run.warned == replay.warned


COMMON = {"epsilon": 1.0, "delta": 1e-5, "rounds": T, "random_state": 7, "invalid_rows": "zero"}
ESTIMATORS = {
    "logistic": (PrivateLogisticRegression(**COMMON, classes=[0, 1]), Y),
    "softmax": (PrivateLogisticRegression(**COMMON, classes=[0, 1, 2]), RNG.integers(0, 3, N)),
    "weighted": (PrivateLogisticRegression(**COMMON, classes=[0, 1], class_weight={0: 0.1}), Y),
    "svc": (PrivateLinearSVC(**COMMON, classes=[0, 1]), Y),
    "huber": (PrivateLinearRegression(**COMMON, label_bound=2.0), 3 * X[:, 0]),
    "squared": (PrivateLinearRegression(**COMMON, label_bound=2.0, loss="squared"), 3 * X[:, 0]),
}
CHANGES = {
    "another row": (np.full(P, -1.0), 1),
    "a huge row": (np.full(P, 1e200), 0),
    "not finite": (np.full(P, np.nan), 1),
    "no such class": (np.ones(P), 77),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_one_row_moves_one_sum_by_at_most_the_declared_difference(name, change) -> None:
    estimator, labels = ESTIMATORS[name]
    x, y = X.copy(), np.array(labels)
    x[411], y[411] = CHANGES[change]
    replace = type(estimator)(**{**estimator.get_params(), "adjacency": "replace"})
    compare(lambda a, b: replace.fit(a, b), (X, labels), (x, y))


def test_pushed_rows_obey_the_same_bound() -> None:
    def push(x, y):
        model = PrivateLogisticRegression(**COMMON, classes=[0, 1], n=N, adjacency="replace")
        for start in range(0, N, 100):
            model.partial_fit(x[start : start + 100], y[start : start + 100])
        return model

    x = X.copy()
    x[500] = 1e9
    compare(push, (X, Y), (x, Y))


def test_a_unit_moves_at_most_k_rows_however_many_it_has() -> None:
    ids = np.arange(N) % 90  # ten rows each
    model = PrivateLogisticRegression(**COMMON, classes=[0, 1], max_rows_per_unit=3, adjacency="replace")
    x = X.copy()
    x[ids == 5] *= -20
    compare(lambda a: model.fit(a, Y, unit=ids), (X,), (x,), rows=3)


@pytest.mark.parametrize("line", ["-9,-9,-9,1,0", "what,,x y,nan,1", '"quo,ted",1e300,1e-300,0,1', "1,1,1,1,neither"])
@pytest.mark.parametrize("shuffle", [0, 256])
def test_a_line_of_a_file_moves_one_sum_whatever_it_holds(line, shuffle, tmp_path) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 4, intercept=True)
    plan = dpsco.Plan(
        problem, N, dpsco.Budget(1.0, 1e-5, "replace"), dpsco.AcceleratedSRGD(rounds=T, beta=0.5, clip=1.4)
    )
    lines = [",".join(map(str, [*row, label])) for row, label in zip(X.tolist(), Y.tolist(), strict=True)]
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("\n".join(["a,b,c,d,y", *lines]) + "\n")
    lines[411] = line
    paths[1].write_text("\n".join(["a,b,c,d,y", *lines]) + "\n")

    def fit(path):
        rows = FileRows(path, Labels("y", ("0", "1")), PublicColumns(["a", "b", "c", "d"]), shuffle=shuffle)
        return dpsco.train(plan, dpsco.stream(rows))

    compare(fit, (paths[0],), (paths[1],))


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_layout_of_an_array_changes_no_bit_of_a_sum(
    dtype: Any, compiled: bool, small: bool, monkeypatch: Any
) -> None:
    """Rows by columns, with gaps or in the other order of bytes: one kernel and one block size for the type."""
    if compiled:
        monkeypatch.setattr("dpsco.clipping.choose_oracle.COMPILED_FROM", 1)
    if not small:
        monkeypatch.setattr("dpsco.estimators.permuted_rows.SMALL_BYTES", 0)  # batches are gathered one by one
    rows = X.astype(dtype)
    gaps = np.zeros((2 * N, 2 * P), dtype)
    gaps[::2, ::2] = rows
    other = rows.astype(rows.dtype.newbyteorder())
    sums = []
    for form in (rows, np.asfortranarray(rows), gaps[::2, ::2], other):
        model = PrivateLogisticRegression(epsilon=np.inf, rounds=1, classes=[0, 1], shuffle=False)
        watch = Watch().run(lambda model=model, form=form: model.fit(form, Y))
        sums.append([total.tobytes() for total in watch.sums])
    assert len(sums[0]) == 1
    assert sums.count(sums[0]) == len(sums)


@pytest.mark.parametrize("odd", [[float(x) for x in np.float32([0.1, 0.3, 0.7, 0.9])], ["0.1", "0.3", "0.7", "0.9"]])
def test_one_row_of_a_list_does_not_decide_on_the_type_of_all(odd: list[Any]) -> None:
    rows: list[Any] = list(np.tile(np.float32([0.1, 0.3, 0.7, 0.9]), (50, 1)))
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, rounds=3, classes=[0, 1])
    one, two = (
        model._validated(given, np.zeros(50), first=True)[0][:] for given in (rows, [*rows[:7], odd, *rows[8:]])
    )
    assert one.dtype == two.dtype == np.float64
    np.testing.assert_array_equal(np.delete(one, 7, axis=0), np.delete(two, 7, axis=0))


@pytest.mark.parametrize("odd", ["0.7", 0.7, np.float64(0.7), True, 1, b"0.7"], ids=repr)
@pytest.mark.parametrize("wrap", [list, tuple, lambda cells: np.array(cells, dtype=object)])
def test_one_target_of_a_list_does_not_decide_on_the_type_of_all(wrap: Any, odd: Any) -> None:
    """NumPy made text of all targets beside one text: np.float32(0.1) then was 0.1, larger by 1.5e-9 of it."""
    targets: list[Any] = list(np.tile(np.float32([0.1, 0.3, 0.7]), 20))
    model = PrivateLinearRegression(epsilon=1.0, delta=1e-5, rounds=3, label_bound=1.0)
    rows, found = np.ones((60, 2)), []
    for given in (targets, [*targets[:8], odd, *targets[9:]]):
        y = model._validated(rows, wrap(given), first=True)[1]
        found.append(np.delete(model._targets(y, whole=True, strict=True)[1], 8))
    assert found[0].tobytes() == found[1].tobytes()
    assert found[0][0] == np.float32(0.1)


@pytest.mark.parametrize("odd", [1.0, True, "1", np.float32(1)], ids=repr)
def test_one_label_of_a_list_does_not_decide_on_the_class_of_others(odd: Any) -> None:
    """Beside one text NumPy made "True" of True and "1.0" of 1.0."""
    labels: list[Any] = [0, 1, True, 1.0, np.float32(1), False] * 10
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, rounds=3, classes=[0, 1])
    for given in (labels, [*labels[:8], odd, *labels[9:]]):
        y = model._validated(np.ones((60, 2)), given, first=True)[1]
        assert model._targets(y, whole=True, strict=True)[1].tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 0.0] * 10
