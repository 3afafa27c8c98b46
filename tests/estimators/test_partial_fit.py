"""partial_fit: rows pushed in pieces are the run that train would make of them, and n ends it."""

from __future__ import annotations

import contextlib
import math
import pickle
import threading
import time

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import dpsco
from dpsco.datasets import reference_problem
from dpsco.estimators import PrivateLinearRegression, PrivateLogisticRegression, base
from dpsco.query import CHUNK_ROWS
from dpsco.rows.contribution_cap import ContributionCap
from dpsco.run import Run, watching

N = 20_000
DATA = reference_problem(n=N, dimension=5, fresh=10)
X, Y = DATA.features, DATA.labels
KW = {"epsilon": 1.0, "delta": 1e-6, "classes": [0, 1], "n": N}


def pushed(estimator, sizes, rows=N, **more):
    start, k = 0, 0
    while start < rows:
        stop = min(rows, start + sizes[k % len(sizes)])
        estimator.partial_fit(X[start:stop], Y[start:stop], **{a: v[start:stop] for a, v in more.items()})
        start, k = stop, k + 1
    return estimator


@pytest.mark.parametrize("sizes", [[N], [1000, 1, 0, 333], [CHUNK_ROWS + 7]], ids=str)
@pytest.mark.parametrize("rounds", [3, 16])
def test_rows_in_pieces_give_the_model_of_one_fit(sizes, rounds) -> None:
    sizes = [s for s in sizes if s]
    kwargs = {**KW, "epsilon": math.inf, "rounds": rounds}
    whole = PrivateLogisticRegression(**kwargs, shuffle=False).fit(X, Y)
    parts = pushed(PrivateLogisticRegression(**kwargs), sizes)
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-9)
    assert parts.plan_ == whole.plan_
    assert parts.privacy_.rows_missing == 0


def test_with_noise_pieces_do_not_change_a_bit() -> None:
    kwargs = {**KW, "random_state": 5, "rounds": 4}
    with pytest.warns(UserWarning, match="random_state"):
        models = [pushed(PrivateLogisticRegression(**kwargs), sizes) for sizes in ([N], [999], [5000, 1])]
    for model in models[1:]:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
    assert not models[0].privacy_.private


def test_the_first_rows_declare_the_type_of_all_so_no_odd_cell_changes_another_row() -> None:
    """A cell of text makes objects of a later piece of float32 rows: the rows beside it keep their bits."""
    single, sums = X.astype(np.float32), []
    for odd in (np.float32("nan"), "x"):
        later = single[7_000:].copy() if odd != "x" else single[7_000:].astype(object)
        later[5, 2] = odd
        seen: list[bytes] = []
        kwargs = {**KW, "epsilon": math.inf, "feature_norm": 0.7, "rounds": 2, "invalid_rows": "zero"}
        model = PrivateLogisticRegression(**kwargs)  # without noise there is no grid, and a sum shows every bit
        with watching(lambda query, clipped, released, seen=seen: seen.append(clipped.total.tobytes())):
            model.partial_fit(single[:7_000], Y[:7_000])
            model.partial_fit(later, Y[7_000:])
        sums.append(seen)
    assert len(sums[0]) == 2
    assert sums[0] == sums[1]


@pytest.mark.parametrize("sparse_first", [False, True])
def test_the_first_rows_declare_the_layout_of_all(sparse_first) -> None:
    kwargs = {**KW, "random_state": 5, "rounds": 2, "invalid_rows": "zero"}
    kinds = (csr_matrix, np.asarray) if sparse_first else (np.asarray, csr_matrix)
    models = []
    for first, later in ((kinds[0], kinds[0]), kinds):
        model = PrivateLogisticRegression(**kwargs)
        with pytest.warns(UserWarning, match="random_state"):
            model.partial_fit(first(X[:7_000]), Y[:7_000])
        models.append(model.partial_fit(later(X[7_000:]), Y[7_000:]).coef_)
    np.testing.assert_array_equal(*models)


