"""A surveyed run on shards: the bits of one process in both stages, one row in one sum, any stop resumed."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.clipping import CompiledOracle, MappedOracle
from dpsco.clipping.diagonal_map import diagonal_map
from dpsco.engines.dask import ParquetRows, layout, train
from dpsco.engines.dask import oracle as driver
from dpsco.engines.dask.stream import ShardStream
from dpsco.query import Query
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns
from dpsco.run import watching

DENSE = PublicColumns([f"x{j}" for j in range(4)], categories={"city": ["Lyon", "Paris"]})
WIDE = PublicColumns([f"x{j}" for j in range(4)], hashed={"city": 60})
SPARSE = PublicColumns(["x0"], hashed={"city": 20})
LABELS = Labels("bought", ("no", "yes"))
KEY = bytes(range(32))
N = 19_000


@dataclasses.dataclass(frozen=True)
class Future:
    value: Any

    def result(self) -> Any:
        return self.value


class Here:
    """A client whose tasks run at once, in this process, on copies as a network makes them."""

    def submit(self, task: Any, *arguments: Any, key: str, priority: int) -> Future:
        made = [argument.value if isinstance(argument, Future) else argument for argument in arguments]
        return Future(pickle.loads(pickle.dumps(task(*pickle.loads(pickle.dumps(made))))))  # noqa: S301

    def get(self, graph: dict[str, Any], keys: list[str], *, sync: bool, priority: int) -> list[Future]:
        done: dict[str, Future] = {}

        def made(argument: Any) -> Any:
            return future(argument) if isinstance(argument, str) and argument in graph else argument

        def future(key: str) -> Future:
            if key not in done:
                task, *arguments = graph[key]
                done[key] = self.submit(task, *map(made, arguments), key=key, priority=priority)
            return done[key]

        return [future(key) for key in keys]

    def gather(self, futures: list[Future]) -> list[Any]:
        return [future.value for future in futures]

    def nthreads(self) -> dict[str, int]:
        return {"here": 2}


@pytest.fixture(autouse=True, params=[0, 1 << 30])
def small_shards(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Small shards, all queries and sums long ones or all short ones."""
    monkeypatch.setattr(layout, "SHARD_BYTES", 100_000)
    monkeypatch.setattr(driver, "_LONG_QUERY", request.param)
    monkeypatch.setattr(driver, "_LONG_SUM", request.param)


def a_plan(
    columns: PublicColumns, loss: Any = None, kind: str = "full", adjacency: str = "zero-out", rows: int = 3_000
) -> dpsco.Plan:
    problem = dpsco.Problem(loss or dpsco.Logistic(), dpsco.L2Ball(50.0), columns.width, intercept=True)
    budget = dpsco.Budget(1.0, 1e-6, adjacency)
    changes = {"later": "measured-srgd"} if kind == "measured" else {"kind": kind}
    return dpsco.Plan(problem, N, budget, dpsco.Surveyed(rounds=5, rows=rows, **changes))


@pytest.mark.parametrize("shuffle", [0, 1_500])
@pytest.mark.parametrize(
    ("columns", "loss", "kind"),
    [
        (DENSE, dpsco.Logistic(), "full"),
        (DENSE, dpsco.Logistic(), "diagonal"),
        (WIDE, dpsco.Logistic(), "low-rank"),
        (DENSE, dpsco.Softmax(2), "full"),
        (SPARSE, dpsco.Logistic(), "full"),
        (SPARSE, dpsco.Logistic(), "measured"),
    ],
    ids=["dense", "diagonal", "low-rank", "softmax", "sparse", "measured"],
)
def test_shards_give_the_bits_of_one_process(table, columns, loss, kind, shuffle) -> None:
    plan = a_plan(columns, loss, kind)
    alone = dpsco.train(plan, dpsco.stream(FileRows(table, LABELS, columns, shuffle=shuffle)), key=KEY)
    spread = train(plan, ParquetRows(table, LABELS, columns, shuffle=shuffle), Here(), key=KEY)
    assert spread.model.coef.tobytes() == alone.model.coef.tobytes()
    assert spread.trace == alone.trace
    assert spread.health == alone.health
    assert spread.report.rounds == alone.report.rounds
    assert spread.report.rows_missing == alone.report.rows_missing
    assert any("scheduler and workers" in text for text in spread.report.assumptions)


