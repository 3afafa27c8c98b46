"""A whole comparison, small enough for a test: every section, few contenders, tiny n."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsco.research.compare import compare, lineup, on_a_file, outside, over_passes, over_rounds, over_sizes, table
from dpsco.research.compare.file_data import FileData
from dpsco.research.compare.scale import Scale, quarter
from dpsco.research.compare.study import Effort
from dpsco.rows.file_stream import Labels

TINY = Scale(
    name="quick",
    effort=Effort(configurations=4, tuning=1, scoring=2),
    n=1_500,
    rounds=(quarter(1_500), 12),
    table_sizes=(256, 512, 1_024),
    table_keys=1,
    sizes=(512, 1_024),
    outside_sizes=(400, 800, 1_600),
    passes_sizes=(1_500,),
    epochs=(),
    full_batch_epochs=(4,),
    file_rounds=(4, 8),
    fresh=2_000,
)


@dataclass(frozen=True)
class Small:
    """A small comparison: its results, its folder and its file of rows."""

    results: dict[str, Any]
    folder: Path
    rows: Path


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    """Made once; the line-up stays small until the last test, so that commands find the same runs."""
    patch, folder = pytest.MonkeyPatch(), tmp_path_factory.mktemp("comparison")
    rows = folder / "rows.npz"
    rng = np.random.default_rng(0)
    features = rng.standard_normal((1_000, 4)) / 4
    np.savez(rows, X=features, y=(features @ [1.0, -1.0, 0.5, 0.0] > 0).astype(int))
    few = (lineup.OURS, lineup.UNACCELERATED, lineup.INDEPENDENT, lineup.DP_SGD, lineup.DP_FTRL)
    patch.setattr(over_rounds, "ROUND_BASED", few)
    patch.setattr(over_rounds, "OWN_SCHEDULE", (lineup.PHASED_SGD,))
    patch.setattr(over_rounds, "BESIDE", ())
    patch.setattr(over_sizes, "SIZED", lineup.SIZED[:2])
    patch.setattr(on_a_file, "ON_A_FILE", (lineup.OURS, lineup.DP_SGD))
    patch.setattr(over_passes, "OWN_ROUNDS", 8)
    patch.setattr(table, "TABLE", tuple(row for row in lineup.TABLE if row.line in ("ours-inside", "ours", "feldman")))
    patch.setattr(outside, "RADIUS", 2.0)
    data = FileData(rows, Labels("y", ("0", "1")), 4, 1.0, 20.0)
    yield Small(compare(TINY, folder / "out", jobs=2, data=data, show=False), folder / "out", rows)
    patch.undo()
