"""A complete comparison that is small enough for a test: every section, few methods, tiny n."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsco.research.compare import compare
from dpsco.research.compare import compared_methods as methods
from dpsco.research.compare.comparison_size import ComparisonSize, TuningBudget, fourth_root
from dpsco.research.compare.file_data import FileData
from dpsco.research.compare.paper_table import ROWS
from dpsco.research.compare.sections import (
    accuracy_on_file,
    excess_by_passes,
    excess_by_rounds,
    excess_by_size,
    minimiser_outside_set,
    paper_table_costs,
)
from dpsco.rows.file_stream import Labels

TINY = ComparisonSize(
    name="quick",
    budget=TuningBudget(configurations=4, tuning=1, scoring=2),
    n=1_500,
    rounds=(fourth_root(1_500), 12),
    table_sizes=(256, 512, 1_024),
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
    """Compare once; the lists of methods stay short until the last test, so that commands find the same runs."""
    patch, folder = pytest.MonkeyPatch(), tmp_path_factory.mktemp("comparison")
    rows = folder / "rows.npz"
    rng = np.random.default_rng(0)
    features = rng.standard_normal((1_000, 4)) / 4
    np.savez(rows, X=features, y=(features @ [1.0, -1.0, 0.5, 0.0] > 0).astype(int))
    few = (methods.OURS, methods.UNACCELERATED, methods.INDEPENDENT, methods.DP_SGD, methods.DP_FTRL)
    patch.setattr(excess_by_rounds, "ANY_ROUNDS", few)
    patch.setattr(excess_by_rounds, "PLANNED_ROUNDS", methods.PLANNED_ROUNDS[:3])
    patch.setattr(excess_by_rounds, "OWN_ROUNDS", (methods.PHASED_SGD,))
    patch.setattr(excess_by_rounds, "FURTHER", ())
    patch.setattr(excess_by_size, "BY_SIZE", methods.BY_SIZE[:2])
    patch.setattr(accuracy_on_file, "ON_FILE", (methods.OURS, methods.DP_SGD))
    patch.setattr(excess_by_passes, "ONE_PASS_ROUNDS", 8)
    lines = ("ours-inside", "ours", "feldman")
    patch.setattr(paper_table_costs, "ROWS", tuple(row for row in ROWS if row.line in lines))
    patch.setattr(minimiser_outside_set, "RADIUS", 2.0)
    data = FileData(rows, Labels("y", ("0", "1")), 4, 1.0, 20.0)
    results = compare(TINY, folder / "out", processes=2, data=data, progress=False)
    yield Small(results, folder / "out", rows)
    patch.undo()
