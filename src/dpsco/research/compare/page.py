"""One self-contained HTML page of a comparison: marks, pictures, tables, findings, how it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from dpsco.errors import ExtraMissing
from dpsco.json_files import write_atomic
from dpsco.research.compare.comparison_plots import pictures
from dpsco.research.compare.text_tables import tables

__all__ = ["write_page"]


def write_page(results: Mapping[str, Any], path: Path) -> Path:
    """Write the page of ``results`` and return where it is. It needs no network and no other file."""
    try:
        import jinja2
    except ImportError:
        raise ExtraMissing("The page needs jinja2 and matplotlib: install dpsco[report].") from None
    template = files("dpsco.research.compare").joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    html = environment.from_string(template).render(
        results=results,
        how=results["how"],
        rounds=results["rounds"],
        table={table.name: table for table in tables(results)},
        picture=pictures(results),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, html.encode())
    return path
