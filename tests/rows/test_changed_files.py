"""A file that changes while it is read stops the run: a row could be read at two places, for two rounds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.audit.recording import Transcript, observe
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.readers import csv, csv_parse, json_lines, libsvm, npz

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

FILES, EACH = 120, 50
N = FILES * EACH
X = np.random.default_rng(0).standard_normal((N, 2)).round(4)
COLUMNS = dpsco.PublicColumns(["a", "b"])
Rows = list[tuple[float, float, str]]


def _table(rows: Rows) -> Any:
    a, b, y = zip(*rows, strict=True)
    return pa.table({"a": a, "b": b, "y": y})


def _parquet(path: Path, rows: Rows) -> None:
    pq.write_table(_table(rows), path)


def _arrow(path: Path, rows: Rows) -> None:
    table = _table(rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _csv(path: Path, rows: Rows) -> None:
    path.write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))


def _jsonl(path: Path, rows: Rows) -> None:
    path.write_text("".join(f'{{"a": {a}, "b": {b}, "y": "{y}"}}\n' for a, b, y in rows))


def _svm(path: Path, rows: Rows) -> None:
    path.write_text("".join(f"{y} 1:{a} 2:{b}\n" for a, b, y in rows))


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "parquet": _parquet, "arrow": _arrow, "csv": _csv, "jsonl": _jsonl, "svm": _svm,
}  # fmt: skip


def _write(folder: Path, kind: str, rows: Rows) -> None:
    folder.mkdir(exist_ok=True)
    for k in range(FILES):
        path = folder / f"{k:03d}.{kind}"
        before = path.stat().st_mtime_ns if path.exists() else None
        WRITERS[kind](path, rows[k * EACH : (k + 1) * EACH])
        if before is not None:  # however coarse the clock of the file system is
            os.utime(path, ns=(before + 1, before + 1))


@pytest.mark.parametrize("kind", WRITERS)
def test_a_folder_that_is_written_again_in_another_order_gives_no_row_to_two_rounds(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsco.rows.file_stream.available_threads", lambda: 2)  # more would read more files ahead
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 2)
    method = dpsco.AcceleratedSRGD(rounds=4, beta=0.25, clip=0.5)
    plan = dpsco.Plan(problem, N, dpsco.Budget(1.0, 1e-6), method)
    labels = [str(k % 2) for k in range(N)]
    runs: list[Transcript] = []
    for first in ("1", "7"):  # the second data set has a zero row in the place of the first row
        rows = [(float(a), float(b), y) for (a, b), y in zip(X, [first, *labels[1:]], strict=True)]
        folder = tmp_path / "rows"
        shutil.rmtree(folder, ignore_errors=True)
        _write(folder, kind, rows)

        def seen(done: Any, folder: Path = folder, rows: Rows = rows) -> None:
            if done.step == 0:
                _write(folder, kind, rows[::-1])

        files = FileRows(folder, Labels("y", ("0", "1")), 2 if kind == "svm" else COLUMNS)
        given = dpsco.stream(files)
        runs.append(
            observe(
                lambda given=given, seen=seen: dpsco.train(plan, given, on_round=seen).model.coef.tobytes(),
                runs[0] if runs else None,
            )
        )
    apart = [float(np.linalg.norm(one - two)) for one, two in zip(runs[0].sums, runs[1].sums, strict=True)]
    assert sum(distance > 0 for distance in apart) == 1, apart
    assert [run.error for run in runs] == ["DataError"] * 2


def _blocks(kind: str, path: Path) -> Iterator[Any]:
    rows = [(float(a), float(b), str(k % 2)) for k, (a, b) in enumerate(X)]
    if kind == "npz":
        np.savez(path, X=X, y=np.arange(N) % 2)
    else:
        WRITERS[kind](path, rows)
    files = FileRows(path, Labels("y", ("0", "1")), COLUMNS if kind in ("csv", "jsonl") else 2)
    return files._chunks()


@pytest.mark.parametrize("kind", ["csv", "jsonl", "svm", "npz"])
def test_a_file_that_changes_between_two_blocks_is_refused_by_name(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (csv, "BLOCK_BYTES"),
        (csv_parse, "BLOCK_BYTES"),
        (libsvm, "BLOCK_BYTES"),
        (npz, "BLOCK_BYTES"),
    ):
        monkeypatch.setattr(module, name, 1_000)
    monkeypatch.setattr(json_lines, "CHUNK_LINES", 50)
    path = tmp_path / f"rows.{kind}"
    chunks = _blocks(kind, path)
    next(chunks)
    os.utime(path, ns=(1, 1))
    with pytest.raises(dpsco.DataError, match=rf"rows\.{kind}.* as it was"):
        list(chunks)
