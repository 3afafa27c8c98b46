"""Output that several commands share: JSON, tables, units."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsco.run.model_file import SavedModel

__all__ = ["format_bytes", "format_count", "print_coefficients", "print_json", "print_table"]

MOST_ROWS = 60
"""Lines of coefficients that are printed at most."""


def print_json(body: Any) -> None:
    """Print one JSON object."""
    print(json.dumps(body, indent=2, sort_keys=True))


def print_coefficients(saved: SavedModel) -> None:
    """Print the coefficients of a model in the units of its table; many of them are named by their number alone."""
    table = saved.table
    if table is None:
        return
    if len(table.rows) > MOST_ROWS:
        print(f"{len(table.rows):,} coefficients are in the model file and on the page (--html).\n")
    else:
        print(table, "\n")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    left: Sequence[int] = (0,),
    width: int | None = None,
) -> None:
    """Print a table without frame; columns in ``left`` are left-aligned, all others right-aligned."""
    lines = [tuple(columns), *(tuple(row) for row in rows)]
    wide = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    if sum(wide) + 2 * len(wide) <= (width or get_terminal_size().columns):  # loading rich takes longer than a plan
        print(*([title] if title else []), sep="\n", end="\n" if title else "")
        for line in lines:
            cells = (f"{cell:{'<' if k in left else '>'}{wide[k]}}  " for k, cell in enumerate(line))
            print("".join(cells).rstrip())
        print()
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place in left else "right", overflow="fold", vertical="bottom")
    for row in lines[1:]:
        table.add_row(*row)
    Console(width=width, highlight=False).print(table, "", markup=False)


def format_bytes(count: float) -> str:
    """Return a number of bytes with its unit.

    >>> format_bytes(8_000_000)
    '8 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def format_count(value: float) -> str:
    """Return a count in full below a million, with an exponent above.

    >>> format_count(12_345), format_count(2e9)
    ('12,345', '2.0e+09')
    """
    return f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"
