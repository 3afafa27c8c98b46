"""Options that declare the columns of a file, for the commands that read data."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpsco.errors import InvalidArgument

if TYPE_CHECKING:
    from dpsco.rows.public_columns import PublicColumns
    from dpsco.rows.readers.source import MatrixSource, TableSource

__all__ = ["add_data_options", "add_reading_options", "declared_columns", "opened", "pairs", "reading"]

NO_HEADER = "Does the first line of the file hold the names of the columns?"


def add_data_options(parser: Any) -> None:
    """Add the options that declare columns to a parser."""
    group = parser.add_argument_group("columns", "You declare these public facts. None of them is read from the rows.")
    group.add_argument(
        "--label", default="y", metavar="COLUMN", help="the label column, or the member of a .npz file (default y)"
    )
    group.add_argument("--features", metavar="A,B,C", help="columns of numbers (default: those of a typed file)")
    group.add_argument(
        "--columns", metavar="FILE", help="a schema of all feature columns, .json or .toml (dpsco columns drafts one)"
    )
    group.add_argument(
        "--range",
        action="append",
        default=[],
        metavar="COLUMN=LOW:HIGH",
        help="clamp a column to this range and scale it to [0, 1]; repeatable",
    )
    group.add_argument("--log", metavar="A,B", help="columns with a range that are on a log scale")
    group.add_argument("--centered", action="store_true", help="scale ranges to [-1, 1] instead")
    group.add_argument(
        "--date",
        action="append",
        default=[],
        metavar="COLUMN=FIRST:LAST",
        help="a column of dates such as 2024-02-29, scaled like a range; repeatable",
    )
    group.add_argument("--boolean", metavar="A,B", help="columns of yes and no, true and false, 1 and 0")
    group.add_argument(
        "--categories",
        action="append",
        default=[],
        metavar="COLUMN=A|B|C",
        help="one 0/1 feature per level; other values have none; repeatable",
    )
    group.add_argument(
        "--hashed",
        action="append",
        default=[],
        metavar="COLUMN=BUCKETS",
        help="one 0/1 feature per hash bucket, if the levels cannot be listed; repeatable",
    )
    group.add_argument("--missing", metavar="A,B", help="columns with one more feature for missing cells; or: all")
    group.add_argument("--other", metavar="A,B", help="categories with one more feature for other levels; or: all")
    group.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="first|COLUMN=LEVEL",
        help="categories: the level without a feature, against which the others are measured; first: that of every "
        "column. Standard errors beside an intercept need it; repeatable",
    )
    group.add_argument(
        "--dimension", type=int, help="number of features, where no file states it (libsvm: indices start at 1)"
    )
    add_reading_options(parser)


def add_reading_options(parser: Any) -> None:
    """Add the options that say how a text file is to be read."""
    group = parser.add_argument_group("text files")
    group.add_argument("--delimiter", metavar="X", help="separator of a CSV file (default: a comma; .tsv: a tab)")
    group.add_argument("--names", metavar="A,B,C", help="names of all columns of a CSV file without a header line")


def reading(args: argparse.Namespace) -> dict[str, Any]:
    """Return how the options say that text is to be read."""
    delimiter = {"\\t": "\t", "tab": "\t"}.get(args.delimiter, args.delimiter)
    return {"delimiter": delimiter, "names": None if args.names is None else _listed(args.names)}


def opened(args: argparse.Namespace, path: str) -> TableSource | MatrixSource:
    """Return the reader of the files at ``path``."""
    from dpsco.rows.file_stream import open_source

    return open_source(path, label=getattr(args, "label", None), **reading(args))


def declared_columns(
    args: argparse.Namespace, source: TableSource | MatrixSource, besides: tuple[str, ...]
) -> tuple[PublicColumns | int, list[str]]:
    """Return the columns that the options declare for ``source``, and notes for the user.

    ``besides`` names columns that are not features, such as the label.
    """
    from dpsco.rows.public_columns import PublicColumns
    from dpsco.rows.readers.source import MatrixSource

    kinds = ("features", "range", "date", "boolean", "categories", "hashed")
    options = (*kinds, "log", "missing", "other", "drop", "centered")
    given = [f"--{name}" for name in options if getattr(args, name)]
    if args.columns is not None and given:
        raise InvalidArgument(f"--columns states all feature columns: leave out {', '.join(given)}.")
    if isinstance(source, MatrixSource):
        if given or args.columns is not None:
            raise InvalidArgument(f"{', '.join(given or ['--columns'])}: only a table has named columns.")
        width = source.width if args.dimension is None else int(args.dimension)
        if width is None:
            raise InvalidArgument("A libsvm file does not state the number of features: add --dimension N.")
        return width, []
    _check_names(source, besides)  # before any note: the first line of a file without a header is a row
    if args.columns is not None:
        columns = PublicColumns.read(args.columns)
        _check_apart(columns, besides)
        _check_names(source, columns.names)
        return columns, id_note(columns)
    ranges = {name: _ends(name, text) for name, text in pairs("--range", args.range)}
    categories = {name: text.split("|") for name, text in pairs("--categories", args.categories)}
    hashed = {name: _whole(name, text) for name, text in pairs("--hashed", args.hashed)}
    dates = {name: _ends_of_dates(name, text) for name, text in pairs("--date", args.date)}
    booleans = _listed(args.boolean)
    taken = {*categories, *hashed, *dates, *booleans, *besides}
    notes = []
    known = {*taken, *ranges}
    if args.features is not None:
        numbers = _listed(args.features)
    elif source.number_columns is None:
        numbers = []
        _refuse_undeclared(source, [name for name in source.names if name not in known])
    else:
        numbers = [name for name in source.number_columns if name not in {*taken, *source.index_columns}]
        named = {*numbers, *known, *source.index_columns}
        _refuse_undeclared(source, [name for name in source.names if name not in named])
    if unused := [name for name in source.names if name not in {*numbers, *known}]:
        notes.append(f"not used: {_shown(source, unused)}.")
    columns = PublicColumns(
        numbers,
        ranges=ranges,
        log=_listed(args.log),
        centered=args.centered,
        dates=dates,
        booleans=booleans,
        categories=categories,
        hashed=hashed,
        missing=args.missing == "all" or _listed(args.missing),
        other=args.other == "all" or _listed(args.other),
        drop="first" if args.drop == ["first"] else dict(pairs("--drop", args.drop)) or None,
    )
    _check_apart(columns, besides)
    _check_names(source, columns.names)
    return columns, notes + id_note(columns)


def id_note(columns: PublicColumns) -> list[str]:
    """Return a note about columns whose names say that they tell rows apart."""
    from dpsco.rows.draft_columns import looks_like_id

    if ids := [name for name in columns.names if looks_like_id(name)]:
        return [f"these features look like ids: {', '.join(ids)}. A model learns nothing general from an id."]
    return []


def _check_apart(columns: PublicColumns, besides: tuple[str, ...]) -> None:
    """Refuse a label or an id among the features, which would predict itself."""
    if twice := [name for name in besides if name in columns.names]:
        raise InvalidArgument(f"The label or the unit is among the features: {', '.join(twice)}. Leave it out there.")


def _refuse_undeclared(source: TableSource, names: list[str]) -> None:
    """Refuse columns that nobody declared: whether they hold text cannot be found out from private rows."""
    if names:
        stated = source.number_columns is not None
        what = "hold text or no value" if stated else "may hold text, and a CSV file does not say"
        raise InvalidArgument(
            f"The {_shown(source, names)} {what}. Declare each with --range, --categories, --hashed, --date "
            "or --boolean, or all of them with --columns FILE; or list the columns of numbers to use with --features."
        )


def _shown(source: TableSource, names: list[str]) -> str:
    """Return columns by name; by place where the first line of a text file may be a row: it holds a number."""
    from dpsco.rows.cells import number

    if source.has_schema or all(math.isnan(number(name)) for name in source.names):
        return f"columns {', '.join(names)}"
    return f"columns {', '.join(str(1 + source.names.index(name)) for name in names)} (counted from the left)"


def _check_names(source: TableSource, wanted: Sequence[str]) -> None:
    if source.states_names and (absent := [name for name in wanted if name not in source.names]):
        shown = f"The columns are: {', '.join(source.names)}." if source.has_schema else NO_HEADER
        raise InvalidArgument(f"There is no column {', '.join(absent)}. {shown}")


def pairs(option: str, texts: list[str]) -> list[tuple[str, str]]:
    """Split ``NAME=VALUE`` texts."""
    for text in texts:
        if "=" not in text.strip("="):
            raise InvalidArgument(f"Expected {option} {text!r} in the form COLUMN=VALUE.")
    return [(text.partition("=")[0], text.partition("=")[2]) for text in texts]


def _listed(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _ends_of_dates(name: str, text: str) -> tuple[str, str]:
    first, found, last = text.partition(":")
    if not found:
        raise InvalidArgument(
            f"Expected --date {name}={text} in the form COLUMN=FIRST:LAST, such as 1900-01-01:2030-01-01."
        )
    return first, last


def _ends(name: str, text: str) -> tuple[float, float]:
    try:
        low, high = text.split(":")
        return float(low), float(high)
    except ValueError:
        raise InvalidArgument(
            f"Expected --range {name}={text} in the form COLUMN=LOW:HIGH, such as age=0:100."
        ) from None


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"Expected --hashed {name}={text} in the form COLUMN=BUCKETS, such as city=64.") from None
