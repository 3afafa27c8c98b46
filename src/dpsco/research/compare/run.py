"""The whole comparison, section after section, into one dictionary that JSON can hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dpsco.research.compare import on_a_file, outside, over_passes, over_rounds, over_sizes, table
from dpsco.research.compare.file_data import FileData
from dpsco.research.compare.findings import findings
from dpsco.research.compare.marks import marks
from dpsco.research.compare.pool import Pool, opened_pool
from dpsco.research.compare.scale import Scale
from dpsco.research.compare.store import opened

__all__ = ["compare"]

FORMAT = 1


def compare(
    scale: Scale, folder: Path, *, jobs: int, data: FileData | None = None, show: bool = True
) -> dict[str, Any]:
    """Run what is missing, keep every run in ``folder``, give back all that was found.

    Guarantee: the same scale, file and code of the methods give the same figures, seconds aside, whatever ``jobs``
    and however often the comparison was stopped and started again.
    """
    began = time.monotonic()
    with (
        opened(folder) as store,
        _bar(_total(scale, data), show) as (advance, tell),
        opened_pool(store, jobs, advance) as pool,
    ):
        found = _sections(pool, scale, data, tell)
        made = pool.made
    found["marks"] = marks(found["rounds"])
    found["findings"] = findings(found)
    effort = scale.effort
    found["how"] = {
        "scale": scale.name,
        "configurations": effort.configurations,
        "tuning": effort.tuning,
        "scoring": effort.scoring,
        "runs": _total(scale, data),
        "runs_made_now": made,
        "seconds": round(time.monotonic() - began, 1),
        "processes": jobs,
        "version": version("dpsco"),
    }
    return {"format": FORMAT, **found}


def _sections(pool: Pool, scale: Scale, data: FileData | None, tell: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, title, section in (
        ("rounds", "excess against rounds", over_rounds),
        ("passes", "one pass beside many", over_passes),
        ("outside", "minimiser outside the set", outside),
        ("sizes", "excess against n", over_sizes),
        ("table", "Table 1", table),
    ):
        tell(title)
        found[name] = section.measure(pool, scale)
    if data is not None:
        tell(f"accuracy on {data.path.name}")
        found["file"] = on_a_file.measure(pool, scale, data)
    return found


def _total(scale: Scale, data: FileData | None) -> int:
    studies = over_rounds.studies(scale) + over_passes.studies(scale) + outside.studies(scale)
    studies += over_sizes.studies(scale) + ([] if data is None else on_a_file.studies(scale, data))
    return sum(study.effort.runs for study in studies) + len(table.trials(scale))


@contextmanager
def _bar(total: int, show: bool) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Functions that count runs and name the section; they do nothing unless ``show``."""
    if not show:
        yield lambda _: None, lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("[progress.description]{task.description:<26}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("runs"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("starting", total=total)
        yield lambda runs: progress.advance(task, runs), lambda title: progress.update(task, description=title)
