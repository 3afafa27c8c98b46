"""``dpsco mechanisms``: compare the noise mechanisms."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsco.cli.output import format_bytes, print_json, print_table
from dpsco.errors import ExtraMissing, InvalidArgument, positive_integer

if TYPE_CHECKING:
    from dpsco.release.mechanisms.comparison import Row

__all__ = ["add_parser", "run"]

PLOT_FORMATS = (".svg", ".png")


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "mechanisms",
        help="compare the noise mechanisms",
        description="Print sensitivity, errors and memory of every mechanism for a number of rounds.",
    )
    parser.add_argument("--horizon", required=True, type=float, help="number of rounds T, at most 4096")
    parser.add_argument("--dimension", type=float, help="number of parameters p, to state memory in bytes")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw errors against the number of rounds (.svg or .png)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table and draw the plot; return the exit code."""
    from dpsco.release.mechanisms.comparison import comparison, factorisation_norm, lower_bound

    horizon = positive_integer("--horizon", args.horizon, "It is the number of rounds T.")
    dimension = None
    if args.dimension is not None:
        dimension = positive_integer("--dimension", args.dimension, "It is the number of parameters p.")
    if args.plot is not None and args.plot.suffix not in PLOT_FORMATS:
        raise InvalidArgument(f"Expected --plot {args.plot.name} to end in {' or '.join(PLOT_FORMATS)}.")
    rows = comparison(horizon, dimension)
    if args.json:
        body = {
            "horizon": horizon,
            "dimension": dimension,
            "lower_bound": lower_bound(horizon),
            "factorisation_norm": factorisation_norm(horizon),
            "mechanisms": [dataclasses.asdict(row) for row in rows],
        }
        print_json(body)
    else:
        _print(rows, horizon)
    if args.plot is not None:
        _plot(args.plot, horizon)
    return 0


def _print(rows: list[Row], horizon: int) -> None:
    from dpsco.release.mechanisms.comparison import factorisation_norm

    low, high = factorisation_norm(horizon)
    columns = ("mechanism", "sensi-\ntivity", "max\nerror", "mean\nerror", "halved\nz-step", "listed\nz-step")
    cells = [
        (
            row.name,
            *(f"{x:.3f}" for x in (row.sensitivity, row.max_error, row.mean_error)),
            *(f"{x:.3f}" for x in (row.algorithm_error_halved, row.algorithm_error_listed, row.over_lower_bound)),
            f"{row.vectors} p" + ("" if row.bytes is None else f", {format_bytes(row.bytes)}"),
        )
        for row in rows
    ]
    print_table((*columns, "over\nbound", "memory"), cells, title=f"Mechanisms at T = {horizon} (unit clip, mu = 1)")
    print(
        "z-step: RMS noise of the final iterate of Algorithm 1 under the default prior, relative to the square-root\n"
        "mechanism. Its square is the ratio of the excess risks that the noise causes.\n"
        "over bound: max error over the nuclear norm bound |A|_*/T, which no mechanism can be below.\n"
        f"The least max error of all factorisations is between {low:.3f} and {high:.3f}: 0.701 and 0.846, plus\n"
        "(ln T)/pi, up to o(1)."
    )


def _plot(path: Path, horizon: int) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ExtraMissing("--plot needs matplotlib: install dpsco[report].") from None
    from dpsco.release.mechanisms.comparison import algorithm_errors, lower_bound, max_errors

    names = ["independent", "tree", "honaker", "smooth", "sqrt", "normalised-sqrt", "blt", "dense", "workload"]
    horizons = sorted({1 << k for k in range(horizon.bit_length())} | {horizon})
    figure = Figure(figsize=(11.0, 4.6), layout="constrained")
    prefix, algorithm = figure.subplots(1, 2)
    for axes, curves in ((prefix, max_errors(names, horizons)), (algorithm, algorithm_errors(names, horizons))):
        for name, errors in curves.items():
            # The curves of sqrt and blt coincide: dashes keep both visible.
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
    figure.savefig(path)
