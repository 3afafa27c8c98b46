"""``dpsco report``: show the privacy report of a model file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dpsco.cli.checks import check_page
from dpsco.cli.model_page import add_page_options, write_model_page
from dpsco.cli.output import print_coefficients, print_json
from dpsco.rows.outputs import check_apart

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "report",
        help="show the guarantee of a model file",
        description="Print the privacy report inside a model file: epsilon at every delta, who is protected, what is "
        "assumed, and what may be published. --html writes a page with plots.",
        epilog="The file contains no secrets: the report and the model may be published together. Example: dpsco "
        "report model.json --html page.html",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a file written by dpsco fit")
    add_page_options(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print Markdown instead of text")
    form.add_argument("--json", action="store_true", help="print the report and the plan as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the report and write the page; return the exit code."""
    from dpsco.run.model_file import SavedModel

    check_apart({"--html": args.html}, {"MODEL": args.model})
    check_page(args.html, "--html")
    saved = SavedModel.read(args.model)
    result = saved.result
    if args.html is not None:
        write_model_page(saved, args)
    page = None if args.html is None else str(args.html)
    if args.json:
        body = {"report": json.loads(result.report.to_json()), "plan": result.plan.to_dict(), "page": page}
        print_json({**body, "coefficients": None if saved.table is None else saved.table.to_dict()})
    elif args.markdown:
        print(result.report.to_markdown())
    else:
        print(result.report, "\n")
        print_coefficients(saved)
        print("" if page is None else f"Page: {page}")
    return 0
