"""``dpsco compare``: the paper's table measured, and every method beside every other."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsco.cli.data_options import add_data_options, declared_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsco.research.compare.file_data import FileData

__all__ = ["add_parser", "print_tables", "run"]

_TEACH = """\
examples
  dpsco compare                                  under two minutes on two cores
  dpsco compare --full --out compare             the real run, half an hour; stop it and start it again as you like
  dpsco compare --data people.parquet --label income --classes low,high

The folder holds compare.json, compare.html, the plots as .svg, and runs.jsonl: every single run, so that a comparison
that was stopped goes on where it was. These are research runs with fixed keys: (epsilon, delta) does not cover tuning.
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        help="measure the paper's table: every method tuned alike and counted alike",
        description="Tunes and scores every method of the paper's Table 1 and their variants on the reference problem, "
        "counts their steps and gradients, fits exponents, and writes one HTML page with plots and tables.",
        epilog=_TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--full", action="store_true", help="the real run instead of a quick look")
    parser.add_argument("--out", type=Path, default=Path("compare"), help="folder of the results (default compare/)")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one for each core)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of tables")
    parser.add_argument("--data", metavar="DATA", help="compare accuracy on these files too, which you may look at")
    parser.add_argument("--classes", metavar="A,B", default="0,1", help="with --data: the labels (default 0,1)")
    parser.add_argument("--feature-norm", type=float, default=1.0, help="with --data: longer rows are shortened to it")
    parser.add_argument(
        "--radius", type=float, default=20.0, help="with --data: bound on the model's norm (default 20)"
    )
    add_data_options(parser)


def run(args: argparse.Namespace) -> int:
    """Compare, write the folder, print the tables; the exit code."""
    from dpsco.errors import positive_integer
    from dpsco.json_files import write_atomic
    from dpsco.pages import write_comparison_page
    from dpsco.parallel import available_threads
    from dpsco.research import compare as comparison
    from dpsco.research.compare.comparison_plots import draw_plots
    from dpsco.research.compare.text_tables import tables

    processes = available_threads() if args.jobs is None else args.jobs
    positive_integer("--jobs", processes, "It is the number of processes.")
    data = None if args.data is None else _file_data(args)
    size = comparison.FULL if args.full else comparison.QUICK
    try:
        results = comparison.compare(size, args.out, processes=processes, data=data, progress=not args.json)
    except KeyboardInterrupt:
        print("dpsco compare: interrupted. The same command goes on where it was.", file=sys.stderr)
        return 130
    written = json.dumps(results, separators=(",", ":"))
    write_atomic(args.out / "compare.json", written.encode())
    for name, svg in draw_plots(results, themed=False).items():
        write_atomic(args.out / f"{name}.svg", svg.encode())
    page = args.out / "compare.html"
    write_comparison_page(results, page, tables=tables(results), plots=draw_plots(results))
    if args.json:
        print(written)
    else:
        print_tables(results)
        print(f"\nPage: {page}")
    return 0


def _file_data(args: argparse.Namespace) -> FileData:
    from dpsco.research.compare.file_data import FileData
    from dpsco.rows.file_stream import Labels, open_source

    columns, notes = declared_columns(args, open_source(args.data, label=args.label), (args.label,))
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    classes = tuple(name.strip() for name in args.classes.split(","))
    return FileData(Path(args.data), Labels(args.label, classes), columns, args.feature_norm, args.radius)


def print_tables(results: Mapping[str, Any]) -> None:
    """Every table and finding, on the terminal."""
    from rich.console import Console
    from rich.table import Table

    from dpsco.research.compare.text_tables import tables

    console = Console()
    for found in tables(results):
        table = Table(title=found.title, title_justify="left", box=None, padding=(0, 1, 0, 0), show_edge=False)
        for column in found.columns:
            table.add_column(column, overflow="fold")
        for line in found.lines:
            table.add_row(*line)
        console.print(table, highlight=False)
        console.print()
    for finding in results["findings"]:
        console.print(f"{finding['title']}: {finding['text']}", highlight=False, markup=False)
    if results["how"]["left_out"]:
        console.print(results["how"]["left_out"], highlight=False, markup=False)
    console.print(
        "Research runs with fixed keys: each meets its (epsilon, delta) by itself, the tuning is not covered.",
        style="dim",
    )