@pytest.mark.parametrize("shuffle", [0, 1_500])
@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_sparse_rows_in_a_diagonal_metric_give_the_bits_of_one_process(table, constant: float, shuffle: int) -> None:
    """The kernel sums them on a grid per column, and multiplies by the scales once: the driver does, for all shards."""
    rng = np.random.default_rng(0)
    scales = rng.uniform(0.2, 1.0, SPARSE.width + (constant > 0))
    oracle = MappedOracle(CompiledOracle(dpsco.Logistic()), diagonal_map(scales, 1.0, constant))
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), len(scales))
    method = dpsco.AcceleratedSRGD(rounds=2, beta=0.5, clip=0.2)
    plan = dpsco.Plan(problem, N, dpsco.Budget(1.0, 1e-6), method)
    paid = plan.schedule.calibration
    rows = ParquetRows(table, LABELS, SPARSE, shuffle=shuffle)
    stream = ShardStream(rows)
    spread = driver.DaskOracle(Here(), stream, oracle)
    whole = dpsco.stream(FileRows(table, LABELS, SPARSE, shuffle=shuffle))
    layout_of = dataclasses.replace(plan.layout, width=SPARSE.width)
    for part, batch in zip(stream.open(layout_of), whole.open(layout_of), strict=True):
        points = tuple(rng.normal(size=(2, len(scales))))
        query = Query(batch.step, points, (2.0, -1.5), paid.clip, plan.batch_size, paid.grid)
        assert spread.oracle.of_a_part(query) is not None
        assert len(part.spans) > 1
        found, wanted = spread.answer(query, part), oracle.answer(query, batch)
        assert found.total.tobytes() == wanted.total.tobytes()
        assert 0 < found.clipped_rows == wanted.clipped_rows


@pytest.mark.parametrize("kind", ["full", "low-rank"])
def test_long_sums_of_a_survey_reach_the_driver_as_one(table, kind) -> None:
    """Pairs are added on the workers, pairs of pairs too: one message for each group of spans."""
    came: list[tuple[int, int]] = []

    class Counting(Here):
        def get(self, graph: dict[str, Any], keys: list[str], **options: Any) -> list[Future]:
            spans = sum(key.startswith("answer-") and not key.endswith("+") for key in graph)
            if spans:  # others have shards read
                came.append((spans, len(keys)))
            return super().get(graph, keys, **options)

        def nthreads(self) -> dict[str, int]:
            return {"here": 12}

    train(a_plan(WIDE, kind=kind, rows=12_000), ParquetRows(table, LABELS, WIDE), Counting(), key=KEY)
    spans, messages = came[0]
    assert spans >= 3
    assert messages == (1 if driver._LONG_SUM == 0 else spans)


def test_a_stopped_run_goes_on_to_the_same_bits(table, tmp_path) -> None:
    plan, rows = a_plan(DENSE), (table, LABELS, DENSE)
    whole = train(plan, ParquetRows(*rows), Here(), key=KEY)
    for at in (0, 1):

        def stop(seen: Any, at: int = at) -> None:
            if seen.step == at:
                raise KeyboardInterrupt

        folder = tmp_path / str(at)
        with pytest.raises(KeyboardInterrupt):
            train(plan, ParquetRows(*rows), Here(), key=KEY, checkpoint=folder, on_round=stop)
        again = train(plan, ParquetRows(*rows), Here(), key=KEY, checkpoint=folder, resume=True)
        assert again.model.coef.tobytes() == whole.model.coef.tobytes()


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_one_row_of_a_file_moves_one_sum_by_no_more_than_the_noise_covers(tmp_path, adjacency) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = PublicColumns(["a", "b"])
    rng = np.random.default_rng(3)
    cells = {"a": rng.standard_normal(N), "b": 0.1 * rng.standard_normal(N), "bought": rng.choice(["no", "yes"], N)}
    plan = a_plan(columns, adjacency=adjacency)

    def observed(changed: dict[int, tuple[float, float, str]], frozen: list[Any] | None = None) -> tuple[Any, ...]:
        table = {name: list(values) for name, values in cells.items()}
        for row, values in changed.items():
            for name, value in zip(table, values, strict=True):
                table[name][row] = value
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table(table), path, row_group_size=1_700)
        sums, released = [], []

        def observer(query: Any, clipped: Any, value: Any) -> None:
            sums.append(clipped.total.copy())
            released.append(value.value)

        with watching(observer, replay=frozen):
            result = train(plan, ParquetRows(path, LABELS, columns), Here(), key=KEY)
        shown = (dataclasses.replace(result.report, run_id="", reason=""), result.model.coef.tobytes(), result.health)
        return sums, released, shown

    _, released, _ = observed({})
    for place in (5, 2_999, 3_000, N - 10):
        one = observed({place: (0.0, 0.0, "neither")} if adjacency == "zero-out" else {}, released)
        two = observed({place: (9.0, -9.0, "yes")}, released)
        assert one[2] == two[2]
        apart = [float(np.linalg.norm(a - b)) for a, b in zip(one[0], two[0], strict=True)]
        moved = [t for t, distance in enumerate(apart) if distance > 0]
        assert moved == ([0] if place < 3_000 else moved[:1])
        assert moved
        if place < 3_000:
            assert apart[0] <= plan.schedule.calibration.at(0).difference
