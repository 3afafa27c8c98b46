"""Arrow's CSV parser as the library uses it: which cells become numbers, and lines of blanks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpsco.fork_safety import ThreadLock
from dpsco.rows.readers.source import arrow

__all__ = ["BLOCK_BYTES", "CsvForm", "LinesOfBlanks", "silent"]

BLOCK_BYTES = 4 << 20
"""Bytes that are parsed at once; also the longest row."""
_MISSING = ["", "?", "NA", "N/A", "n/a", "NULL", "null", "None", "none", "NaN", "nan", "-", "."]
"""Some texts that are no numbers. Any other is missing as well, but is read more slowly."""


class CsvForm:
    """How rows of a file are parsed.

    Parameters
    ----------
    names : sequence of str
        All columns of the file.
    delimiter : str
        Separator of the cells.
    wanted : mapping of str to str
        Columns to read, as "number" or "text".

    Guarantee: a cell has one value, whatever stands in other cells. Arrow converts a column of a block to float64 if
    every cell of it is written as a number or is one of ``_MISSING``. Otherwise all cells of the block come as text,
    and ``arrow_numbers`` gives each the same value: what Arrow accepts, and is finite, is a number by cells.NUMBER, and
    both convert it by the same function.
    """

    def __init__(self, names: Sequence[str], delimiter: str, wanted: Mapping[str, str]) -> None:
        self._names, self._delimiter, self.wanted = names, delimiter, dict(wanted)
        self._as_text = "number" not in wanted.values()

    def batch(self, text: Any, first: int) -> Any:
        """Return the rows of a whole text behind ``first`` lines, those of lines of blanks in their places."""
        pa = arrow("pyarrow")
        if not self._as_text:
            try:
                return self._batch(text, first, as_text=False)
            except pa.ArrowInvalid:
                self._as_text = True  # for later blocks too: this saves time and changes no value
        return self._batch(text, first, as_text=True)

    def _batch(self, text: Any, first: int, *, as_text: bool) -> Any:
        pa, pa_csv = arrow("pyarrow"), arrow("pyarrow.csv")
        kinds = {"text": pa.string(), "number": pa.string() if as_text else pa.float64()}
        blanks = LinesOfBlanks(first)
        with silent():
            # Not the streaming reader: its threads read ahead, and may end a process that ends meanwhile.
            table = pa_csv.read_csv(
                pa.BufferReader(pa.py_buffer(text)),
                read_options=pa_csv.ReadOptions(
                    use_threads=False, block_size=len(text) + 1, column_names=list(self._names), skip_rows=first
                ),
                parse_options=pa_csv.ParseOptions(
                    delimiter=self._delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=False,
                    invalid_row_handler=blanks,
                ),
                convert_options=pa_csv.ConvertOptions(
                    include_columns=list(self.wanted),
                    column_types={name: kinds[kind] for name, kind in self.wanted.items()},
                    strings_can_be_null=False,
                    null_values=_MISSING,
                    check_utf8=False,  # a cell that is not UTF-8 is missing by itself
                ),
            )
        columns = [_finite(_one(column)) for column in table.columns]
        return blanks.put_back(pa.record_batch(columns, names=list(self.wanted)))


def _one(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _finite(column: Any) -> Any:
    """Return a column without the numbers that are not finite: text such as ``inf`` is no number."""
    pa, pc = arrow("pyarrow"), arrow("pyarrow.compute")
    if not pa.types.is_floating(column.type) or pc.all(finite := pc.is_finite(column)).as_py() is not False:
        return column
    return pc.if_else(finite, column, pa.scalar(None, column.type))


class LinesOfBlanks:
    """Lines of blanks, which Arrow leaves out since they have one cell: puts them back as rows of missing cells.

    Arrow calls it with each line that has another number of cells than the header. Any other such line is an error.
    No line changes how Arrow reads another one.
    """

    def __init__(self, first: int) -> None:
        self._first, self._places = first, list[int]()

    def __call__(self, row: Any) -> str:
        """Return what Arrow is to do about a line: "skip" or "error"."""
        if row.text.strip() or row.number is None:
            return "error"
        self._places.append(row.number - 1 - self._first)
        return "skip"

    def put_back(self, batch: Any) -> Any:
        """Return the rows with lines of blanks among and behind them."""
        if not self._places:
            return batch
        pa, absent = arrow("pyarrow"), np.zeros(batch.num_rows + len(self._places), dtype=bool)
        absent[self._places] = True
        return batch.take(pa.array(np.cumsum(~absent) - 1, mask=absent))


_SILENT = ThreadLock()
_inside = 0
_before: Any = None


@contextmanager
def silent() -> Iterator[None]:
    """Print nothing about a line of another number of cells that is not UTF-8: the message would quote a byte.

    Several threads may be inside: the first puts the hook in place, and the last takes it away.
    """
    global _inside, _before
    with _SILENT.lock:
        if not _inside:
            _before, sys.unraisablehook = sys.unraisablehook, _hook
        _inside += 1
    try:
        yield
    finally:
        with _SILENT.lock:
            _inside -= 1
            if not _inside:
                sys.unraisablehook = _before


def _hook(failure: Any) -> None:
    if not isinstance(failure.object, LinesOfBlanks):
        _before(failure)
