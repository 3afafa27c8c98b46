"""``dpsco compare``: measure the paper's table and compare every method."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsco.cli.data_options import add_data_options, declared_columns, opened
from dpsco.cli.output import print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpsco.research.compare.file_data import FileData

__all__ = ["add_parser", "print_tables", "run"]

_MAP_KEYS = {"quick": 2, "medium": 6, "full": 8}
"""Scoring runs per method of a map in its smallest regimes."""

_TEACH = """\
examples
  dpsco compare                                  a quick comparison: under two minutes on two cores
  dpsco compare --medium --out compare           the published figures: about ten minutes on one core
  dpsco compare --full --out compare             more runs per figure: an hour; you may interrupt and continue either
  dpsco compare --data people.parquet --label income --classes low,high
  dpsco compare --map                            who wins where: rounds, passes, n, p, epsilon, scaling
  dpsco compare --map --medium                   fewer regimes, more rivals and runs: the published map
  dpsco compare --map --data people.parquet --label income --classes low,high

The folder contains compare.json, compare.html, the plots as .svg, and runs.jsonl with every finished run, from which an
interrupted comparison continues. A map has map.json, map.svg and regimes.jsonl. These are research runs with fixed
keys: (epsilon, delta) does not cover the tuning.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "compare",
        help="measure the paper's table: every method tuned and counted alike",
        description="Tune and score the methods of the paper's Table 1 and their variants on the reference problem, "
        "count their steps and gradients, fit exponents, and write one HTML page with plots and tables.",
        epilog=_TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--map", action="store_true", help="a map of regimes instead: our plans against tuned rivals")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--medium", action="store_true", help="the size of the published figures instead of a quick one")
    size.add_argument("--full", action="store_true", help="the full comparison instead of a quick one")
    parser.add_argument("--out", type=Path, default=Path("compare"), help="folder for the results (default compare/)")
    parser.add_argument("--jobs", type=int, metavar="N", help="number of processes (default: one per core)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--data", metavar="DATA", help="also compare accuracy on these files, which you may look at")
    parser.add_argument("--classes", metavar="A,B", default="0,1", help="with --data: the labels (default 0,1)")
    parser.add_argument(
        "--feature-norm", type=float, default=1.0, help="with --data: scale longer rows to this norm (default 1)"
    )
    parser.add_argument(
        "--radius", type=float, default=20.0, help="with --data: bound on the norm of the model (default 20)"
    )
    add_data_options(parser)


def run(args: argparse.Namespace) -> int:
    """Compare, write the folder, print the tables; return the exit code."""
    from dpsco.errors import positive_integer
    from dpsco.json_files import write_atomic
    from dpsco.pages import write_comparison_page
    from dpsco.parallel import available_threads
    from dpsco.research import compare as comparison
    from dpsco.research.compare.comparison_plots import draw_plots
    from dpsco.research.compare.text_tables import tables

    processes = available_threads() if args.jobs is None else args.jobs
    positive_integer("--jobs", processes, "It is the number of processes.")
    if args.map:
        return _map(args, processes)
    data = None if args.data is None else _file_data(args)
    size = {"full": comparison.FULL, "medium": comparison.MEDIUM, "quick": comparison.QUICK}[_scale(args)]
    try:
        results = comparison.compare(size, args.out, processes=processes, data=data, progress=not args.json)
    except KeyboardInterrupt:
        print("dpsco compare: interrupted. Run the same command again to continue.", file=sys.stderr)
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


def _scale(args: argparse.Namespace) -> str:
    return "full" if args.full else "medium" if args.medium else "quick"


def _map(args: argparse.Namespace, processes: int) -> int:
    """Measure the map of regimes, write map.json and map.svg, print the table."""
    from dpsco.errors import ExtraMissing
    from dpsco.json_files import write_atomic
    from dpsco.research.compare.map_picture import SUMMARY, bracket_line, draw_map, map_lines, summary
    from dpsco.research.compare.regime_map import LIMITS, cells_of, measure_map

    data = None if args.data is None else _file_data(args)
    scale = _scale(args)
    regimes = len(cells_of(scale, data))

    def advance(done: int) -> None:
        if not args.json:
            print(f"\r{done} of {regimes} regimes", end="\n" if done == regimes else "", file=sys.stderr, flush=True)

    results = measure_map(scale, args.out, processes=processes, keys=_MAP_KEYS[scale], advance=advance, data=data)
    write_atomic(args.out / "map.json", json.dumps(results, separators=(",", ":")).encode())
    try:
        write_atomic(args.out / "map.svg", draw_map(results).encode())
    except ExtraMissing as error:
        results["left_out"].append(f"the picture ({error})")
    if args.json:
        print(json.dumps(results))
        return 0
    title = "The best method, its excess risk and that of the next method over it, its seconds and released bytes"
    print_table(("regime", *LIMITS), map_lines(results), title=title, left=range(7), width=170)
    print_table(SUMMARY, summary(results), left=range(3), width=170)
    for name in results["left_out"]:
        print(f"left out: {name}")
    print(f"{bracket_line(results)} {results['keys']} keys, {results['seconds']:.0f} s.")
    print(f"Picture: {args.out / 'map.svg'}")
    return 0


def _file_data(args: argparse.Namespace) -> FileData:
    from dpsco.research.compare.file_data import FileData
    from dpsco.rows.file_stream import Labels

    columns, notes = declared_columns(args, opened(args, args.data), (args.label,))
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    classes = tuple(name.strip() for name in args.classes.split(","))
    return FileData(Path(args.data), Labels(args.label, classes), columns, args.feature_norm, args.radius)


def print_tables(results: Mapping[str, Any]) -> None:
    """Print every table and conclusion on the terminal."""
    from dpsco.research.compare.text_tables import tables

    for table in tables(results):
        print_table(table.columns, table.lines, title=table.title, left=range(len(table.columns)))
    for finding in results["findings"]:
        print(f"{finding['title']}: {finding['text']}")
    if results["how"]["left_out"]:
        print(results["how"]["left_out"])
    print("These are research runs with fixed keys: (epsilon, delta) holds per run, and the tuning is not covered.")
