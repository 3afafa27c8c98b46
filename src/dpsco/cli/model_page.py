"""The page of a model file: what its result says, under the names that its schema states."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from dpsco.run.model_file import SavedModel

__all__ = ["add_page_options", "data_name", "today", "write_model_page"]


def add_page_options(group: Any) -> None:
    """Add the options of the commands that write the page of a model."""
    group.add_argument("--html", type=Path, metavar="FILE", help="write a self-contained HTML page")
    group.add_argument("--data-name", metavar="TEXT", help="name of the data set, for the page")
    group.add_argument("--run-date", metavar="TEXT", help="date of the run, for the page")


def today() -> str:
    """Return the date of today, UTC; to be taken before the first row is read."""
    return datetime.now(UTC).date().isoformat()


def data_name(data: str) -> str:
    """Return the last part of what the user typed for the data."""
    return data.rstrip("/").rsplit("/", 1)[-1]


def write_model_page(
    saved: SavedModel, args: argparse.Namespace, *, name: str = "", date: str = "", **rest: Any
) -> None:
    """Write the page of a model to ``args.html``; ``args.data_name`` and ``args.run_date`` come before the defaults."""
    from dpsco.pages import Subject, write_run_page
    from dpsco.pages.coefficients import coefficients_of

    labels, columns = saved.labels, saved.columns
    declared = None if isinstance(columns, int) else columns
    named = () if declared is None else declared.feature_names
    subject = Subject(args.data_name or name, args.run_date or date, labels.column or "", labels.classes or (), named)
    unit = labels.bound or 1.0
    shown = coefficients_of(saved.result, unit / saved.feature_norm, unit, table=saved.table, columns=declared)
    write_run_page(saved.result, args.html, subject=subject, coefficients=shown, **rest)
