"""Sums made shard by shard are, bit for bit, those of one process over the same round."""

from __future__ import annotations

import os
import pickle
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import dpsco
from dpsco.clipping import CompiledOracle, LinearOracle
from dpsco.engines.dask import ParquetRows, layout, tasks
from dpsco.engines.dask.messages import SensitiveSum
from dpsco.engines.dask.stream import ShardStream
from dpsco.errors import DataError, InvalidArgument
from dpsco.query import Clipped, Query, to_grid
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns

DENSE = PublicColumns([f"x{j}" for j in range(4)], categories={"city": ["Lyon", "Paris"]})
SPARSE = PublicColumns(["x0"], hashed={"city": 200})
LABELS = Labels("bought", ("no", "yes"))


@pytest.fixture(autouse=True)
def small_shards(monkeypatch) -> None:
    monkeypatch.setattr(layout, "SHARD_BYTES", 100_000)


def a_plan(columns: PublicColumns, loss=None, rounds: int = 3) -> dpsco.Plan:
    problem = dpsco.Problem(loss or dpsco.Logistic(), dpsco.L2Ball(5.0), columns.width, intercept=True)
    return dpsco.Plan(
        problem, 19_000, dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=rounds, beta=0.25, clip=0.7)
    )


def a_query(plan: dpsco.Plan, step: int) -> Query:
    rng = np.random.default_rng(step)
    points = tuple(rng.standard_normal((2, plan.problem.parameters)))
    return Query(
        step, points, (2.0, -1.5), plan.schedule.calibration.clip, plan.batch_size, plan.schedule.calibration.grid
    )


def sums_by_shards(plan: dpsco.Plan, rows: ParquetRows, oracle) -> tuple[list[Clipped], list[SensitiveSum]]:
    totals, messages = [], []
    for batch in ShardStream(rows).open(plan.layout):
        total = Clipped(np.zeros(plan.problem.parameters), 0)
        for span in batch.spans:
            held = {k: tasks.load(rows.shards[k], rows.form, rows.unreadable, rows.order.shuffle) for k in span.shards}
            lent = [pickle.loads(pickle.dumps(tasks.pick(held[k], rows.order, span))) for k in span.others]  # noqa: S301
            message = tasks.answer(a_query(plan, batch.step), oracle, rows.order, span, held[span.home], *lent)
            messages.append(pickle.loads(pickle.dumps(message)))  # noqa: S301
            total += messages[-1].clipped()
        total.total = to_grid(total.total, plan.schedule.calibration.grid)
        totals.append(total)
    return totals, messages


@pytest.mark.parametrize("shuffle", [0, 1_500, 9_000])
@pytest.mark.parametrize(
    ("columns", "loss", "oracle"),
    [
        (DENSE, dpsco.Logistic(), LinearOracle),
        (DENSE, dpsco.Logistic(), CompiledOracle),
        (DENSE, dpsco.Softmax(2), CompiledOracle),
        (SPARSE, dpsco.Logistic(), LinearOracle),
        (SPARSE, dpsco.Logistic(), CompiledOracle),
    ],
    ids=["plain", "compiled", "softmax", "sparse", "sparse-compiled"],
)
def test_the_sums_of_a_round_are_those_of_one_process(table, columns, loss, oracle, shuffle) -> None:
    plan, answers = a_plan(columns, loss), oracle(loss, intercept=True)
    totals, messages = sums_by_shards(plan, ParquetRows(table, LABELS, columns, shuffle=shuffle), answers)
    assert len(messages) > 4  # rounds are cut
    stream = dpsco.stream(FileRows(table, LABELS, columns, shuffle=shuffle))
    for batch, total in zip(stream.open(plan.layout), totals, strict=True):
        wanted = answers.answer(a_query(plan, batch.step), batch)
        assert total.total.tobytes() == wanted.total.tobytes()
        assert (total.rows, total.clipped_rows, total.zeroed_rows) == (
            wanted.rows,
            wanted.clipped_rows,
            wanted.zeroed_rows,
        )
        assert 0 < wanted.clipped_rows < wanted.rows


