"""``dpsco fit``: train a private model on files."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsco.cli.checks import check_outputs, check_page
from dpsco.cli.data_options import add_data_options, declared_columns, opened, reading
from dpsco.cli.model_options import (
    REGRESSIONS,
    add_budget_options,
    add_model_options,
    budget_of,
    class_names,
    loss_of,
    planned,
)
from dpsco.cli.model_page import add_page_options, data_name, today, write_model_page
from dpsco.cli.output import print_coefficients, print_json
from dpsco.errors import DataError, InvalidArgument, positive_integer
from dpsco.json_files import canonical
from dpsco.rows.outputs import check_apart

if TYPE_CHECKING:
    from dpsco.planning.plan import Plan
    from dpsco.problem import Loss
    from dpsco.rows.file_stream import Labels
    from dpsco.rows.public_columns import PublicColumns
    from dpsco.rows.readers.source import MatrixSource, TableSource
    from dpsco.run.result import Result

__all__ = ["add_parser", "run"]

SHUFFLE_BYTES = 64 << 20
_ROOM, _TEXT_BYTES = 1 << 16, 32
"""Bytes of a small model, and of a number as text."""

_TEACH = """\
examples
  dpsco fit people.parquet --label income --classes low,high --epsilon 1 --delta 1e-6 --out model.json
  dpsco fit 'parts/*.csv' --label y --features age,hours --range age=0:100 --range hours=0:100 \\
      --categories 'city=Lyon|Paris' --epsilon 1 --delta 1e-6 --out model.json --html page.html
  dpsco fit big/ --label y --epsilon 1 --delta 1e-6 --out model.json --checkpoint run --resume
  dpsco fit s3://bucket/big --label y --epsilon 1 --delta 1e-6 --out model.json --cluster tls://scheduler:8786

