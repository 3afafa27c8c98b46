"""Train on a cluster: ``python examples/cluster/people.py``.

Writes a folder of Parquet files, starts a Dask cluster of two worker processes on this machine, trains there, and shows
that the model is the one of a single process, bit for bit. On your own cluster, ``local_cluster(2)`` becomes
``cluster_at("tls://scheduler:8786")`` and the folder ``s3://bucket/people``; nothing else changes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpsco
from dpsco.engines.dask import ParquetRows, local_cluster, train
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns

ROWS, FILES = 200_000, 4


def write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for k in range(FILES):
        n = ROWS // FILES
        age, hours = rng.uniform(18, 90, n), rng.uniform(0, 80, n)
        city = rng.choice(["Lyon", "Nice", "Paris"], n)
        chance = 1 / (1 + np.exp(-(age - 50) / 10 - (hours - 40) / 20 - (city == "Paris")))
        cells = {"age": age, "hours": hours, "city": city, "income": np.where(rng.random(n) < chance, "high", "low")}
        pq.write_table(pa.table(cells), folder / f"part-{k}.parquet", row_group_size=10_000)


def main() -> None:
    labels = Labels("income", classes=("low", "high"))
    columns = PublicColumns(
        ranges={"age": (0, 100), "hours": (0, 100)}, categories={"city": ["Lyon", "Nice", "Paris"]}, centered=True
    )
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(20.0), columns.width, intercept=True)
    plan = dpsco.plan(problem, n=ROWS, budget=dpsco.Budget(epsilon=1.0, delta=1e-6))
    # A fixed key makes two runs comparable; their reports say "not private". Omit it otherwise.
    key = bytes(32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        with local_cluster(2) as client:
            there = train(plan, ParquetRows(folder, labels, columns, shuffle=20_000), client, key=key)
        here = dpsco.train(plan, dpsco.stream(FileRows(folder, labels, columns, shuffle=20_000)), key=key)
    print(f"{plan.rounds} rounds of {plan.batch_size:,} rows; a query is two vectors of {problem.parameters} numbers")
    for feature, weight in zip(columns.feature_names, there.model.coef, strict=True):
        print(f"  {feature:<12} {weight:+.3f}")
    print(f"the model of one process, bit for bit: {np.array_equal(here.model.coef, there.model.coef)}")


if __name__ == "__main__":  # worker processes import this file
    main()
