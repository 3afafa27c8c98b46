"""The whole comparison, section by section, as one dictionary that JSON can hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dpsco.research.compare.compared_methods import NEED_ACCOUNTANT, accountant_installed
from dpsco.research.compare.comparison_size import ComparisonSize
from dpsco.research.compare.conclusions import conclusions
from dpsco.research.compare.file_data import FileData
from dpsco.research.compare.headline_ratios import headline_ratios
from dpsco.research.compare.process_pool import open_pool
from dpsco.research.compare.run_cache import open_cache
from dpsco.research.compare.sections import (
    accuracy_on_file,
    excess_by_passes,
    excess_by_rounds,
    excess_by_size,
    minimiser_outside_set,
    paper_table_costs,
)

__all__ = ["compare"]

FORMAT = 3

SECTIONS = {
    "rounds": ("excess against rounds", excess_by_rounds),
    "passes": ("one pass and many", excess_by_passes),
    "outside": ("minimiser outside the set", minimiser_outside_set),
    "sizes": ("excess against n", excess_by_size),
}
"""Sections whose methods are tuned."""


def compare(
    size: ComparisonSize, folder: Path, *, processes: int, data: FileData | None = None, progress: bool = True
) -> dict[str, Any]:
    """Make the runs that are missing in ``folder`` and return all results.

    Parameters
    ----------
    size
        How much to measure: `QUICK`, `MEDIUM` or `FULL`.
    folder
        Where finished runs are kept. The folder of an interrupted comparison continues it.
    processes
        Number of worker processes.
    data
        A file to compare test accuracy on.
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    dict
        The content of compare.json: one entry per section, the headline ratios, the conclusions, and how it was
        measured.

    Guarantee
    ---------
    The same size, file and code of the methods give the same figures, seconds aside, for any number of processes and
    any number of interruptions.
    """
    began, total = time.monotonic(), _total(size, data)
    with (
        open_cache(folder) as cache,
        _progress_bar(total, progress) as (advance, describe),
        open_pool(cache, processes, advance) as pool,
    ):
        results: dict[str, Any] = {"format": FORMAT}
        for name, (title, section) in _tuned(size).items():
            describe(title)
            results[name] = section.measure(pool, size)
        if size.table_sizes:
            describe("Table 1")
            results["table"] = paper_table_costs.measure(pool, size)
        if data is not None:
            describe(f"accuracy on {data.path.name}")
            results["file"] = accuracy_on_file.measure(pool, size, data)
        made = pool.made
    results["ratios"] = headline_ratios(results["rounds"])
    results["findings"] = conclusions(results)
    results["how"] = {
        "scale": size.name,
        "configurations": size.budget.configurations,
        "tuning": size.budget.tuning,
        "scoring": size.budget.scoring,
        "runs": total,
        "runs_made_now": made,
        "seconds": round(time.monotonic() - began, 1),
        "processes": processes,
        "version": version("dpsco"),
        "left_out": "" if accountant_installed() else _LEFT_OUT,
    }
    return results


_LEFT_OUT = (
    f"Left out: {' and '.join(NEED_ACCOUNTANT.values())}. They need a numerical accountant: install dpsco[accounting]."
)


def _tuned(size: ComparisonSize) -> dict[str, tuple[str, Any]]:
    """Return the sections that this size has."""
    wanted = {"outside": bool(size.outside_sizes), "sizes": bool(size.sizes)}
    return {name: section for name, section in SECTIONS.items() if wanted.get(name, True)}


def _total(size: ComparisonSize, data: FileData | None) -> int:
    tasks = [task for _, section in _tuned(size).values() for task in section.tasks(size)]
    tasks += [] if data is None else accuracy_on_file.tasks(size, data)
    return sum(task.budget.runs for task in tasks) + len(paper_table_costs.runs(size))


@contextmanager
def _progress_bar(total: int, show: bool) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Yield a function that counts runs and one that names the section; both do nothing unless ``show``."""
    if not show:
        yield lambda _: None, lambda _: None
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("[progress.description]{task.description:<26}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("runs"),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("starting", total=total)
        yield lambda runs: progress.advance(task, runs), lambda title: progress.update(task, description=title)
