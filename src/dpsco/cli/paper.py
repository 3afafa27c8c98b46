"""``dpsco paper``: every numbered statement of the paper, checked now."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from dpsco.errors import InvalidArgument

__all__ = ["add_parser", "run"]

COLOURS = {"holds": "green", "factor": "yellow", "erratum": "red"}


def add_parser(subparsers: Any) -> None:
    """Add the command to the ``subparsers`` of an ``argparse`` parser."""
    parser = subparsers.add_parser(
        "paper",
        help="check every statement of the paper on random and adversarial instances",
        description="Evaluate both sides of every numbered statement of the paper and say what was found.",
    )
    parser.add_argument("statement", nargs="*", help="labels of the statements to check, such as lem:sens; all without")
    parser.add_argument("--seed", type=int, default=0, help="which random instances to draw (default 0)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Run the checks in the paper's order and print what each found; the exit code."""
    from dpsco.research.paper import STATEMENTS

    if args.seed < 0:
        raise InvalidArgument(f"Expected seed={args.seed} >= 0.")
    known = {statement.label: statement for statement in STATEMENTS}
    for label in args.statement:
        if label not in known:
            raise InvalidArgument(f"Expected statement={label!r} to be one of: {', '.join(known)}.")
    chosen = [known[label] for label in args.statement or known]
    if args.json:
        rows = [
            {"label": s.label, "kind": s.kind, "title": s.title, "claim": s.claim}
            | dataclasses.asdict(s.check(args.seed))
            for s in chosen
        ]
        print(json.dumps({"seed": args.seed, "statements": rows}, indent=2))
    else:
        _print(chosen, args.seed)
    return 0


def _print(chosen: list[Any], seed: int) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from dpsco.research.paper import VERDICTS

    console = Console()
    counts = dict.fromkeys(VERDICTS, 0)
    for statement in chosen:
        with console.status(f"checking {statement.label}"):
            found = statement.check(seed)
        counts[found.verdict] += 1
        heading = Text.assemble(
            (f"{statement.kind} {statement.label}", "bold"),
            f"  {statement.title}  ",
            (found.verdict, COLOURS[found.verdict]),
            (f"  {found.instances:,} instances", "dim"),
        )
        console.print(heading)
        console.print(Padding(Text(found.sentence), (0, 0, 1, 2)), highlight=False)
    console.print(
        f"{len(chosen)} checked: {counts['holds']} as printed, {counts['factor']} up to a factor, "
        f"{counts['erratum']} errata.",
        highlight=False,
    )
