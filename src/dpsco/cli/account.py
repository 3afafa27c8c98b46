"""``dpsco account``: begin the account of a data set, or show what its runs have spent."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from dpsco.cli.output import print_json
from dpsco.errors import AccountError, InvalidArgument

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "account",
        help="begin the account of a data set, or show what its runs have spent",
        description="Show how much of its limit an account has spent and what is left for one more run. With --epsilon "
        "and --delta: begin an account, once per data set. dpsco fit --account FILE charges it, and refuses a run that "
        "would exceed the limit. So does account= of an estimator.",
        epilog="Example: dpsco account people.json --epsilon 3 --delta 1e-6",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the file of the account (JSON)")
    limit = parser.add_argument_group("limit of a new account")
    limit.add_argument("--epsilon", type=float, help="privacy loss of all runs together")
    limit.add_argument("--delta", type=float, help="probability left out of the guarantee of all runs together")
    limit.add_argument("--adjacency", choices=("zero-out", "add-remove", "replace"), help="that of the runs (zero-out)")
    limit.add_argument("--max-rows-per-unit", type=int, metavar="K", help="that of the runs (1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Begin or open the account and print its state; return the exit code."""
    from dpsco.accounting.account import Account
    from dpsco.accounting.budget import Budget

    given = (args.epsilon, args.delta, args.adjacency, args.max_rows_per_unit)
    if any(value is not None for value in given):
        if args.epsilon is None or args.delta is None:
            raise InvalidArgument("A new account needs --epsilon and --delta, the limit of all runs together.")
        if args.file.exists():
            raise InvalidArgument(f"{str(args.file)!r} exists already. Leave the limit out to see what it has spent.")
        records = 1 if args.max_rows_per_unit is None else args.max_rows_per_unit
        limit = Budget(args.epsilon, args.delta, args.adjacency or "zero-out", records)
        account = Account.create(args.file, limit)
    elif args.file.exists():
        account = Account(args.file)
    else:
        raise InvalidArgument(
            f"There is no account {str(args.file)!r}. Add --epsilon and --delta to begin one: the limit of all runs "
            "together. If there was one, restore it: the cost of its runs remains."
        )
    limit, spent, left = account.limit, account.epsilon, _left(account)
    if args.json:
        stated = {"epsilon": limit.epsilon, "delta": limit.delta, "adjacency": limit.adjacency}
        stated["max_rows_per_unit"] = limit.records
        finite = spent if math.isfinite(spent) else None
        body = {"account": str(args.file), "limit": stated, "runs": len(account.runs), "epsilon": finite, "left": left}
        print_json(body)
        return 0
    whom = "one row" if limit.records == 1 else f"{limit.records} rows of one unit"
    print(f"Account: {args.file}")
    print(f"  limit  epsilon {limit.epsilon:g} at delta {limit.delta:g}, for {whom}, {limit.adjacency} adjacency")
    print(f"  spent  epsilon {spent:.4g} in {len(account.runs)} {'run' if len(account.runs) == 1 else 'runs'}")
    print(f"  left   {'nothing' if left is None else f'epsilon {left:.4g} for one more run'}")
    return 0


def _left(account: Any) -> float | None:
    """Return the largest epsilon of one more run; None if nothing is left."""
    try:
        return float(account.remaining().epsilon)
    except AccountError:
        return None
