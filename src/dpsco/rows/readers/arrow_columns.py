"""Columns of Arrow, of files and in memory, as numbers, text, ids, cells or days; and what their types hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.query import Array
from dpsco.rows.cells import BOOLEANS, NUMBER, Coded, canonical_text, coded, id_text
from dpsco.rows.readers.source import Table, arrow

__all__ = [
    "arrow_cells",
    "arrow_days",
    "arrow_numbers",
    "arrow_real",
    "arrow_table",
    "arrow_text",
    "cell_type",
    "has_date",
    "is_any_text",
    "is_bytes",
    "is_number",
    "is_text",
    "is_view",
]


def arrow_table(batch: Any, numbers: Sequence[str], texts: Sequence[str], ids: Sequence[str] = ()) -> Table:
    """Return the columns of a record batch, some as numbers, some as text and some as ids."""
    table: dict[str, Array | Coded] = {name: arrow_numbers(_as_text(batch.column(name))) for name in numbers}
    table |= {name: arrow_text(_as_text(batch.column(name))) for name in texts}
    return table | {name: arrow_text(_as_text(batch.column(name)), id_text) for name in ids}


def _as_text(column: Any) -> Any:
    """Return a column of bytes as text, which need not be UTF-8: one cell of bytes makes bytes of a column of text."""
    pa = arrow("pyarrow")
    if pa.types.is_dictionary(column.type) and (is_bytes(column.type.value_type) or is_view(column.type.value_type)):
        return pa.DictionaryArray.from_arrays(column.indices, _as_text(column.dictionary))
    if is_view(column.type):
        column = _without_views(column)
    if not is_bytes(column.type):
        return column
    return column.view(pa.large_string() if pa.types.is_large_binary(column.type) else pa.string())


def _without_views(column: Any) -> Any:
    """Return text or bytes that are views, as polars writes them into Arrow files, as bytes in one buffer."""
    pa = arrow("pyarrow")
    try:
        return column.cast(pa.large_binary())
    except pa.ArrowNotImplementedError:  # older versions of Arrow
        return pa.array(column.view(pa.binary_view()).to_pylist(), pa.large_binary())


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
    if is_text(column.type):
        try:
            column = pc.utf8_trim_whitespace(column)
        except pa.ArrowInvalid:
            column = pc.utf8_trim_whitespace(pa.array(_texts(column), column.type))
        lower = pc.ascii_lower(column)
        for word, value in BOOLEANS.items():
            column = pc.if_else(pc.equal(lower, word), pa.scalar(str(value), column.type), column)
        numeric = pc.match_substring_regex(column, NUMBER)
        column = pc.if_else(numeric, column, pa.scalar(None, column.type))
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
    kind = cell_type(column.type)
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


def has_date(kind: Any) -> bool:
    """Whether a type holds days, or times with a day."""
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
    if has_date(column.type):
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


def is_bytes(kind: Any) -> bool:
    """Whether a type holds bytes of any length, in one buffer."""
    types = arrow("pyarrow").types
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def is_view(kind: Any) -> bool:
    """Whether a type holds text or bytes of any length, in views of several buffers."""
    types = arrow("pyarrow").types
    return bool(types.is_string_view(kind) or types.is_binary_view(kind))


def is_number(kind: Any) -> bool:
    """Whether a type holds numbers."""
    types = arrow("pyarrow").types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def cell_type(kind: Any) -> Any:
    """Return the type of the cells: that of the values of a dictionary."""
    return kind.value_type if arrow("pyarrow").types.is_dictionary(kind) else kind


def is_text(kind: Any) -> bool:
    """Whether a type holds text, or is a dictionary of text or numbers."""
    types, value = arrow("pyarrow").types, cell_type(kind)
    return bool(types.is_string(value) or types.is_large_string(value) or (value != kind and is_number(value)))
