"""Arrow IPC files, batch by batch. Parquet files are in parquet.py, columns of both in arrow_columns.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

from dpsco.errors import DataError
from dpsco.rows.cells import id_message
from dpsco.rows.readers.arrow_columns import arrow_table, cell_type, has_date, is_bytes, is_number, is_text, is_view
from dpsco.rows.readers.remote import RemoteFile
from dpsco.rows.readers.source import Table, TableSource, arrow, damaged, missing_columns
from dpsco.rows.readers.stamps import Stamps

__all__ = ["BATCH_ROWS", "AnyFile", "ArrowFiles", "ArrowSource", "check_columns"]

AnyFile = Path | RemoteFile

BATCH_ROWS = 1 << 15
_CUT = "is damaged or cut short: it cannot be read as {kind}. Copy it again from its source, or leave it out."
_AWAY = "cannot be read as {kind}: it is damaged, or its store is out of reach."


@dataclass(frozen=True)
class BatchPart:
    """Rows of a record batch (``CountedPart``)."""

    convert: Callable[[Any], Table]
    batch: Any

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.batch.num_rows)

    def __call__(self) -> Table:
        """Convert the rows."""
        return self.convert(self.batch)


class ArrowFiles(TableSource):
    """Files of one kind with the same columns, one after the other."""

    kind: str

    def __init__(self, paths: Sequence[AnyFile]) -> None:
        self._paths, self._stamps = tuple(paths), Stamps(paths)
        schema = self._schema(self._paths[0])
        self.names = tuple(schema.names)
        self.number_columns = tuple(field.name for field in schema if is_number(field.type))
        self.index_columns = _index_columns(schema)

    def parts(
        self, numbers: Sequence[str], texts: Sequence[str], ids: Sequence[str] = (), most: int = BATCH_ROWS
    ) -> Iterator[BatchPart]:
        """Yield the rows in order, in batches of at most ``most`` rows."""
        wanted = list(dict.fromkeys((*numbers, *texts, *ids)))
        for path in self._paths:  # every file is looked at before the first row is used
            check_columns(path, self._schema(path), numbers, (*texts, *ids))
        for path in self._paths:
            batches = self._guarded(path, self._batches(path, wanted, coded=texts, most=most))
            for batch in self._stamps.watched(path, batches):
                yield BatchPart(partial(self._converted, path, numbers=numbers, texts=texts, ids=ids), batch)

    def refuse_ids(self, name: str) -> None:
        """Raise ``DataError`` if the column ``name`` of a file cannot hold ids by its type."""
        for path in self._paths:
            schema = self._schema(path)
            missing_columns(path, (name,), schema.names)
            kind = schema.field(name).type
            types, value = arrow("pyarrow").types, getattr(kind, "value_type", kind)
            if types.is_floating(value) or types.is_boolean(value):
                raise DataError(id_message(f"The column {name!r} of {path.name!r}", str(kind)))
        self.refuse_times((name,))

    def refuse_times(self, names: Sequence[str]) -> None:
        """Raise ``DataError`` if one of these columns has a type of times: it would hold no number and no text.

        Arrow makes whole numbers into times where one cell is a time, and the numbers of all other rows are lost.
        """
        for path in self._paths if names else ():
            schema = self._schema(path)
            for name in set(names).intersection(schema.names):
                kind = schema.field(name).type
                if has_date(getattr(kind, "value_type", kind)):
                    raise DataError(
                        f"The column {name!r} of {path.name!r} has the type {kind}, which holds times. Expected text "
                        "or numbers: declare it as a date, or convert it."
                    )

    @classmethod
    def _converted(
        cls, path: Any, batch: Any, numbers: Sequence[str], texts: Sequence[str], ids: Sequence[str] = ()
    ) -> Table:
        """Return the cells of a batch."""
        (table,) = cls._guarded(path, (arrow_table(each, numbers, texts, ids) for each in (batch,)))
        return cast("Table", table)

    @classmethod
    def _guarded(cls, path: Any, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items; what Arrow says about a file or a cell is not shown."""
        try:
            yield from items
        except (arrow("pyarrow").ArrowException, OSError, EOFError, MemoryError) as error:
            if isinstance(error, MemoryError):
                raise
            cls._refuse(path)

    @classmethod
    def _refuse(cls, path: Any) -> NoReturn:
        damaged(path, (_AWAY if isinstance(path, RemoteFile) else _CUT).format(kind=cls.kind))

    @classmethod
    def _schema(cls, path: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def _batches(
        cls, path: Any, wanted: list[str], *, coded: Sequence[str] = (), most: int = BATCH_ROWS
    ) -> Iterator[Any]:
        """Yield batches of at most ``most`` rows; the columns ``coded`` may be codes of their distinct texts."""
        raise NotImplementedError


class ArrowSource(ArrowFiles):
    """Arrow IPC, file or stream format (Feather version 2 is the former)."""

    kind = "Arrow IPC"

    @classmethod
    def _reader(cls, file: Any) -> Any:
        """Record batches in order, whichever format it is."""
        pa, ipc = arrow("pyarrow"), arrow("pyarrow.ipc")
        try:
            reader = ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            marked = _EndMark(file)
            reader = ipc.open_stream(marked)
            return reader.schema, marked.followed(reader)
        return reader.schema, (reader.get_batch(k) for k in range(reader.num_record_batches))

    @classmethod
    def _schema(cls, path: Path) -> Any:
        try:
            with path.open("rb") as file:
                return cls._reader(file)[0]
        except (arrow("pyarrow").ArrowException, OSError):
            cls._refuse(path)

    @classmethod
    def _batches(
        cls, path: Any, wanted: list[str], *, coded: Sequence[str] = (), most: int = BATCH_ROWS
    ) -> Iterator[Any]:
        with path.open("rb") as file:
            for batch in cls._reader(file)[1]:
                chosen = batch.select(wanted)
                for column in chosen.columns:  # Arrow follows offsets that it has read, also wrong ones
                    _as_bytes(column).validate(full=True)
                for start in range(0, batch.num_rows, most):
                    yield chosen.slice(start, most)

    def count(self) -> int:
        """Return the number of rows."""
        return sum(batch.num_rows for path in self._paths for batch in self._guarded(path, self._batches(path, [])))


class _EndMark:
    """A file in the stream format, of which Arrow reads no byte behind its end mark.

    Without a mark it may be cut short between two batches, which Arrow takes for its end.
    """

    def __init__(self, file: Any) -> None:
        self._file, self._missing = file, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        """Read, and note whether there was less to read."""
        data: bytes = self._file.read(size)
        self._missing |= len(data) < size
        return data

    def followed(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches; raise ``OSError`` behind the last one if no mark follows it."""
        yield from batches
        if self._missing:
            raise OSError("no end mark")


def _as_bytes(column: Any) -> Any:
    """Return a column as bytes or whole numbers, so that only what makes it unreadable counts as damage.

    A cell that is not UTF-8, a day with a time of day and a decimal with too many digits are cells of their own rows.
    """
    pa = arrow("pyarrow")
    if pa.types.is_dictionary(column.type):
        column.indices.validate(full=True)
        column = column.dictionary
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.view(pa.large_binary())
    if pa.types.is_string_view(column.type):
        return column.view(pa.binary_view())
    if pa.types.is_date64(column.type):
        return column.view(pa.int64())
    return column.view(pa.binary(column.type.byte_width)) if pa.types.is_decimal(column.type) else column


def check_columns(path: AnyFile, schema: Any, numbers: Sequence[str], texts: Sequence[str]) -> None:
    """Raise ``DataError`` if a file does not have the wanted columns once each, of types that can be read."""
    wanted = tuple(dict.fromkeys((*numbers, *texts)))
    missing_columns(path, wanted, schema.names)
    if twice := [name for name in wanted if list(schema.names).count(name) > 1]:
        raise DataError(f"The file {path.name!r} has several columns named {', '.join(map(repr, twice))}.")
    for name in wanted:
        kind = schema.field(name).type
        absent = arrow("pyarrow").types.is_null(kind)  # what a writer makes of a column without a value
        known = is_number(kind) or is_text(kind) or is_bytes(cell_type(kind)) or is_view(cell_type(kind))
        if not (absent or known or (name not in numbers and has_date(kind))):
            raise DataError(
                f"The column {name!r} of {path.name!r} has the type {kind}. Expected numbers or text (or a date, if it "
                "is declared as one): leave it out, or convert it."
            )


def _index_columns(schema: Any) -> tuple[str, ...]:
    """Return the columns that pandas wrote as the index of its table, by what the file itself states."""
    try:
        stated = (schema.pandas_metadata or {}).get("index_columns", ())
    except ValueError:  # not JSON
        return ()
    return tuple(name for name in stated if isinstance(name, str))  # an index of positions has no column
