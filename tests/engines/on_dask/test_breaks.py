"""Attempts to let one cell stop a run, and to get rows onto a worker's disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpsco.engines.dask.layout import shards_of
from dpsco.engines.dask.tasks import load
from dpsco.rows.file_stream import Labels, RowForm
from dpsco.rows.public_columns import PublicColumns
from dpsco.rows.readers.parquet import ParquetSource

from .conftest import HERE, ISOLATED

COLUMNS = PublicColumns(["x0", "x1"], categories={"city": ["Lyon", "Paris"]})
FORM = RowForm(Labels("bought", ("no", "yes")), COLUMNS, 1.0)


def a_file(folder: Path, cell: bytes, column: str) -> Path:
    """Four rows whose third has ``cell`` in ``column``; numbers are text in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = {
        "x0": [b"0.5", b"-0.25", b"0.125", b"0.75"],
        "x1": [b"0.1", b"0.2", b"0.3", b"0.4"],
        "city": [b"Lyon", b"Paris", b"Lyon", b"Nice"],
        "bought": [b"no", b"yes", b"no", b"yes"],
    }
    cells[column][2] = cell
    table = pa.table({name: pa.array(values, pa.binary()).view(pa.string()) for name, values in cells.items()})
    path = folder / "part.parquet"
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("column", ["x0", "city", "bought"])
@pytest.mark.parametrize("cell", [b"\xff\xfe secret", b"a\xffb", b"\xc3", b"\xed\xa0\x80"])
def test_a_cell_that_is_not_utf8_is_a_missing_cell_and_nothing_else(tmp_path: Path, column: str, cell: bytes) -> None:
    """It ended the run with UnicodeDecodeError or ArrowInvalid, which told that the row was there."""
    found = []
    for content in (cell, b"?"):
        path = a_file(tmp_path, content, column)
        (shard,) = shards_of(ParquetSource([path]).groups(FORM.numbers, FORM.texts), 24)
        (rows,) = load(shard, FORM, "stop", 0).chunks
        found.append(rows)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


SPILLING = """
import sys
import distributed
import dpsco.engines.dask
from driver import KEY, a_plan, shards

if __name__ == "__main__":
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, memory_limit="1GB", dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        try:
            dpsco.engines.dask.train(a_plan(), shards(sys.argv[1]), client, key=KEY)
        except dpsco.errors.ClusterError as error:
            print("refused:", error)
"""


def test_a_worker_that_may_spill_rows_to_its_disk_is_refused(table: Path, tmp_path: Path) -> None:
    """Dask's own settings write results to disk from 60 % of memory on."""
    command = [*ISOLATED, sys.executable, "-c", SPILLING, str(table)]
    environment = {"PYTHONPATH": str(HERE), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert "refused: A worker is set to spill to its disk" in done.stdout, done.stderr
