"""The page of a comparison: plots, tables, conclusions, and how it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dpsco.pages.renderer import write_html

__all__ = ["write_comparison_page"]


def write_comparison_page(
    results: Mapping[str, Any], path: str | Path, *, tables: Iterable[Any], plots: Mapping[str, str]
) -> Path:
    """Write the page of a comparison.

    Parameters
    ----------
    results
        The content of compare.json.
    path
        The file to write.
    tables
        Objects with ``name``, ``columns`` and ``lines``, one per section.
    plots
        SVG texts by the name of their section.

    Returns
    -------
    Path
        ``path``.
    """
    return write_html(
        path,
        "comparison.html.jinja",
        results=results,
        how=results["how"],
        rounds=results["rounds"],
        table={table.name: table for table in tables},
        plots=plots,
    )
