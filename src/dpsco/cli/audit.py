"""``dpsco audit``: test whether an oracle, a plan or an estimator satisfies its guarantee."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsco.cli.checks import check_page
from dpsco.cli.data_options import add_data_options, declared_columns, opened, reading
from dpsco.cli.output import print_json
from dpsco.errors import DataError, InvalidArgument, positive_integer
from dpsco.rows.outputs import check_apart

if TYPE_CHECKING:
    from dpsco.planning.plan import Plan

__all__ = ["add_parser", "run"]

_TEACH = """\
TARGET
  my.py:gradient      a function gradient(x, features, label) that returns the gradient of one row
  my.py:oracle        an object with answer(query, batch), or a class or function that returns one
  my.py:model         an estimator of dpsco, not yet fitted; needs --data
  plan.json           a plan: Plan.to_json(), or the output of dpsco plan --json

examples
  dpsco audit my.py:gradient --dimension 20
  dpsco audit my.py:oracle --plan plan.json --html audit.html
  dpsco audit my.py:model --data people.csv --label y

dpsco executes the file named in TARGET. Without --data every row is synthetic and the report may be shared. With --data
the figures depend on your rows and are NOT PRIVATE. Exit codes: 0 passed, 1 failed or not
tested, 2 an argument or a file is wrong.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "audit",
        help="test whether an oracle, a plan or an estimator satisfies its guarantee",
        description="Check the contract of an oracle, replay neighbouring data sets up to the release, test the "
        "released noise, and guess canaries. Print what was measured, with what confidence, and which row broke what.",
        epilog=_TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="TARGET", help="FILE.py:NAME, MODULE:NAME or a plan (JSON)")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="the plan of the oracle (JSON)")
    made = parser.add_argument_group("plan of an oracle without --plan")
    made.add_argument("--clip", type=float, default=1.0, help="the clip C (default 1)")
    made.add_argument("--rounds", type=int, default=8, help="number of rounds (default 8)")
    made.add_argument("--rows", type=float, default=1024, help="number of rows (default 1,024)")
    made.add_argument("--radius", type=float, default=10.0, help="radius of the ball of models (default 10)")
    made.add_argument("--epsilon", type=float, default=4.0, help="epsilon of the budget (default 4)")
    made.add_argument("--delta", type=float, default=1e-6, help="delta of the budget (default 1e-6)")
    made.add_argument("--adjacency", choices=("zero-out", "add-remove", "replace"), default="zero-out")
    parser.add_argument(
        "--seconds", type=float, help="stop repeating runs after so long (default: 45 for an estimator, else no limit)"
    )
    parser.add_argument("--data", metavar="DATA", help="use these rows instead of synthetic ones: NOT PRIVATE")
    parser.add_argument("--classes", metavar="A,B", help="with --data: the labels (default 0,1)")
    parser.add_argument("--label-bound", type=float, metavar="Y", help="with --data: labels are numbers in [-Y, Y]")
    add_data_options(parser)
    parser.add_argument("--alpha", type=float, default=1e-6, help="false alarm rate per check (default 1e-6)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page that explains the result")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Audit, print the report and write the page; return 0 if it passed, 1 if it failed or tested nothing."""
    from dpsco.audit import audit
    from dpsco.audit.named_target import load_target, read_plan

    given = {"TARGET": Path(args.target.rpartition(":")[0] or args.target), "--plan": args.plan, "--data": args.data}
    check_apart({"--html": args.html}, {**given, "--columns": args.columns})
    check_page(args.html, "--html")
    target = load_target(args.target)
    data = None if args.data is None else _rows(args)
    plan = None if args.plan is None else read_plan(args.plan)
    if plan is None and not hasattr(target, "fit") and not _is_plan(target):
        plan = _plan(args, None if data is None else data[0].shape)
    if data is not None and getattr(target, "classes", None) is not None and args.label_bound is None:
        data = data[0], _in_classes(target.classes, data[1])
    show = None if args.json or not sys.stderr.isatty() else _show
    report = audit(target, plan=plan, data=data, alpha=args.alpha, seconds=args.seconds, progress=show)
    if show is not None:
        _show("")
    if args.html is not None:
        from dpsco.pages import write_audit_page

        write_audit_page(json.loads(report.to_json()), args.html)
    page = None if args.html is None else str(args.html)
    if args.json:
        print_json({**json.loads(report.to_json()), "page": page})
    else:
        print(report, "" if page is None else f"\n\nPage: {page}")
    return 0 if report.passed else 1


def _show(text: str) -> None:
    """Write a line in the place of the last one."""
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _in_classes(classes: Any, codes: Any) -> Any:
    """Return the labels of a file, 0, 1, ..., as the classes that the estimator declares."""
    import numpy as np

    names = list(classes)
    return np.array([names[int(code)] if 0 <= code < len(names) else None for code in codes], dtype=object)


def _is_plan(target: Any) -> bool:
    from dpsco.planning.plan import Plan

    return isinstance(target, Plan)


def _plan(args: argparse.Namespace, shape: tuple[int, int] | None) -> Plan:
    import dpsco

    rows, width = (args.rows, 8 if args.dimension is None else args.dimension) if shape is None else shape
    n = positive_integer("--rows", rows, "It is the number of synthetic rows.")
    problem = dpsco.Problem(dpsco.CustomLoss(), dpsco.L2Ball(args.radius), width)
    budget = dpsco.Budget(args.epsilon, args.delta, args.adjacency)
    method = dpsco.AcceleratedSRGD(rounds=args.rounds, beta=1.0, clip=args.clip)
    return dpsco.Plan(problem, n, budget, method)


def _rows(args: argparse.Namespace) -> tuple[Any, Any]:
    import numpy as np

    from dpsco.rows.file_stream import FileRows, Labels

    if args.label_bound is not None:
        labels = Labels(args.label, bound=args.label_bound)
    else:
        names = ("0", "1") if args.classes is None else tuple(name.strip() for name in args.classes.split(","))
        labels = Labels(args.label, names)
    columns, _ = declared_columns(args, opened(args, args.data), (args.label,))
    chunks = list(FileRows(args.data, labels, columns, **reading(args)))
    if not chunks:
        raise DataError(f"There is no row in {args.data!r}.")
    if any(hasattr(x, "tocsr") for x, _ in chunks):
        raise InvalidArgument(
            "dpsco audit needs dense rows: declare fewer levels or buckets, or give another file than libsvm."
        )
    return np.concatenate([x for x, _ in chunks]), np.concatenate([y for _, y in chunks])
