"""``dpsco predict``: apply a model file to rows."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from dpsco.cli.checks import check_outputs
from dpsco.cli.data_options import add_reading_options, reading
from dpsco.cli.output import print_json
from dpsco.json_files import replacing
from dpsco.rows.outputs import check_apart

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "predict",
        help="apply a model file to files of rows",
        description="Read rows with the columns, ranges and levels of the model file and write one prediction per row: "
        "the class and the probability of each class, or the number. The files may be larger than memory. Predictions "
        "cost no privacy of the training rows. They depend on the rows they are made for.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a file written by dpsco fit")
    parser.add_argument(
        "data", metavar="DATA", help="a file, a folder of files, or a quoted glob; labels are not needed"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="CSV file to write (default: standard output)")
    add_reading_options(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object that says what was written; needs --out"
    )


def run(args: argparse.Namespace) -> int:
    """Write the predictions; return the exit code."""
    from dpsco.errors import InvalidArgument
    from dpsco.rows.file_stream import FileRows
    from dpsco.run.model_file import SavedModel

    if args.json and args.out is None:
        raise InvalidArgument("--json needs --out FILE: predictions and JSON cannot share standard output.")
    check_apart({"--out": args.out}, {"MODEL": args.model, "DATA": args.data})
    check_outputs(out=args.out)
    saved = SavedModel.read(args.model)
    chunks = FileRows(args.data, None, saved.columns, feature_norm=saved.feature_norm, **reading(args))
    rows = 0
    with _open_output(args.out) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("prediction", *(f"probability_{name}" for name in saved.probability_classes)))
        for features, _ in chunks:
            predicted, chances = saved.predict(features), saved.probabilities(features)
            if chances is None:
                table.writerows((value,) for value in predicted.tolist())
            else:
                table.writerows((value, *row) for value, row in zip(predicted.tolist(), chances.tolist(), strict=True))
            rows += len(predicted)
    if args.json:
        print_json({"predictions": str(args.out), "rows": rows})
    elif args.out is not None:
        print(f"{rows:,} predictions: {args.out}")
    return 0


@contextmanager
def _open_output(path: Path | None) -> Iterator[TextIO]:
    """Yield standard output, or a file that is written completely or not at all."""
    if path is None:
        yield sys.stdout
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=None) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            yield text
        finally:
            text.detach()  # what it holds goes to the file, which ``replacing`` closes
