"""One odd row changes its own contribution and nothing else: each break that was found once, as a test."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpsco
from dpsco import AcceleratedSRGD, Budget, L2Ball, Plan, Problem, stream, train
from dpsco.clipping import CompiledOracle
from dpsco.query import Batch, Query
from dpsco.rows.contribution_cap import ContributionCap
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns

RNG = np.random.default_rng(0)
KEY = bytes(32)


def plan_of(n: int, width: int, rounds: int = 4, loss: Any = None, adjacency: str = "zero-out", **more: Any) -> Plan:
    problem = Problem(loss or dpsco.Logistic(), L2Ball(5.0), width)
    method = AcceleratedSRGD(rounds=rounds, beta=0.25, clip=1.0, **more)
    return Plan(problem=problem, n=n, budget=Budget(1.0, 1e-6, adjacency), method=method)


def typed(source: dpsco.Stream, plan: Plan) -> list[list[bytes]]:
    """The rows of each round, as they reach the oracle: features and label of each as bytes."""
    return [
        [x.tobytes() + y.tobytes() for features, labels in batch.chunks for x, y in zip(features, labels, strict=True)]
        for batch in source.open(plan.layout)
    ]


# --- types that one cell decides ------------------------------------------------------------------------


def test_a_missing_cell_in_a_table_of_bytes_moves_the_compiled_sum_by_no_more_than_its_row() -> None:
    """uint8 rows and the same with one NaN, which makes the array float64, take one kernel and one block size."""
    rows = RNG.integers(0, 255, (60_000, 40), dtype=np.uint8)
    labels = RNG.integers(0, 2, 60_000).astype(float)
    x = RNG.standard_normal(40) / 40
    query = Query(0, (x,), (1.0,), 1.5, 60_000, grid=0.5)
    other = rows.astype(float)
    other[77, 3] = np.nan
    one = CompiledOracle(dpsco.Logistic()).answer(query, Batch(0, [(rows, labels)])).total
    two = CompiledOracle(dpsco.Logistic()).answer(query, Batch(0, [(other, labels)])).total
    assert np.linalg.norm(one - two) <= 1.5 * (1 + 2.0**-10) + 0.5 * np.sqrt(40)  # and the rounding of one block


def test_a_missing_cell_in_the_first_chunk_does_not_cast_the_rows_of_a_jax_round() -> None:
    jax = pytest.importorskip("jax")
    from dpsco import jax as dpsco_jax

    oracle = dpsco_jax.oracle(lambda p, row: jax.numpy.dot(row[0], p) * (1.0 + row[1]), np.zeros(3, np.float32))
    query = Query(0, (np.zeros(3),), (1.0,), 0.3, 200, grid=2.0**-20)
    whole = np.ones((100, 3), dtype=np.int64)
    odd = whole.astype(float)
    odd[5, 1] = np.nan
    later = np.full((100, 3), 0.75)
    totals = [oracle.answer(query, Batch(0, [(x, np.zeros(100)), (later, np.zeros(100))])).total for x in (whole, odd)]
    assert np.linalg.norm(totals[0] - totals[1]) <= 0.3 * (1 + 2.0**-9)
    alone = oracle.answer(query, Batch(0, [(later, np.zeros(100))])).total
    assert np.linalg.norm(alone) > 10.0  # 0.75 is not truncated to 0


def test_one_nan_label_does_not_stop_a_torch_run() -> None:
    torch = pytest.importorskip("torch")
    from dpsco import torch as dpsco_torch

    model = torch.nn.Linear(3, 2)
    oracle = dpsco_torch.oracle(model, torch.nn.CrossEntropyLoss(reduction="none"))
    query = Query(0, (oracle.start,), (1.0,), 1.0, 50, grid=2.0**-20)
    rows, labels = RNG.standard_normal((50, 3)), RNG.integers(0, 2, 50)
    odd = labels.astype(float)
    odd[7] = np.nan
    totals = [oracle.answer(query, Batch(0, [(rows, y)])) for y in (labels, odd)]
    assert totals[1].zeroed_rows == 1
    assert 0 < np.linalg.norm(totals[0].total - totals[1].total) <= 1.0 + 2.0**-9


def test_labels_beyond_a_torch_models_outputs_are_refused_before_a_row_is_spent() -> None:
    torch = pytest.importorskip("torch")
    from dpsco import torch as dpsco_torch

    oracle = dpsco_torch.oracle(torch.nn.Linear(3, 5), torch.nn.CrossEntropyLoss(reduction="none"))
    problem = Problem(dpsco.CustomLoss(), L2Ball(20.0), dimension=oracle.size)
    method = AcceleratedSRGD(rounds=2, beta=1.0, clip=1.0)
    plan = Plan(problem=problem, n=100, budget=Budget(1.0, 1e-6), method=method)
    rows, labels = RNG.standard_normal((100, 3)), np.arange(100) % 10
    with pytest.raises(dpsco.DataError, match="0 to 4"):
        train(plan, stream(rows, labels), oracle=oracle, start=oracle.start)
    query = Query(0, (oracle.start,), (1.0,), 1.0, 100)
    passes: list[int] = []
    oracle._tried, before = lambda *a: passes.append(1) or before(*a), oracle._tried  # type: ignore[method-assign]
    assert oracle.answer(query, Batch(0, [(rows, labels)])).zeroed_rows == 50
    assert len(passes) == 1  # rows that cannot count are known before the model is asked


# --- labels ---------------------------------------------------------------------------------------------

X = RNG.standard_normal((300, 3))
Y = RNG.integers(0, 2, 300)
COMMON: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "rounds": 3, "random_state": 7, "invalid_rows": "zero"}


def fitted(x: Any, y: Any, **more: Any) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dpsco.PrivateLogisticRegression(**{**COMMON, "classes": [0, 1], **more})
        return model.fit(x, y).coef_.tobytes()


@pytest.mark.parametrize("odd", ["?", None, pd.NA, pd.NaT, 10**400, 77, 1j, np.datetime64("2020-01-01")])
@pytest.mark.parametrize("kind", ["numpy integers", "booleans", "a list of numpy integers", "a nullable series"])
def test_one_odd_label_leaves_every_other_row_its_own(kind: str, odd: Any) -> None:
    cells: Any = np.empty(300, dtype=object)
    cells[:] = [bool(y) for y in Y] if kind == "booleans" else list(Y)
    cells[40] = odd
    y = cells.tolist() if kind == "a list of numpy integers" else pd.Series(cells, dtype=object)
    if kind == "a nullable series" and (odd is None or odd is pd.NA):
        y = pd.Series(cells, dtype="Int64")
    x = X.copy()
    x[40] = 0.0
    without = fitted(np.vstack([x[:40], np.full((1, 3), np.nan), x[41:]]), Y)
    assert fitted(X, y) == without
    assert fitted(X, Y) != without  # and the others do count


@pytest.mark.parametrize("odd", ["x", "", pd.NA, pd.NaT, None, 10**400, 1 + 2j, [1.0], np.inf])
def test_one_odd_cell_never_raises_and_costs_its_row(odd: Any) -> None:
    cells = X.astype(object)
    cells[40, 1] = odd
    gone = X.copy()
    gone[40, 1] = np.nan
    assert fitted(cells, Y) == fitted(gone, Y)
    assert fitted(pd.DataFrame(cells), Y) == fitted(gone, Y)
    assert fitted(cells.tolist(), Y, n_features=3) == fitted(gone, Y)
    plan = plan_of(300, 3)
    assert typed(stream(cells, Y, non_finite="zero"), plan)[1:] == typed(stream(gone, Y, non_finite="zero"), plan)[1:]


def test_a_target_beyond_float64_is_a_zero_row() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dpsco.PrivateLinearRegression(**COMMON, label_bound=1.0)
        targets: list[Any] = X[:, 0].tolist()
        one = model.fit(X, [*targets[:40], 10**400, *targets[41:]]).coef_.tobytes()
        two = model.fit(X, [*targets[:40], np.nan, *targets[41:]]).coef_.tobytes()
    assert one == two


def test_messages_quote_no_row() -> None:
    secret = 0.123456789
    cases: list[Any] = [
        lambda: fitted(np.full((300, 3), secret + 1j), Y, invalid_rows="error"),
        lambda: fitted(np.full(300, secret), Y),
        lambda: fitted(np.full(300, secret), Y, invalid_rows="error"),
        lambda: train(plan_of(300, 3), stream(np.full((300, 3), secret + 1j), Y)),
        lambda: stream(np.full(300, secret), Y),
        lambda: stream(np.full((300, 3), secret), Y[:299], ids=range(300)),
    ]
    for case in cases:
        with pytest.raises((ValueError, TypeError)) as caught:
            case()
        assert "0.123" not in str(caught.value)
        assert "299" not in str(caught.value)
        assert "300" not in str(caught.value)


# --- single rows of an iterable --------------------------------------------------------------------------


def test_an_item_that_holds_many_rows_counts_as_one_zero_row() -> None:
    rows, labels = np.arange(180.0).reshape(60, 3), np.arange(60) % 2
    pairs: list[Any] = list(zip(rows, labels, strict=True))
    clean = typed(stream(pairs, items="rows"), plan_of(60, 3))
    for odd in (
        (np.ones((400, 3)), np.ones(400)),
        (rows[10, :2], 0),
        (None, None),
        5,
        (rows[10], "x"),
        (rows[10], [0, 1]),
        (),
    ):
        changed = typed(stream([*pairs[:10], odd, *pairs[11:]], items="rows"), plan_of(60, 3))
        assert [len(batch) for batch in changed] == [15] * 4
        assert changed[0][:10] == clean[0][:10]
        assert changed[0][11:] == clean[0][11:]
        assert changed[1:] == clean[1:]


# --- ids ------------------------------------------------------------------------------------------------


def test_the_forms_of_one_number_are_one_person() -> None:
    ids = [7, 7.0, np.float32(7), "7", " 7 ", np.int64(7), b"7", True]
    assert ContributionCap(1).counted(ids).tolist() == [True, *[False] * 7]  # a boolean is no id
    plan = plan_of(8, 3, adjacency="add-remove")
    dealt = typed(stream(np.ones((7, 3)), np.ones(7), ids=ids[:7]), plan)
    assert sorted(len(batch) for batch in dealt) == [0, 0, 0, 7]


def test_ids_above_2_to_53_are_different_people(tmp_path: Any) -> None:
    people = [2**53, 2**53 + 1, 2**53 + 2, 2**53]
    lines = "".join(f"{k / 10},{person},1\n" for k, person in enumerate(people))
    (tmp_path / "rows.csv").write_text("a,who,y\n" + lines)
    rows = FileRows(
        tmp_path / "rows.csv", Labels("y", ("0", "1")), PublicColumns(["a"]), unit="who", max_rows_per_unit=1
    )
    assert np.isfinite(np.concatenate([y for _, y in rows])).tolist() == [True, True, True, False]
    for ids in (people, np.array(people), pd.array([*people[:3], people[0]], dtype="Int64"), list(map(str, people))):
        assert ContributionCap(1).counted(ids).tolist() == [True, True, True, False]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, "", 0.5, [1], (2, 3), {}])
def test_rows_without_an_id_never_count_and_raise_nothing(missing: Any) -> None:
    cells: Any = np.empty(6, dtype=object)
    cells[:] = [1, 2, 1, 2, 3, 3]
    cells[1] = missing
    assert ContributionCap(1).counted(cells).tolist() == [True, False, False, True, True, False]
    assert ContributionCap(1).counted(cells.tolist()).tolist() == [True, False, False, True, True, False]
    unit: Any = np.empty(300, dtype=object)
    unit[:] = list(range(300))
    unit[3] = missing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dpsco.PrivateLogisticRegression(**COMMON, classes=[0, 1], max_rows_per_unit=1)
        gone = X.copy()
        gone[3] = np.nan
        assert model.fit(X, Y, unit=unit).coef_.tobytes() == model.fit(gone, Y, unit=list(range(300))).coef_.tobytes()
    plan = plan_of(60, 3, adjacency="add-remove")
    ids: list[Any] = list(range(60))
    whole = typed(stream(X[:60], Y[:60], ids=ids, non_finite="zero"), plan)
    ids[9] = missing
    left = typed(stream(X[:60], Y[:60], ids=ids, non_finite="zero"), plan)
    row = X[9].tobytes() + np.float64(Y[9]).tobytes()
    assert left == [[other for other in batch if other != row] for batch in whole]


def test_a_unit_that_is_replaced_or_leaves_changes_the_counted_rows_of_no_other_unit() -> None:
    """The rows of one unit get the id of a unit without other rows, or none: others count as before."""
    for limit in (1, 2, 3):
        ids: Any = RNG.integers(0, 8, 60).astype(object)
        before = ContributionCap(limit).counted(ids)
        for unit in range(8):
            for new in ("somebody else", None):
                other = ids.copy()
                other[ids == unit] = new
                after = ContributionCap(limit).counted(other)
                assert np.array_equal(before[ids != unit], after[ids != unit])
                assert np.sum(after[ids == unit]) == (0 if new is None else np.sum(before[ids == unit]))


# --- files ----------------------------------------------------------------------------------------------


def test_one_byte_that_is_not_utf8_costs_its_own_cell(tmp_path: Any) -> None:
    lines = [f"{k / 100},city,{k % 2}".encode() for k in range(100)]
    columns = PublicColumns(["a"], categories={"c": ["city"]})
    chunks = []
    for cell in (b"0.5,city,1", b"\xff\xfe,city,1", b"0.5,\xffcity,1", b"0.5,city,\xff"):
        (tmp_path / "rows.csv").write_bytes(b"a,c,y\n" + b"\n".join([*lines[:40], cell, *lines[41:]]) + b"\n")
        rows = list(FileRows(tmp_path / "rows.csv", Labels("y", ("0", "1")), columns))
        chunks.append(np.hstack([np.concatenate([x for x, _ in rows]), np.concatenate([y for _, y in rows])[:, None]]))
    for other in chunks[1:]:
        assert np.array_equal(np.delete(chunks[0], 40, 0), np.delete(other, 40, 0))
    assert chunks[1][40, 0] == 0.0
    assert chunks[2][40, 1] == 0.0
    assert np.isnan(chunks[3][40, 2])


def test_a_csv_without_a_header_does_not_print_its_first_row(tmp_path: Any, capsys: Any) -> None:
    """Alone, or behind a file that has one."""
    from dpsco.cli import main

    (tmp_path / "alone").mkdir()
    (tmp_path / "behind").mkdir()
    (tmp_path / "alone" / "0.csv").write_text("41.5,secret,1\n39.0,other,0\n")
    (tmp_path / "behind" / "0.csv").write_text("age,city,y\n40.0,other,1\n")
    (tmp_path / "behind" / "1.csv").write_text("41.5,secret,1\n39.0,other,0\n")
    common = ["--epsilon", "1", "--delta", "1e-5", "--out", str(tmp_path / "model.json")]
    for folder, words in (("alone", []), ("alone", ["--features", "age"]), ("behind", ["--features", "age"])):
        assert main(["fit", str(tmp_path / folder), "--label", "y", *words, *common]) == 2
        told = capsys.readouterr()
        assert "first line" in told.err
        assert "secret" not in told.err + told.out
        assert "41.5" not in told.err + told.out