def test_rows_beyond_n_are_refused_before_they_are_used() -> None:
    model = pushed(PrivateLogisticRegression(**KW), [7_000], rows=N - 100)
    before = model.coef_.copy()
    with pytest.raises(dpsco.HorizonError, match=f"n={N}"):
        model.partial_fit(X[:101], Y[:101])
    np.testing.assert_array_equal(model.coef_, before)
    model.partial_fit(X[:100], Y[:100])
    with pytest.raises(dpsco.HorizonError):
        model.partial_fit(X[:1], Y[:1])


def test_nothing_moves_before_a_round_is_full() -> None:
    model = PrivateLogisticRegression(**KW, rounds=4, survey="none")
    model.partial_fit(X[:4999], Y[:4999])
    np.testing.assert_array_equal(model.coef_, 0.0)
    model.partial_fit(X[4999:5000], Y[4999:5000])
    assert np.any(model.coef_ != 0)
    assert model.privacy_.epsilon == 1.0


def test_facts_must_be_announced() -> None:
    assert not hasattr(PrivateLogisticRegression(classes=[0, 1]), "partial_fit")
    with pytest.raises(AttributeError):
        PrivateLogisticRegression(classes=[0, 1]).partial_fit(X, Y)
    with pytest.raises(dpsco.InvalidArgument, match="classes"):
        PrivateLogisticRegression(n=N, delta=1e-6).partial_fit(X[:10], Y[:10])
    PrivateLogisticRegression(n=N, delta=1e-6).partial_fit(X[:10], Y[:10], classes=[0, 1]).partial_fit(X[:10], Y[:10])
    with pytest.raises(dpsco.InvalidArgument, match="label_bound"):
        PrivateLinearRegression(n=N, delta=1e-6).partial_fit(X[:10], Y[:10])


@pytest.mark.filterwarnings("ignore:random_state fixes the noise")
def test_other_classes_in_the_middle_of_a_run_are_refused_and_change_nothing() -> None:
    model = PrivateLogisticRegression(n=N, delta=1e-6, random_state=1)
    same = PrivateLogisticRegression(n=N, delta=1e-6, random_state=1)
    for each in (model, same):
        each.partial_fit(X[:5000], Y[:5000], classes=[1, 0])
    with pytest.raises(dpsco.InvalidArgument, match="those of the first call"):
        model.partial_fit(X[5000:], Y[5000:], classes=[1, 2])
    stated = PrivateLogisticRegression(n=N, delta=1e-6, classes=[0, 1])
    with pytest.raises(dpsco.InvalidArgument, match="those of the estimator"):
        stated.partial_fit(X[:10], Y[:10], classes=[0, 2])
    stated.partial_fit(X[:10], Y[:10]).set_params(classes=[0, 2])
    with pytest.raises(dpsco.InvalidArgument, match="those of the first call"):
        stated.partial_fit(X[:10], Y[:10])
    for each in (model, same):
        each.partial_fit(X[5000:], Y[5000:])
    np.testing.assert_array_equal(model.coef_, same.coef_)


def test_another_label_bound_in_the_middle_of_a_run_is_refused() -> None:
    model = PrivateLinearRegression(n=N, delta=1e-6, label_bound=1.0).partial_fit(X[:10], Y[:10])
    with pytest.raises(dpsco.InvalidArgument, match="label_bound to be that of the first call"):
        model.set_params(label_bound=2.0).partial_fit(X[:10], Y[:10])
    model.set_params(label_bound=1.0).partial_fit(X[:10], Y[:10])


def test_units_are_capped_across_calls() -> None:
    ids = np.arange(N) % 5_000  # every unit comes back four times, in four calls
    kwargs = {**KW, "epsilon": math.inf, "max_rows_per_unit": 1, "rounds": 4}
    a = pushed(PrivateLogisticRegression(**kwargs), [5_000], unit=ids)
    zeroed = Y.astype(float)
    zeroed[5_000:] = np.nan
    b = PrivateLogisticRegression(**{**kwargs, "max_rows_per_unit": None}, shuffle=False, invalid_rows="zero")
    np.testing.assert_allclose(a.coef_, b.fit(X, zeroed).coef_, rtol=1e-9)


