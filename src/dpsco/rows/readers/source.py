"""What a reader of files offers: tables by column, or matrices; in order, chunk by chunk, never whole."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol, cast

from dpsco.errors import DataError, ExtraMissing
from dpsco.query import Array
from dpsco.rows.cells import Coded

__all__ = [
    "COMPRESSED",
    "CountedPart",
    "MatrixSource",
    "Named",
    "Part",
    "Table",
    "TableSource",
    "arrow",
    "damaged",
    "missing_columns",
    "opened_bytes",
]

COMPRESSED = (".gz", ".zst")
"""Endings of compressed text files."""

Table = Mapping[str, Array | Coded]
Part = Callable[[], Table]
"""Some rows that are read and not yet converted: the call converts them. Parts may be called in any thread."""


class CountedPart(Protocol):
    """A part that knows its number of rows."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    def __call__(self) -> Table:
        """Convert the rows."""


class TableSource:
    """Files with named columns."""

    names: tuple[str, ...]
    """Columns in the order of the file."""
    number_columns: tuple[str, ...] | None
    """Columns that the file itself declares to hold numbers; None if it does not say (CSV)."""
    index_columns: tuple[str, ...] = ()
    """Columns that name rows, as the file states: no features unless they are asked for."""

    states_names = True
    """Whether the file states its columns; JSON lines do not."""

    has_schema = True
    """Whether the names are those of a schema. In text they are the first line, which may be a row: never print it."""

    def read(self, numbers: Sequence[str], texts: Sequence[str], ids: Sequence[str] = ()) -> Iterator[Table]:
        """Yield some columns as numbers (NaN where missing), others as text or as ids (cells.py); rows in order."""
        for part in self.parts(numbers, texts, ids):
            yield part()

    def parts(self, numbers: Sequence[str], texts: Sequence[str], ids: Sequence[str] = ()) -> Iterator[Part]:
        """Yield the rows of ``read`` in order, in parts that threads may convert side by side."""
        raise NotImplementedError

    def refuse_ids(self, name: str) -> None:
        """Raise ``DataError`` if the column ``name`` cannot hold ids by its type; text can."""

    def refuse_times(self, names: Sequence[str]) -> None:
        """Raise ``DataError`` if one of these columns, declared as text, has a type of times; text has none."""

    def count(self) -> int:
        """Return the number of rows."""
        raise NotImplementedError

    def found_names(self) -> tuple[str, ...]:
        """Return the columns of a file that is public; one that does not state them is read."""
        return self.names


class MatrixSource:
    """Files whose features have no names: a matrix, dense or CSR, and one label a row."""

    width: int | None
    """Number of features, where the file says it."""
    single = False
    """Whether the file declares its features to be float32."""
    sparse = False
    """Whether rows are CSR."""

    def read(self, width: int) -> Iterator[tuple[Any, Any]]:
        """Yield (features, labels) as stored; rows in order."""
        raise NotImplementedError

    def count(self) -> int:
        """Return the number of rows."""
        raise NotImplementedError


@cache
def arrow(module: str) -> Any:
    """Return a module of pyarrow, loaded on first use."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise ExtraMissing("Tables in files (CSV, Parquet, Arrow) need pyarrow: install dpsco[files].") from None


def opened_bytes(path: Path) -> BinaryIO:
    """Return the bytes of a file, decompressed if its name ends in .gz or .zst."""
    if path.suffix.lower() not in COMPRESSED:
        return path.open("rb")
    try:
        stream = arrow("pyarrow").input_stream(str(path), compression="detect", buffer_size=1 << 20)
    except (arrow("pyarrow").ArrowException, OSError):
        raise OSError(f"cannot open {path.name}") from None
    return cast("BinaryIO", io.BufferedReader(stream, 1 << 20))


class Named(Protocol):
    """A file of any kind: its name may be shown."""

    @property
    def name(self) -> str:
        """The name without its folder."""


def damaged(path: Named, what: str) -> NoReturn:
    """Refuse a file by name. What the library underneath said is left out: it may quote data."""
    if isinstance(path, Path) and not path.exists():
        what = "is not there any more. Put it back, or start the run without it."
    raise DataError(f"The file {path.name!r} {what}") from None


def missing_columns(path: Named, wanted: Sequence[str], names: Sequence[str], *, show: bool = True) -> None:
    """Raise if a wanted column is not among ``names``; ``show`` them if they are a schema and not a line of text."""
    if absent := [name for name in wanted if name not in names]:
        there = (
            f"Its columns are: {', '.join(names)}." if show else "Does its first line hold the names of the columns?"
        )
        raise DataError(f"The file {path.name!r} has no column {', '.join(map(repr, absent))}. {there}")
