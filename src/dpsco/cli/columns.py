"""``dpsco columns``: draft a schema of public columns from a file that is public."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dpsco.cli.checks import check_outputs
from dpsco.cli.data_options import add_reading_options, opened
from dpsco.cli.output import print_json, print_table
from dpsco.errors import InvalidArgument
from dpsco.rows.outputs import check_apart

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "columns",
        help="draft a schema of public columns from a file that is public",
        description="Read a file THAT YOU DECLARE PUBLIC (a sample, simulated rows, last year's published table) and "
        "draft a schema: what each column is, a wide range, its levels. Review it, then use it in dpsco fit --columns. "
        "Never draft a schema from the rows you will train on: the guarantee would not cover what it reveals.",
    )
    parser.add_argument("data", metavar="PUBLIC_DATA", help="a public CSV, JSON lines, Parquet or Arrow file")
    parser.add_argument("--label", default="y", metavar="COLUMN", help="the label column, left out (default y)")
    parser.add_argument("--unit", metavar="COLUMN", help="the column of ids, left out")
    parser.add_argument(
        "--out", type=Path, default=Path("columns.json"), metavar="FILE", help="default columns.json; .toml writes TOML"
    )
    add_reading_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Write the draft; return the exit code."""
    from dpsco.rows.draft_columns import draft_columns
    from dpsco.rows.readers.source import TableSource

    check_apart({"--out": args.out}, {"PUBLIC_DATA": args.data})
    check_outputs(out=args.out)
    source = opened(args, args.data)
    if not isinstance(source, TableSource):
        raise InvalidArgument("Only a table has columns with names: CSV, JSON lines, Parquet or Arrow.")
    draft = draft_columns(source, (args.label, *((args.unit,) if args.unit else ())))
    written = draft.columns.write(args.out)
    if args.json:
        print_json(
            {
                "columns": str(written),
                "schema": draft.columns.to_dict(),
                "left_out": draft.left_out,
                "check": draft.check,
            }
        )
        return 0
    lines = []
    for entry in draft.columns.to_dict()["columns"]:
        lines.append((entry.pop("name"), entry.pop("kind"), ", ".join(f"{k} {_shown(v)}" for k, v in entry.items())))
    print_table(("column", "kind", "declared"), lines, left=(0, 1, 2), width=120)
    for name, why in draft.left_out.items():
        print(f"left out: {name} ({why})")
    for name, why in draft.check.items():
        print(f"check: {name} ({why})")
    print(f"Schema: {written}. Review it: everything in it must be public.")
    return 0


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) > 6:
        return f"{' | '.join(map(str, value[:5]))} | ... ({len(value)})"
    return " | ".join(map(str, value)) if isinstance(value, list) else str(value).lower()
