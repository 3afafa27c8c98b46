"""One small table in every format, and what its rows should be, worked out cell by cell."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from dpsco.rows.file_stream import Labels
from dpsco.rows.public_columns import PublicColumns

ROWS = 5_000
CITIES = ["Lyon", "Paris", "Nice", "Oslo"]
COLUMNS = PublicColumns(
    ["height"], ranges={"age": (0, 100)}, categories={"city": ["Lyon", "Paris"]}, hashed={"code": 3}
)
LABELS = Labels("bought", classes=("no", "yes"))


def table() -> dict[str, list]:
    rng = np.random.default_rng(1)
    return {
        "age": rng.uniform(-10, 120, ROWS).round(2).tolist(),
        "height": rng.normal(0, 1, ROWS).round(3).tolist(),
        "city": rng.choice(CITIES, ROWS).tolist(),
        "code": rng.integers(0, 20, ROWS).tolist(),
        "person": rng.integers(0, 2_000, ROWS).tolist(),
        "bought": rng.choice(["no", "yes"], ROWS).tolist(),
    }


def expected(data: dict[str, list]) -> tuple[np.ndarray, np.ndarray]:
    """The rows as the documentation says they are, one at a time, in float64."""
    import hashlib

    rows = []
    for age, height, city, code in zip(data["age"], data["height"], data["city"], data["code"], strict=True):
        bucket = int.from_bytes(hashlib.blake2b(str(code).encode(), digest_size=8).digest(), "little") % 3
        row = [height, min(max(age, 0), 100) / 100, city == "Lyon", city == "Paris", *(bucket == k for k in range(3))]
        rows.append(np.array(row, dtype=float) / max(1.0, float(np.linalg.norm(np.array(row, dtype=float)))))
    return np.array(rows), np.array([name == "yes" for name in data["bought"]], dtype=float)


def write(folder: Path, kind: str) -> Path:
    """The table as a file (or folder) of some kind."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data, path = table(), folder / f"people.{kind}"
    whole = pa.table(data)
    if kind in ("csv", "tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file, delimiter="\t" if kind == "tsv" else ",")
            out.writerow(data)
            out.writerows(zip(*data.values(), strict=True))
    elif kind == "parquet":
        pq.write_table(whole, path, row_group_size=1_000)
    elif kind == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, whole.schema) as out:
            out.write_table(whole, max_chunksize=700)
    elif kind == "stream.arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, whole.schema) as out:
            out.write_table(whole, max_chunksize=700)
    elif kind == "folder":
        path.mkdir()
        for k, start in enumerate(range(0, ROWS, 1_500)):
            pq.write_table(whole.slice(start, 1_500), path / f"part-{k}.parquet")
    return path


def write_matrix(folder: Path, kind: str, x: np.ndarray, y: np.ndarray) -> Path:
    path = folder / ("rows.libsvm" if kind == "libsvm" else "rows.npz")
    if kind == "libsvm":
        with path.open("w", encoding="utf-8") as file:
            for row, label in zip(x.tolist(), y.tolist(), strict=True):
                file.write(" ".join([str(int(label)), *(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v)]) + "\n")
    elif kind == "npz":
        np.savez(path, X=x, y=y)
    else:
        np.savez_compressed(path, X=x, y=y)
    return path
