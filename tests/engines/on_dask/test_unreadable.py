"""Files that no worker can read: their rows count as zero rows, and a run without any row is no success."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.engines.on_dask.test_surveyed import KEY, LABELS, Here

import dpsco
from dpsco import PublicColumns
from dpsco.engines.dask import ParquetRows, train
from dpsco.errors import ClusterError
from dpsco.run import Facts

COLUMNS = PublicColumns([f"x{j}" for j in range(3)])
N = 19_000
SAID = "whether a file can be read says nothing about its rows"


def test_a_plan_that_leaves_rows_over_is_no_success_either(table: Path, tmp_path: Path) -> None:
    """19,000 rows in 3 rounds of 6,333."""
    copy = shutil.copytree(table, tmp_path / "copy")
    rows = ParquetRows(copy, LABELS, COLUMNS, unreadable="zero")
    for path in copy.iterdir():
        path.write_bytes(b"PAR1 not any more PAR1")
    with pytest.raises(ClusterError, match="No worker could read a row"):
        train(_plan(rounds=3), rows, Here(), key=KEY)


@pytest.mark.parametrize("key", [None, KEY])
def test_a_run_of_which_no_row_could_be_read_ends_in_an_error(table: Path, tmp_path: Path, key: bytes | None) -> None:
    """Also if it is asked for again, with files that are there again: a complete run is given back as it was."""
    copy, keep = shutil.copytree(table, tmp_path / "copy"), tmp_path / "run"
    rows = ParquetRows(copy, LABELS, COLUMNS, unreadable="zero")
    for path in copy.iterdir():
        path.write_bytes(b"PAR1 not any more PAR1")
    with pytest.raises(ClusterError, match="No worker could read a row"):
        train(_plan(), rows, Here(), key=key, checkpoint=keep)
    whole = ParquetRows(table, LABELS, COLUMNS, unreadable="zero")
    with pytest.raises(ClusterError, match="No worker could read a row"):
        train(_plan(), whole, Here(), key=key, checkpoint=keep, resume=True)


def test_the_report_states_what_rows_of_unreadable_files_need(table: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(table, tmp_path / "copy")
    rows = ParquetRows(copy, LABELS, COLUMNS, unreadable="zero")
    next(copy.iterdir()).write_bytes(b"PAR1 not any more PAR1")
    report = train(_plan(), rows, Here(), key=KEY).report
    assert 0 < (report.rows_missing or 0) < N
    assert any(SAID in line for line in report.assumptions)
    told = Facts(trusted=("the office that joined the files",))
    careful = train(_plan(), ParquetRows(table, LABELS, COLUMNS), Here(), key=KEY, facts=told).report
    assert not any(SAID in line for line in careful.assumptions)
    assert "the office that joined the files" in careful.assumptions


def _plan(rounds: int = 4) -> dpsco.Plan:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=COLUMNS.width)
    method = dpsco.AcceleratedSRGD(rounds=rounds, beta=0.2, clip=1.0)
    return dpsco.Plan(problem, N, dpsco.Budget(1.0, 1e-6), method)
