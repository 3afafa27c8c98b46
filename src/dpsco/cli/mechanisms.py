"""``dpsco mechanisms``: which noise, how much of it, in how much memory."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsco.errors import DpscoError, ExtraMissing, InvalidArgument, positive_integer

if TYPE_CHECKING:
    from dpsco.release.mechanisms.comparison import Row

__all__ = ["add_parser", "run"]

PLOT_FORMATS = (".svg", ".png")


def add_parser(subparsers: Any) -> None:
    """Add the command to the ``subparsers`` of an ``argparse`` parser."""
    parser = subparsers.add_parser(
        "mechanisms",
        help="compare the noise mechanisms at a number of rounds",
        description="Sensitivity, errors and memory of every mechanism at a number of rounds.",
    )
    parser.add_argument("--horizon", required=True, type=float, help="rounds T, at most 4096")
    parser.add_argument("--dimension", type=float, help="parameters p, for memory in bytes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw max error against horizon, as .svg or .png")


def run(args: argparse.Namespace) -> int:
    """Print the table, and draw the plot if asked; the exit code."""
    from dpsco.release.mechanisms.comparison import comparison, lower_bound

    horizon = positive_integer("horizon", args.horizon, "It is the number of rounds T.")
    dimension = None
    if args.dimension is not None:
        dimension = positive_integer("dimension", args.dimension, "It is the number of parameters p.")
    if args.plot is not None and args.plot.suffix not in PLOT_FORMATS:
        raise InvalidArgument(f"Expected plot={args.plot.name!r} to end in {' or '.join(PLOT_FORMATS)}.")
    rows = comparison(horizon, dimension)
    if args.json:
        body = {
            "horizon": horizon,
            "dimension": dimension,
            "lower_bound": lower_bound(horizon),
            "mechanisms": [dataclasses.asdict(row) for row in rows],
        }
        print(json.dumps(body, indent=2))
    else:
        _print(rows, horizon)
    if args.plot is not None:
        _plot(args.plot, horizon)
    return 0


def _print(rows: list[Row], horizon: int) -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"Mechanisms at T = {horizon} (unit clip, mu = 1)"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("\nmechanism", no_wrap=True)
    headings = ("sensi-\ntivity", "max\nerror", "mean\nerror", "halved\nz-step", "listed\nz-step", "over\nbound")
    for heading in (*headings, "\nmemory"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        numbers = (
            row.sensitivity,
            row.max_error,
            row.mean_error,
            row.algorithm_error_halved,
            row.algorithm_error_listed,
            row.over_lower_bound,
        )
        memory = f"{row.vectors} p" if row.bytes is None else f"{row.vectors} p, {_in_bytes(row.bytes)}"
        table.add_row(row.name, *(f"{number:.3f}" for number in numbers), memory)
    console = Console()
    console.print(table)
    console.print(
        "z-step: RMS noise of Algorithm 1's final iterate under the default prior, relative to square-root Toeplitz; "
        "its square is the ratio of the excess risks that noise causes.\n"
        "over bound: max error over the nuclear norm bound |A|_*/T, which no mechanism beats.",
        style="dim",
        highlight=False,
    )


def _in_bytes(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024.0 and unit < 4:
        size, unit = size / 1024.0, unit + 1
    return f"{size:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def _plot(path: Path, horizon: int) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ExtraMissing("Drawing needs matplotlib, which is not installed. Run: pip install matplotlib.") from None
    from dpsco.release.mechanisms.comparison import algorithm_errors, lower_bound, max_errors

    names = ["independent", "tree", "honaker", "smooth", "sqrt", "blt", "dense", "workload"]
    horizons = sorted({1 << k for k in range(horizon.bit_length())} | {horizon})
    figure = Figure(figsize=(11.0, 4.6), layout="constrained")
    prefix, algorithm = figure.subplots(1, 2)
    for axes, curves in ((prefix, max_errors(names, horizons)), (algorithm, algorithm_errors(names, horizons))):
        for name, errors in curves.items():
            # Square-root and buffered Toeplitz lie on one another: dashes let both be seen.
            style, width = ("--" if name == "blt" else "-"), (2.5 if name == "workload" else 1.5)
            axes.plot(horizons, errors, label=name, marker="o", markersize=3, linestyle=style, linewidth=width)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xlabel("rounds T")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.grid(alpha=0.3)
    prefix.plot(horizons, [lower_bound(t) for t in horizons], color="black", linestyle=":", label="lower bound")
    prefix.set_title("worst prefix sum (unit clip, mu = 1)", fontsize="medium")
    prefix.set_ylabel("standard deviation")
    prefix.legend(fontsize="small")
    algorithm.set_title("final iterate of Algorithm 1 (halved z-step, default prior)", fontsize="medium")
    algorithm.set_ylabel("RMS noise relative to sqrt")
    try:
        figure.savefig(path)
    except OSError as error:
        raise DpscoError(f"The plot could not be written: {error.strerror}.") from None
