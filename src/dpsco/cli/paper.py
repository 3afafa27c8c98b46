"""``dpsco paper``: check every numbered statement of the paper."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from dpsco.cli.output import print_json
from dpsco.errors import InvalidArgument

__all__ = ["add_parser", "run"]

COLOURS = {"holds": "green", "factor": "yellow", "erratum": "red"}


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "paper",
        help="check every statement of the paper on random and adversarial instances",
        description="Evaluate both sides of every numbered statement of the paper and print what was found.",
    )
    parser.add_argument("statement", nargs="*", help="labels of statements, such as lem:sens (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random instances (default 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Check the statements in the order of the paper and print the findings; return the exit code."""
    from dpsco.research.paper import STATEMENTS

    if args.seed < 0:
        raise InvalidArgument(f"Expected --seed {args.seed} >= 0.")
    known = {statement.label: statement for statement in STATEMENTS}
    for label in args.statement:
        if label not in known:
            raise InvalidArgument(f"There is no statement {label!r}. The statements are: {', '.join(known)}.")
    chosen = [known[label] for label in args.statement or known]
    if args.json:
        rows = [
            {"label": s.label, "kind": s.kind, "title": s.title, "claim": s.claim}
            | dataclasses.asdict(s.check(args.seed))
            for s in chosen
        ]
        print_json({"seed": args.seed, "statements": rows})
    else:
        _print(chosen, args.seed)
    return 0


def _print(chosen: list[Any], seed: int) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from dpsco.research.paper import VERDICTS

    console = Console(highlight=False)
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
        console.print(Padding(Text(found.sentence), (0, 0, 1, 2)))
    console.print(
        f"{len(chosen)} checked: {counts['holds']} as printed, {counts['factor']} up to a factor, "
        f"{counts['erratum']} errata."
    )
