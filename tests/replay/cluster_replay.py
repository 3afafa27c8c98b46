"""Record and replay on a real Dask cluster, for test_every_cluster.py in a network namespace: prints one JSON object.

python cluster_replay.py all|few WORKERS FOLDER CASE...
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from dpsco.audit.recording import Transcript, observe
from dpsco.cli import main as command_line
from dpsco.engines.dask import ParquetRows, layout, local_cluster, train
from dpsco.rows.file_stream import Labels
from dpsco.rows.public_columns import PublicColumns
from dpsco.run.model_file import SavedModel

N, P, T, FILES = 12_000, 3, 3, 3
COLUMNS = PublicColumns(["a", "b", "c"])
LABELS = Labels("y", ("no", "yes"))
Cells = dict[str, list[Any]]


def cells(seed: int = 0, n: int = N) -> Cells:
    rng = np.random.default_rng(seed)
    table: Cells = {name: rng.standard_normal(n).round(4).tolist() for name in "abc"}
    return {**table, "y": rng.choice(["no", "yes"], n).tolist()}


DATA = {
    "ordinary": cells,
    "duplicate rows": lambda: {"a": [0.5] * N, "b": [-0.25] * N, "c": [1.5] * N, "y": ["yes"] * N},
    "one class only": lambda: {**cells(1), "y": ["no"] * N},
    "every cell missing": lambda: {**dict.fromkeys("abc", [None] * N), "y": [None] * N},
    "short last batch": lambda: cells(2, N - 1_777),
    "last batch empty": lambda: cells(3, 2 * N // T),
    "rows left over": lambda: cells(4, N + 2_000),
}
ROWS: dict[str, tuple[Any, Any, Any, Any]] = {
    "mirrored": (-9.0, 3.0, 1.0, "yes"),
    "huge": (1e30, -1e30, 0.0, "no"),
    "not finite": (float("nan"), float("inf"), 1.0, "yes"),
    "missing": (None, None, None, None),
    "unknown class": (1.0, 1.0, 1.0, "perhaps"),
}


def write(folder: Path, table: Cells) -> Path:
    """The rows in several files, whose row groups are not the cuts of anything."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    types = pa.schema([*((name, pa.float64()) for name in "abc"), ("y", pa.string())])
    whole = pa.table(table, schema=types)
    edges = np.linspace(0, len(whole), FILES + 1).astype(int)
    for k in range(FILES):
        pq.write_table(whole[edges[k] : edges[k + 1]], folder / f"part-{k}.parquet", row_group_size=1_100)
    return folder


def plan() -> dpsco.Plan:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), P, intercept=True)
    return dpsco.Plan(
        problem, N, dpsco.Budget(1.0, 1e-6, "replace"), dpsco.AcceleratedSRGD(rounds=T, beta=0.25, clip=0.5)
    )


def watch(client: Any, folder: Path, shuffle: int, frozen: Transcript | None = None) -> Transcript:
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("dpsco").addHandler(handler)

    def run() -> bytes:
        rows = ParquetRows(folder, LABELS, COLUMNS, shuffle=shuffle)
        result = train(plan(), rows, client)
        shown = repr(dataclasses.replace(result.report, run_id="")) + repr(result.trace) + repr(logged)
        return shown.encode() + result.model.coef.tobytes()

    try:
        return observe(run, frozen)
    finally:
        logging.getLogger("dpsco").removeHandler(handler)


def compared(one: Transcript, two: Transcript) -> dict[str, Any]:
    return {
        "distances": [float(np.linalg.norm(a - b)) for a, b in zip(one.sums, two.sums, strict=True)],
        "errors": [one.error, two.error],
        "warned": [*one.warned, *two.warned],
        "seen alike": one.visible == two.visible,
        "asked alike": [q.digest() for q in one.queries] == [q.digest() for q in two.queries],
    }


CHANGES = {
    "few": [(1_500, -1, "mirrored"), (1_500, 0, "unknown class")],
    "all": [
        (shuffle, place, odd)
        for shuffle in (0, 1_500)
        for place, odd in ((0, "mirrored"), (5_000, "unknown class"), *((-1, odd) for odd in ROWS))
    ],
}
"""Rows of a shuffle, the row that is changed, and what takes its place."""


def main(changes: str, workers: int, scratch: Path, names: list[str]) -> dict[str, Any]:
    layout.SHARD_BYTES = 60_000  # small shards: rounds are cut, and rows are lent
    found: dict[str, Any] = {"difference": plan().schedule.calibration.difference}
    with local_cluster(workers) as client:
        for name in names:
            base = DATA[name]()
            whole = write(scratch / name / "whole", base)
            runs: dict[int, Transcript] = {}
            for shuffle, place, odd in CHANGES[changes]:
                if shuffle not in runs:
                    runs[shuffle] = watch(client, whole, shuffle)
                changed = {column: list(values) for column, values in base.items()}
                for column, value in zip("abcy", ROWS[odd], strict=True):
                    changed[column][place] = value
                other = write(scratch / name / f"{shuffle} {place} {odd}", changed)
                two = watch(client, other, shuffle, runs[shuffle])
                found[f"{name}, shuffle {shuffle}, row {place} {odd}"] = compared(runs[shuffle], two)
    return found


def command(workers: int, scratch: Path) -> dict[str, Any]:
    changed = cells()
    for column, value in zip("abcy", ROWS["mirrored"], strict=True):
        changed[column][4_321] = value
    runs: list[Transcript] = []
    for name, table in (("one", cells()), ("two", changed)):
        folder, shown = write(scratch / name, table), io.StringIO()
        words = f"fit {folder} --label y --classes no,yes --epsilon 1 --delta 1e-6 --adjacency replace --json"

        def run(folder: Path = folder, shown: io.StringIO = shown, words: str = words) -> bytes:
            rest = f"--rounds {T} --local-cluster {workers} --out {folder}/model.json"
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                code = command_line([*words.split(), *rest.split()])
            result = SavedModel.read(folder / "model.json").result
            text = shown.getvalue().replace(str(folder), "").replace(result.report.run_id, "")
            text = re.sub(r"^.* Worker process still alive after .*\n", "", text, flags=re.MULTILINE)  # a slow machine
            return f"{code} {text} {result.trace}".encode() + result.model.coef.tobytes()

        runs.append(observe(run, runs[0] if runs else None))
    report = SavedModel.read(scratch / "one" / "model.json").result.report  # behind a survey: that of its rounds
    return {"difference": report.difference, "the command": compared(*runs)}


if __name__ == "__main__":
    kind, workers, folder, *names = sys.argv[1:]
    found = command(int(workers), Path(folder)) if kind == "command" else main(kind, int(workers), Path(folder), names)
    print(json.dumps(found))
