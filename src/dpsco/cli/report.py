"""``dpsco report``: what a model file promises."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="show what a model file promises, and to whom",
        description="Prints the privacy report inside a model file: epsilon at every delta, who is protected, what was "
        "assumed, what may be published. --html writes the page with pictures.",
        epilog="The file holds nothing secret: report and model may be published together. Example: dpsco report "
        "model.json --html page.html",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a file written by dpsco fit")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the self-contained HTML page")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print Markdown instead of text")
    form.add_argument("--json", action="store_true", help="print the report and the plan as JSON")


def run(args: argparse.Namespace) -> int:
    from dpsco.run.model_file import SavedModel

    result = SavedModel.read(args.model).result
    if args.html is not None:
        from dpsco.pages import write_run_page

        write_run_page(result, args.html)
    if args.json:
        body = {"report": json.loads(result.report.to_json()), "plan": result.plan.to_dict()}
        print(json.dumps({**body, "page": None if args.html is None else str(args.html)}, indent=2))
    elif args.markdown:
        print(result.report.to_markdown())
    else:
        print(result.report)
        if args.html is not None:
            print(f"\nPage: {args.html}")
    return 0
