"""A progress bar of rounds: rounds done, time left. It shows public numbers only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(rounds: int, rows: int, *, show: bool) -> Iterator[Callable[[int], None]]:
    """Return a function to call after each round with the number of all rounds; it does nothing unless ``show``.

    Parameters
    ----------
    rounds, rows : int
        The most rounds, and all their rows. A survey decides how many rounds there are.
    show : bool
        Whether there is a bar.
    """
    if not show:
        yield lambda rounds: None
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
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds, {task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # Standard error: a reader of the output that goes away (| head) must not end a run that has spent its budget.
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("training", total=rounds, rate="")

        def advance(rounds: int) -> None:
            progress.update(task, advance=1, total=rounds)
            speed = progress.tasks[0].speed
            progress.update(task, rate="" if speed is None else f"{speed * rows / rounds:,.0f} rows/s")

        yield advance
