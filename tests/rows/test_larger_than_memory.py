"""A Parquet folder four times larger than the address space a process may have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

LIMIT = 1 << 30


@pytest.mark.slow
def test_four_gibibytes_train_within_one(tmp_path: Path, monkeypatch) -> None:
    import sys

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    sys.modules.pop("benchmarks", None)
    from benchmarks.files import within, write_parquet

    write_parquet(tmp_path, 500_000, part=500_000)
    part = next(tmp_path.iterdir())
    copies = -(-4 * LIMIT // part.stat().st_size)
    try:
        for k in range(1, copies):  # whole copies: one file under two names is refused
            shutil.copyfile(part, tmp_path / f"part-{k:04}.parquet")
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) >= 4 * LIMIT
        assert within(tmp_path, 500_000 * copies, LIMIT) < LIMIT / 2**20
    finally:
        shutil.rmtree(tmp_path)  # pytest would keep four gibibytes