@pytest.mark.parametrize("shuffle", [0, 1_500])
def test_a_file_that_cannot_be_read_stops_or_counts_as_zero_rows(table, tmp_path, shuffle) -> None:
    folder = shutil.copytree(table, tmp_path / "copy")
    plan, oracle = a_plan(DENSE), LinearOracle(dpsco.Logistic(), intercept=True)
    stop = ParquetRows(folder, LABELS, DENSE, shuffle=shuffle)
    zero = ParquetRows(folder, LABELS, DENSE, shuffle=shuffle, unreadable="zero")
    (folder / "part-1.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(DataError, match=r"part-1\.parquet"):
        sums_by_shards(plan, stop, oracle)
    totals, messages = sums_by_shards(plan, zero, oracle)
    assert sum(rows for message in messages for _, rows in message.unread) == 500
    assert {name for message in messages for name, rows in message.unread if rows} == {"part-1.parquet"}
    assert sum(total.rows for total in totals) == plan.rounds * plan.batch_size - 500

    class Blanked(FileRows):  # the same rows with those of the file without a label
        def _straight(self, columns):
            return False  # they lose their labels before they are mixed

        def _table_chunks(self):
            start = 0
            for features, labels in super()._table_chunks():
                place = np.arange(start, start + len(labels))
                yield features, np.where((place >= 7_000) & (place < 7_500), np.nan, labels)
                start += len(labels)

    for batch, total in zip(
        dpsco.stream(Blanked(table, LABELS, DENSE, shuffle=shuffle)).open(plan.layout), totals, strict=True
    ):
        assert total.total.tobytes() == oracle.answer(a_query(plan, batch.step), batch).total.tobytes()


def test_a_file_that_changed_since_the_run_began_is_refused(table, tmp_path) -> None:
    folder = shutil.copytree(table, tmp_path / "copy")
    rows = ParquetRows(folder, LABELS, DENSE)
    shutil.copy(folder / "part-1.parquet", folder / "part-0.parquet")
    with pytest.raises(DataError, match=r"part-0\.parquet"):
        sums_by_shards(a_plan(DENSE), rows, LinearOracle(dpsco.Logistic(), intercept=True))


def test_a_file_that_was_written_again_in_another_order_is_refused(table, tmp_path) -> None:
    """A worker that died has its shard read again: its rows would be in two rounds, at the old place and at the new."""
    folder = shutil.copytree(table, tmp_path / "copy")
    rows = ParquetRows(folder, LABELS, DENSE)
    tasks.load(rows.shards[0], rows.form, "stop", 0)
    path = folder / "part-0.parquet"
    before, held = path.stat(), pq.read_table(path)
    size = pq.read_metadata(path).row_group(0).num_rows
    pq.write_table(held.take(np.arange(len(held))[::-1]), path, row_group_size=size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))  # however coarse the clock of the file system is
    with pytest.raises(DataError, match=r"part-0\.parquet.* as it was"):
        tasks.load(rows.shards[0], rows.form, "stop", 0)
    zeros = tasks.load(rows.shards[0], rows.form, "zero", 0)
    assert all(np.isnan(labels).all() for _, labels in zeros.between(0, len(held)))


def test_nothing_sensitive_prints(table) -> None:
    rows = ParquetRows(table, LABELS, DENSE)
    held = tasks.load(rows.shards[0], rows.form, "stop", 0)
    span = next(ShardStream(rows).open(a_plan(DENSE).layout)).spans[0]
    shown = [repr(held), str(tasks.pick(held, rows.order, span)), repr(SensitiveSum(np.ones(3), 5, 2, 1))]
    assert shown == [f"Sensitive{name}(<sensitive>)" for name in ("Rows", "Pick", "Sum")]


def test_a_shard_weighs_so_much_that_dask_makes_sums_where_it_is(table) -> None:
    """Dask weighs bytes that would move, at 100 MB per second, against tasks that wait, of 0.5 s each by default."""
    rows = ParquetRows(table, LABELS, DENSE)
    held = tasks.load(rows.shards[0], rows.form, "stop", 0)
    assert held.__sizeof__() >= 10 * sum(features.nbytes for features, _ in held.chunks)


def test_what_a_cluster_cannot_do_is_refused(table, tmp_path) -> None:
    (tmp_path / "rows.csv").write_text("x0,bought\n1,yes\n")
    with pytest.raises(InvalidArgument, match="Parquet"):
        ParquetRows(tmp_path / "rows.csv", LABELS, PublicColumns(["x0"]))
    with pytest.raises(DataError, match="4 features"):
        ShardStream(ParquetRows(table, LABELS, DENSE)).open(a_plan(PublicColumns([f"x{j}" for j in range(4)])).layout)
    with pytest.raises(DataError, match="no column"):
        ParquetRows(table, LABELS, PublicColumns(["height"]))
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), DENSE.width)
    moving = dpsco.Plan(
        problem, 9_000, dpsco.Budget(1.0, 1e-6, "add-remove"), dpsco.AcceleratedSRGD(rounds=3, beta=0.25, clip=1.0)
    )
    with pytest.raises(InvalidArgument, match="add-remove"):
        ShardStream(ParquetRows(table, LABELS, DENSE)).open(moving.layout)