def test_a_pickle_of_a_run_in_progress_predicts_and_does_not_go_on() -> None:
    model = pushed(PrivateLogisticRegression(**KW, max_rows_per_unit=1), [3_000], rows=6_000, unit=np.arange(N))
    text = pickle.dumps(model)
    back = pickle.loads(text)  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert "_units" not in vars(back)
    with pytest.raises(dpsco.HorizonError, match="pickling"):
        back.partial_fit(X[:1], Y[:1], unit=[0])
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(model._run)
    assert repr(model._run) == "Run(<secret>)"
    model.partial_fit(X[6_000:], Y[6_000:], unit=np.arange(6_000, N))  # the original does


def test_an_interrupted_call_ends_the_run_so_that_no_row_counts_twice(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3_000, 3)), rng.integers(0, 2, 3_000)
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], n=6_000)
    model.partial_fit(X[:1], y[:1])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(model._run), "absorb", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X, y)
    with pytest.raises(dpsco.HorizonError, match="twice"):
        model.partial_fit(X[:1], y[:1])


@pytest.mark.parametrize("after", ["push", "_learned", "_keep"])
def test_an_interrupt_after_the_rows_were_taken_ends_the_run_too(after: str, monkeypatch) -> None:
    """A repeated cell would count its rows twice, although the call before it took them all."""
    model = PrivateLogisticRegression(**KW)
    model.partial_fit(X[:200], Y[:200])
    owner = type(model._run) if after == "push" else type(model)
    whole = getattr(owner, after)

    def interrupted(self: object, *arguments: object, **options: object) -> None:
        whole(self, *arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, after, interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[200:400], Y[200:400])
    with pytest.raises(dpsco.HorizonError, match="count them twice"):
        model.partial_fit(X[200:400], Y[200:400])


def test_rows_placed_by_position_refuse_add_remove() -> None:
    X, y = np.ones((10, 2)), np.tile([0, 1], 5)
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], n=10, adjacency="add-remove")
    for call in (model.fit, model.partial_fit):
        with pytest.raises(dpsco.InvalidArgument, match="adjacency"):
            call(X, y)


ODD_ROWS = {
    "a cell that is not finite": (np.array([[math.nan] + 4 * [0.1]]), np.array([1])),
    "a label that is no class": (X[:1], np.array([7])),
    "a label that is no whole number": (X[:1], np.array([0.5])),
    "a label that is missing": (X[:1], np.array([math.nan])),
    "text in a list": ([[0.1, "text", 0.1, 0.1, 0.1]], [1]),
}


@pytest.mark.parametrize("odd", ODD_ROWS, ids=str)
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearRegression])
def test_no_row_behind_the_first_call_decides_whether_the_run_goes_on(kind, odd) -> None:
    """Rounds are released by then: an error would show, without noise, what one row holds."""
    facts = {"classes": [0, 1]} if kind is PrivateLogisticRegression else {"label_bound": 1.0}
    told = {"epsilon": 1.0, "delta": 1e-6, "survey": "none", "rounds": 4, "n": 4_000, **facts}
    sums, released = [], []
    for rows, labels in ((np.zeros((1, 5)), np.array([math.nan])), ODD_ROWS[odd]):
        model, own, frozen = kind(**told), [], list(released)
        note = lambda query, clipped, value, own=own: own.append((clipped.total, value.value))  # noqa: E731
        with watching(observer=note, replay=frozen or None):
            model.partial_fit(X[:2_000], Y[:2_000])
            model.partial_fit(rows, labels)
            model.partial_fit(X[2_001:4_000], Y[2_001:4_000])
        sums.append([total for total, _ in own])
        released = [value for _, value in own]
        assert len(own) == 4
    if kind is PrivateLogisticRegression or "that is no" not in odd:  # a regression takes 0.5, and clamps 7
        np.testing.assert_array_equal(*sums)


