"""Arrow IPC files, batch by batch, and Arrow columns as numbers or text. Parquet files are in parquet.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError
from dpsco.query import Array
from dpsco.rows.cells import BOOLEANS, NUMBER, Coded, canonical_text, coded, id_message, id_text
from dpsco.rows.readers.remote import RemoteFile
from dpsco.rows.readers.source import Table, TableSource, arrow, damaged, missing_columns
from dpsco.rows.readers.stamps import Stamps

__all__ = [
    "BATCH_ROWS",
    "AnyFile",
    "ArrowFiles",
    "ArrowSource",
    "arrow_cells",
    "arrow_days",
    "arrow_numbers",
    "arrow_real",
    "arrow_table",
    "arrow_text",
    "check_columns",
    "is_any_text",
]

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
        self.number_columns = tuple(field.name for field in schema if _is_number(field.type))
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
                if _has_date(getattr(kind, "value_type", kind)):
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
            reader = ipc.open_stream(file)
            return reader.schema, iter(reader)
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
        known = _is_number(kind) or _is_text(kind) or _is_bytes(_cell_type(kind))
        if not (absent or known or (name not in numbers and _has_date(kind))):
            raise DataError(
                f"The column {name!r} of {path.name!r} has the type {kind}. Expected numbers or text (or a date, if it "
                "is declared as one): leave it out, or convert it."
            )


def arrow_table(batch: Any, numbers: Sequence[str], texts: Sequence[str], ids: Sequence[str] = ()) -> Table:
    """Return the columns of a record batch, some as numbers, some as text and some as ids."""
    table: dict[str, Array | Coded] = {name: arrow_numbers(_as_text(batch.column(name))) for name in numbers}
    table |= {name: arrow_text(_as_text(batch.column(name))) for name in texts}
    return table | {name: arrow_text(_as_text(batch.column(name)), id_text) for name in ids}


def _as_text(column: Any) -> Any:
    """Return a column of bytes as text, which need not be UTF-8: one cell of bytes makes bytes of a column of text."""
    pa = arrow("pyarrow")
    if pa.types.is_dictionary(column.type) and _is_bytes(column.type.value_type):
        return pa.DictionaryArray.from_arrays(column.indices, _as_text(column.dictionary))
    if not _is_bytes(column.type):
        return column
    return column.view(pa.large_string() if pa.types.is_large_binary(column.type) else pa.string())


def decoded(column: Any) -> Any:
    """Return a run-end encoded column as the column that it stands for; any other as it is."""
    if not arrow("pyarrow").types.is_run_end_encoded(column.type):
        return column
    return arrow("pyarrow.compute").run_end_decode(column)


def arrow_numbers(column: Any) -> Array:
    """Return an Arrow column as floating point, NaN where a cell is missing or is text that is no number."""
    pa, pc = arrow("pyarrow"), arrow("pyarrow.compute")
    if column.null_count == 0 and column.type in (pa.float32(), pa.float64()):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if column.null_count == 0 and pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.float64)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        try:
            column = pc.utf8_trim_whitespace(column)
        except pa.ArrowInvalid:
            column = pc.utf8_trim_whitespace(pa.array(_texts(column), column.type))
        lower = pc.ascii_lower(column)
        for word, value in BOOLEANS.items():
            column = pc.if_else(pc.equal(lower, word), pa.scalar(str(value), column.type), column)
        is_number = pc.match_substring_regex(column, NUMBER)
        column = pc.if_else(is_number, column, pa.scalar(None, column.type))
        column = pc.cast(pc.ascii_ltrim(column, "+"), pa.float64())  # Arrow reads no sign of plus
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    if pa.types.is_decimal(column.type):  # the digits of one row decide on the scale, and products with it are rounded
        column = pc.cast(column, pa.string())
    return np.array(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def arrow_real(column: Any) -> Array:
    """Return a column of numbers in memory as float64, NaN where it holds none.

    ``arrow_numbers`` leaves float32 without a missing cell as it is, and a sum or a quotient of float32 has other bits.
    """
    return np.concatenate([arrow_numbers(chunk) for chunk in _chunks(decoded(column))], dtype=np.float64)


def arrow_cells(column: Any) -> list[Any]:
    """Return the cells of a column of numbers or text in memory; None for text that is not UTF-8."""
    return [cell for chunk in _chunks(decoded(column)) for cell in _chunk_cells(chunk)]


def _chunk_cells(chunk: Any) -> list[Any]:
    pa = arrow("pyarrow")
    if not pa.types.is_dictionary(chunk.type):
        return _texts(chunk)
    known = [*_texts(chunk.dictionary), None]  # code -1 finds the last
    return [known[code] for code in chunk.indices.cast(pa.int64()).fill_null(-1).to_pylist()]


def arrow_days(column: Any) -> NDArray[Any]:
    """Return a column of dates or times as days, those of times with a zone in UTC."""
    column = decoded(column)
    kind = _cell_type(column.type)
    return np.concatenate([_days(c if c.type == kind else c.dictionary_decode()) for c in _chunks(column)])


def _days(whole: Any) -> NDArray[Any]:
    """Return an array of dates or times as days."""
    pa, kind = arrow("pyarrow"), whole.type
    if pa.types.is_date32(kind):
        return _times(whole.cast(pa.int32()), "D")
    if pa.types.is_date64(kind):
        return _times(whole.cast(pa.int64()), "ms").astype("datetime64[D]")
    return _times(whole.cast(pa.int64()), kind.unit).astype("datetime64[D]")


def _times(number: Any, unit: str) -> NDArray[Any]:
    """Return whole numbers as times of a unit, NaT where there is none."""
    absent = np.asarray(number.is_null().to_numpy(zero_copy_only=False))
    count = np.array(number.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    count[absent] = np.iinfo(np.int64).min  # NaT
    return count.view(f"datetime64[{unit}]")


def _has_date(kind: Any) -> bool:
    types = arrow("pyarrow").types
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def _chunks(column: Any) -> list[Any]:
    """Return the arrays of a column, at least one; each is read by itself.

    Arrow joins chunks only if their levels fit into one index, and their text into 2 GiB: one row would decide it.
    """
    if not hasattr(column, "chunks"):
        return [column]
    return list(column.chunks) or [arrow("pyarrow").array([], column.type)]


def arrow_text(column: Any, rule: Callable[[Any], str] = canonical_text) -> Coded:
    """Return an Arrow column as text by ``rule``; by default numbers in their canonical form."""
    pa, pc = arrow("pyarrow"), arrow("pyarrow.compute")
    if _has_date(column.type):
        values, codes = np.unique(arrow_days(column), return_inverse=True)
        return coded(("" if np.isnat(day) else str(day) for day in values), codes.reshape(-1))
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices
    if codes.null_count or codes.type != pa.int32():
        codes = codes.cast(pa.int64()).fill_null(-1)  # unsigned ones have no -1
    codes, texts = codes.to_numpy(zero_copy_only=False), column.dictionary
    if len(texts) > len(codes):  # most are of other rows
        used, codes = np.unique(codes, return_inverse=True)
        texts, codes = texts.take(pa.array(used, mask=used < 0)), codes.reshape(-1)
    return coded(("" if value is None else value for value in _texts(texts)), codes, rule)


def _texts(column: Any) -> list[Any]:
    """Return the cells of a column, None for text that is not UTF-8: it neither stops a run nor is printed."""
    pa = arrow("pyarrow")
    if not is_any_text(column.type):
        return list(column.to_pylist())
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_decoded(cell) for cell in column.cast(pa.large_binary()).to_pylist()]


def _decoded(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None


def is_any_text(kind: Any) -> bool:
    """Return whether a type holds text."""
    types = arrow("pyarrow").types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: Any) -> bool:
    types = arrow("pyarrow").types
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _index_columns(schema: Any) -> tuple[str, ...]:
    """Return the columns that pandas wrote as the index of its table, by what the file itself states."""
    try:
        stated = (schema.pandas_metadata or {}).get("index_columns", ())
    except ValueError:  # not JSON
        return ()
    return tuple(name for name in stated if isinstance(name, str))  # an index of positions has no column


def _is_number(kind: Any) -> bool:
    types = arrow("pyarrow").types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _cell_type(kind: Any) -> Any:
    return kind.value_type if arrow("pyarrow").types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    types, value = arrow("pyarrow").types, _cell_type(kind)
    return bool(types.is_string(value) or types.is_large_string(value) or (value != kind and _is_number(value)))