Scale columns with ranges that you know in advance (an age is between 0 and 100): that costs no privacy. Minima, maxima
or means computed from the rows would. Exit codes: 0 done, 2 an argument or a file is wrong, 130 interrupted.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "fit",
        help="train a private linear model on files, in one pass",
        description="Plan and train a differentially private linear model in one pass over CSV, Parquet, Arrow, libsvm "
        "or .npz files, which may be larger than memory. With --solver auto it may read them several times.",
        epilog=_TEACH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", metavar="DATA", help="a file, a folder, a quoted glob, or s3://bucket/folder")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the model file to write (JSON)")
    budget = add_budget_options(parser)
    budget.add_argument("--unit", metavar="COLUMN", help="id column: protect all used rows of one id together")
    budget.add_argument("--account", type=Path, metavar="FILE", help="charge this account (dpsco account begins one)")
    add_data_options(parser)
    model = add_model_options(parser)
    model.add_argument("--label-bound", type=float, metavar="Y", help="regression: clamp labels to [-Y, Y]")
    model.add_argument(
        "--feature-norm", type=float, help="scale longer rows to this norm (default: that of the columns, else 1)"
    )
    how = parser.add_argument_group("run")
    how.add_argument(
        "--rows", type=float, metavar="N", help="number of rows (default: count them and treat the count as public)"
    )
    how.add_argument(
        "--shuffle", type=int, metavar="ROWS", help="shuffle within blocks of this many rows; 0 keeps the order"
    )
    where = how.add_mutually_exclusive_group()
    where.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="train on the Dask cluster whose scheduler has this address (tls://..., tcp://...)",
    )
    where.add_argument("--local-cluster", type=int, metavar="N", help="train on N worker processes of this machine")
    how.add_argument(
        "--unreadable",
        choices=("stop", "zero"),
        default="stop",
        help="a file that a cluster worker cannot read stops the run (default) or counts as zero rows",
    )
    how.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="keep the state of the run here, to survive a crash"
    )
    how.add_argument("--resume", action="store_true", help="continue the run in --checkpoint, or start it")
    add_page_options(how)
    how.add_argument("--public-test", metavar="DATA", help="files you declare public: measure the model on them")
    how.add_argument("--not-private", action="store_true", help="add figures that are NOT PRIVATE to the page")
    how.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Plan, train, write the model and print the report; return the exit code."""
    import dpsco
    from dpsco.cli.fit_figures import check_test_rows
    from dpsco.run.model_file import SavedModel

    loss, labels = _task(args)
    day = today()
    if args.resume and args.checkpoint is None:
        raise InvalidArgument("--resume needs --checkpoint DIR, the folder of the run to continue.")
    _check_before(args)
    source = opened(args, args.data)
    columns, notes = declared_columns(args, source, (args.label, *((args.unit,) if args.unit else ())))
    if args.rows is None:
        n = source.count()
        if n == 0:
            raise DataError(f"There is no row in {args.data!r}. Nothing was spent.")
        notes.append(f"n = {n:,} rows were counted; the guarantee treats the count as public. --rows N states it.")
    else:
        n = positive_integer("--rows", args.rows, "It is the public number of rows.")
    width = columns if isinstance(columns, int) else columns.width
    if args.feature_norm is None:
        args.feature_norm = (None if isinstance(columns, int) else columns.row_norm) or 1.0
    once = args.solver == "auto" and (_elsewhere(args) or args.checkpoint is not None)  # both hold rounds of sums alone
    solver = "one-pass" if once else args.solver
    plan = planned(args, loss, width, n, solver=solver)
    block = _block_rows(columns) if args.shuffle is None else args.shuffle
    notes += _order_note(n, block)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if args.public_test is not None:
        check_test_rows(args.public_test, labels, columns, args.feature_norm, reading(args))
    _check_files(args, _ROOM + _TEXT_BYTES * plan.schedule.sum_length)  # a model holds what its survey released
    if not args.json:
        print(_subject(args, source, columns, labels))
        print(plan.explain(), "\n")
    counted = dpsco.Diagnostics() if args.not_private else None
    try:
        result = _train(args, plan, labels, columns, block, counted)
    except KeyboardInterrupt:
        kept = "" if args.checkpoint is None else " Run the same command with --resume to continue."
        print(f"dpsco fit: interrupted.{kept}", file=sys.stderr)
        return 130
    for text in () if result.health is None else result.health.in_words():
        print(f"note: {text}", file=sys.stderr)
    saved = SavedModel(result, labels, columns, args.feature_norm)
    try:
        written = saved.write(args.out)
    except OSError as error:  # the budget is spent, and a second run would spend another one
        if args.checkpoint is not None:
            raise  # the same command with --resume spends nothing
        written = saved.write(Path(tempfile.gettempdir()) / f"dpsco-{result.report.run_id}.json")
        print(f"note: --out could not be written ({error.strerror}). The model is in {written}.", file=sys.stderr)
    _print_result(args, saved, written, counted, day)
    return 0


def _subject(
    args: argparse.Namespace, source: TableSource | MatrixSource, columns: PublicColumns | int, labels: Labels
) -> str:
    """Say what will be predicted from what: a column that gives the label away is seen before the budget is spent."""
    from dpsco.rows.readers.source import TableSource

    what = f"Label: {args.label}" + (f" ({' or '.join(labels.classes)})" if labels.classes else "")
    if isinstance(columns, int):
        return f"{what}. Features: {columns:,} numbers per row."
    named = source.names if args.columns is not None and isinstance(source, TableSource) else ()
    unused = [name for name in named if name not in {*columns.names, args.label, args.unit}]
    rest = f" Not used: {', '.join(unused)}." if unused else ""
    return f"{what}. Features: {', '.join(columns.names)} ({columns.width:,} numbers per row).{rest}"


def _check_before(args: argparse.Namespace) -> None:
    """Find what contradicts itself or what the end of the run would miss: a failure there has spent the budget."""
    from dpsco.accounting.account import Account

    budget_of(args)
    if (args.unit is None) != (args.max_rows_per_unit is None):
        raise InvalidArgument("--unit and --max-rows-per-unit go together: whose a row is, and how many rows count.")
    if args.account is not None and not args.account.exists():
        raise InvalidArgument(
            f"There is no account {str(args.account)!r}. If the data set is new, begin one with dpsco account "
            f"{args.account} --epsilon E --delta D. If there was one, restore it: the cost of its runs remains."
        )
    if args.account is not None:
        Account(args.account)  # a damaged one is found now
    given = {"DATA": args.data, "--columns": args.columns, "--account": args.account}
    outputs = {"--out": args.out, "--html": args.html}
    check_apart(outputs, {**given, "--public-test": args.public_test}, checkpoint=args.checkpoint)
    _check_files(args, _ROOM)
    check_page(args.html, "--html")
    if args.public_test is not None:
        opened(args, args.public_test)
    if args.cluster is not None or args.local_cluster is not None:
        from dpsco.engines.dask.connect import installed

        installed()


def _check_files(args: argparse.Namespace, room: int) -> None:
    """Refuse files that cannot be written, or not with ``room`` bytes; a run that goes on may need none."""
    kept = None if args.checkpoint is None else args.checkpoint / "secret.json"
    goes_on = args.resume and (args.checkpoint / "run.json").exists()
    check_outputs(room=0 if goes_on else room, out=args.out, checkpoint=kept)


def _elsewhere(args: argparse.Namespace) -> bool:
    """Return whether rows are read by the workers of a cluster."""
    return args.cluster is not None or args.local_cluster is not None


def _train(
    args: argparse.Namespace, plan: Plan, labels: Labels, columns: PublicColumns | int, block: int, counted: Any
) -> Result:
    """Train in this process, or on the cluster that the options name."""
    from dpsco.accounting.account import Account
    from dpsco.run.facts import Facts

    options: dict[str, Any] = {"checkpoint": args.checkpoint, "resume": args.resume, "progress": not args.json}
    options["diagnostics"] = counted
    options["account"] = None if args.account is None else Account(args.account)
    options["facts"] = Facts(table=True, form=_form(labels, columns, args.feature_norm, block))
    if not _elsewhere(args):
        import dpsco
        from dpsco.rows.file_stream import FileRows

        unit: dict[str, Any] = {"unit": args.unit, "max_rows_per_unit": args.max_rows_per_unit}
        rows = FileRows(
            args.data, labels, columns, feature_norm=args.feature_norm, shuffle=block, **unit, **reading(args)
        )
        return dpsco.train(plan, dpsco.stream(rows), **options)
    from dpsco.engines import dask as cluster

    if args.unit is not None or args.max_rows_per_unit is not None:
        raise InvalidArgument("--unit counts the rows of an id over all files in order: train without a cluster.")
    if isinstance(columns, int):
        raise InvalidArgument("A cluster needs Parquet files, whose rows can be located. Convert the data first.")
    shards = cluster.ParquetRows(
        args.data, labels, columns, feature_norm=args.feature_norm, shuffle=block, unreadable=args.unreadable
    )
    where = cluster.cluster_at(args.cluster) if args.cluster else cluster.local_cluster(args.local_cluster)
    with where as client:
        return cluster.train(plan, shards, client, **options)


def _form(labels: Labels, columns: PublicColumns | int, feature_norm: float, block: int) -> str:
    """Return a digest of what turns the files into rows: a checkpoint belongs to it."""
    made = columns if isinstance(columns, int) else columns.to_dict()
    return hashlib.sha256(canonical([asdict(labels), made, feature_norm, block])).hexdigest()


def _task(args: argparse.Namespace) -> tuple[Loss, Labels]:
    from dpsco.rows.file_stream import Labels

    loss = loss_of(args)
    if args.loss in REGRESSIONS:
        if args.label_bound is None:
            raise InvalidArgument("Regression needs --label-bound Y, a public bound: labels are clamped to [-Y, Y].")
        return loss, Labels(args.label, bound=args.label_bound)
    return loss, Labels(args.label, class_names(args))


def _block_rows(columns: PublicColumns | int) -> int:
    """Return the rows per shuffled block: 65,536, or as many as fit into 64 MB."""
    width = columns if isinstance(columns, int) else len(columns.features) if columns.sparse else columns.width
    return min(1 << 16, max(4096, SHUFFLE_BYTES // (4 * width)))


def _order_note(n: int, block: int) -> list[str]:
    if block >= n:
        return []
    if block == 0:
        return [
            "rows are used in the order of the files. If they are sorted (by label, by date), one pass favours the "
            "last rows: shuffle the files first, or use --shuffle ROWS."
        ]
    return [
        f"rows are shuffled within blocks of {block:,}. If the files are sorted over longer ranges, shuffle the files "
        "first, or raise --shuffle."
    ]


def _print_result(args: argparse.Namespace, saved: Any, written: Path, counted: Any, day: str) -> None:
    from dpsco.cli.fit_figures import not_private_figures, reached_on

    reached = {}
    try:
        reached = {} if args.public_test is None else reached_on(args.public_test, saved, reading(args))
    except DataError as error:  # the budget is spent and the model written: neither is lost over a damaged file
        print(f"note: the model could not be measured on --public-test. {error}", file=sys.stderr)
    if args.html is not None:
        hidden = None if counted is None else not_private_figures(counted)
        given = {"name": data_name(args.data), "date": day}
        write_model_page(saved, args, **given, reached=reached, not_private=hidden)
    report = saved.result.report
    if args.json:
        page = None if args.html is None else str(args.html)
        body = {"model": str(written), "page": page, "report": json.loads(report.to_json()), "reached": reached}
        print_json({**body, "coefficients": None if saved.table is None else saved.table.to_dict()})
        return
    print(report, "\n")
    print_coefficients(saved)
    for name, value in reached.items():
        print(f"  {name:<26} {value}  (on data declared public)")
    print(f"Model: {written}" + ("" if args.html is None else f"\nPage:  {args.html}"))