def test_the_first_rows_are_checked_before_anything_is_spent(tmp_path) -> None:
    account = dpsco.Account.create(tmp_path / "people.json", dpsco.Budget(3.0, 1e-6))
    model = PrivateLogisticRegression(**KW, account=account)
    for rows, labels in ODD_ROWS.values():
        with pytest.raises(dpsco.DataError):
            model.partial_fit(rows, labels)
    assert account.runs == []


@pytest.mark.parametrize(
    ("rows", "ids"),
    [(10, np.arange(10.0)), (10, np.arange(9)), (10, np.ones((10, 2), int)), (N + 1, np.arange(N + 1))],
    ids=["ids in floating point", "too few ids", "two columns of ids", "more rows than n"],
)
def test_a_first_call_that_is_refused_is_not_charged(tmp_path, rows, ids) -> None:
    account = dpsco.Account.create(tmp_path / "people.json", dpsco.Budget(1.1, 1e-6, records=2))
    model = PrivateLogisticRegression(**KW, account=account, max_rows_per_unit=2)
    with pytest.raises(dpsco.errors.DpscoError, match=r"ids|unit|announced"):
        model.partial_fit(np.resize(X, (rows, 5)), np.resize(Y, rows), unit=ids)
    assert account.runs == []
    model.partial_fit(X[:10], Y[:10], unit=np.arange(10))  # the limit has room for one run
    model.partial_fit(X[10:20], Y[10:20], unit=np.arange(10))
    assert len(account.runs) == 1


def test_ids_of_a_later_call_are_not_ignored() -> None:
    model = PrivateLogisticRegression(**KW).partial_fit(X[:10], Y[:10])
    with pytest.raises(dpsco.InvalidArgument, match="go together"):
        model.partial_fit(X[10:20], Y[10:20], unit=np.arange(10))
    model.partial_fit(X[10:20], Y[10:20])  # the refused call ended no run


def test_no_cell_is_quoted_in_an_error() -> None:
    X = np.array([["patient-4711", "1"], ["2", "3"]], dtype=object)
    with pytest.raises(dpsco.DataError, match="not numbers") as caught:
        PrivateLogisticRegression(classes=[0, 1]).fit(X, [0, 1])
    assert "4711" not in str(caught.value)
    PrivateLogisticRegression(classes=[0, 1], invalid_rows="zero").fit(X, [0, 1])  # no cell decides an outcome


def test_threads_count_the_rows_of_a_unit_once(monkeypatch) -> None:
    """The cap reads and then writes how many rows of a unit it has met: a second thread is refused in between."""
    estimator = PrivateLogisticRegression(**KW, max_rows_per_unit=1)
    estimator.partial_fit(X[:10], Y[:10], unit=np.arange(10))
    counted, second, errors = ContributionCap.counted_texts, [], []

    def late(cap, texts, codes):
        flags = counted(cap, texts, codes)
        if not second:
            second.append(threading.Thread(target=push))
            second[0].start()
            second[0].join()
        return flags

    def push() -> None:
        try:
            estimator.partial_fit(X[10:20], Y[10:20], unit=np.full(10, 77))
        except dpsco.errors.HorizonError as error:
            errors.append(error)

    monkeypatch.setattr(ContributionCap, "counted_texts", late)
    estimator.partial_fit(X[10:20], Y[10:20], unit=np.full(10, 77))
    assert len(errors) == 1
    estimator.partial_fit(X[20:30], Y[20:30], unit=np.full(10, 78))  # the refused call ended no run


def test_threads_that_start_together_share_one_run(monkeypatch) -> None:
    estimator, runs, begin = PrivateLogisticRegression(**KW), [], threading.Barrier(2)

    class Counted(Run):
        def __init__(self, *args, **kwargs) -> None:
            runs.append(self)
            time.sleep(0.1)  # long enough for the other thread to find no run
            super().__init__(*args, **kwargs)

    def push(part: slice) -> None:
        begin.wait()
        with contextlib.suppress(dpsco.errors.HorizonError):
            estimator.partial_fit(X[part], Y[part])

    monkeypatch.setattr(base, "Run", Counted)
    threads = [threading.Thread(target=push, args=(slice(k, k + 10),)) for k in (0, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 1
