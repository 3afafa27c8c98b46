"""CSV files with a header line, read by pyarrow."""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from dpsco.errors import DataError, InvalidArgument
from dpsco.parallel import available_threads, in_order
from dpsco.rows.readers.arrow_columns import arrow_table
from dpsco.rows.readers.csv_blocks import WholeRows
from dpsco.rows.readers.csv_parse import BLOCK_BYTES, CsvForm
from dpsco.rows.readers.csv_quotes import LongRow, OpenQuotes
from dpsco.rows.readers.source import (
    Part,
    Table,
    TableSource,
    arrow,
    damaged,
    missing_columns,
    opened_bytes,
)
from dpsco.rows.readers.stamps import Stamps

__all__ = ["CsvSource"]

_GARBLED = (
    "has lines with another number of cells than its header, or an unclosed quote: it is damaged, cut short, or has "
    "another delimiter. Repair it, or write it again with one line per row."
)
_LONG = (
    f"has a row longer than {BLOCK_BYTES >> 20} MiB, the longest that is read from CSV. Shorten it, or write the file "
    "as Parquet."
)


class CsvSource(TableSource):
    """Comma-separated (``.tsv``: tab-separated) text in UTF-8, quoted as in RFC 4180, also compressed (.gz, .zst).

    ``delimiter`` states another separator. ``names`` are the columns of a file without a header line.

    A cell that is not UTF-8 counts as missing. A row of more than 4 MiB stops the run. An empty line, or one of blanks,
    is a row of missing cells, so no row can leave itself out and move the rows behind it. Messages never quote the
    header: in a file without one it is a row. If ``label`` stands in it, they say which columns share a name.
    """

    number_columns = None

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        delimiter: str | None = None,
        names: Sequence[str] | None = None,
        label: str | None = None,
    ) -> None:
        self._label = label
        self._paths, self._stamps = tuple(paths), Stamps(paths)
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n\0' or not delimiter.isascii()):
            raise InvalidArgument(f"Expected delimiter={delimiter!r} to be one ASCII letter, such as ';'.")
        self._delimiter = delimiter or ("\t" if ".tsv" in self._paths[0].suffixes[-2:] else ",")
        self._stated = None if names is None else tuple(names)
        if self._stated is not None and (len(set(self._stated)) != len(self._stated) or not self._stated):
            raise InvalidArgument("Expected names to be the different names of all columns of the file.")
        self.names = self._header(self._paths[0])
        self.has_schema = self._stated is not None

    def _header(self, path: Path) -> tuple[str, ...]:
        if self._stated is not None:
            return self._stated
        try:
            # Only the names must be UTF-8: bytes of a row, which are read along with them, decide nothing here.
            with opened_bytes(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", "surrogateescape", newline="") as file:
                line = next(csv.reader(file, delimiter=self._delimiter), None)
        except (OSError, EOFError, csv.Error):
            damaged(path, "cannot be read as CSV. Check the path and that it is text in UTF-8.")
        if line is None:
            damaged(path, "is empty: it has neither a header line nor a row. Check the path.")
        names = tuple(name.strip() for name in line)
        other = [mark for mark in ";\t|," if mark != self._delimiter and mark in "".join(names)]
        if len(names) == 1 and other:
            damaged(path, f"has a header line with one column and {other[0]!r} in it. Is delimiter={other[0]!r} meant?")
        if any("\n" in name or "\r" in name for name in names):
            damaged(path, "has a line break in the name of a column. Give each column a name on the one header line.")
        if any("\udc80" <= letter <= "\udcff" for name in names for letter in name):
            damaged(path, "cannot be read as CSV. Check the path and that it is text in UTF-8.")
        twice = [str(k + 1) for k, name in enumerate(names) if names.count(name) > 1]
        if self._label in names and twice:  # places and no names: a row may hold the name of the label too
            damaged(path, f"has one name for several columns: see columns {', '.join(twice)}. Rename them.")
        if not names or twice or "" in names:
            damaged(path, "has no header line with a different name for each column. Add one.")
        _check_line_end(path)
        return names

    def parts(self, numbers: Sequence[str], texts: Sequence[str], ids: Sequence[str] = ()) -> Iterator[Part]:
        """Yield the rows, block by block; blocks with clean quotes are parsed where the part is called."""
        for batch in self._blocks(dict.fromkeys((*texts, *ids), "text") | dict.fromkeys(numbers, "number")):
            yield partial(_table, batch, numbers, texts, ids)

    def count(self) -> int:
        """Return the number of rows."""
        blocks = self._blocks({self.names[0]: "text"})
        return sum(in_order((partial(_length, batch) for batch in blocks), available_threads()))

    def _blocks(self, wanted: Mapping[str, str]) -> Iterator[Callable[[], Any]]:
        """Yield functions that return record batches with the ``wanted`` columns."""
        for path in self._paths:
            missing_columns(path, tuple(wanted), names := self._header(path), show=False)
            if names != self.names:
                raise DataError(f"The file {path.name!r} has other columns than {self._paths[0].name!r}.")
        for path in self._paths:
            first, form = 0 if self._stated else 1, CsvForm(self.names, self._delimiter, wanted)
            try:
                with opened_bytes(path) as raw:
                    rows = WholeRows(raw, self._delimiter, BLOCK_BYTES)
                    for text in self._stamps.watched(path, rows):
                        yield partial(_parsed, path, form, text, first)
                        first = 1
                    if rows.rest:
                        begun = rows.rest if rows.begun else b"\n" + rows.rest.removeprefix(BOM_UTF8)
                        texts = _serial(begun, raw, self._delimiter, skipped := first + (not rows.begun))
                        for lines in self._stamps.watched(path, texts):
                            yield partial(_parsed, path, form, lines, skipped)
                            skipped = 1
            except LongRow:
                damaged(path, _LONG)
            except (arrow("pyarrow").ArrowException, OSError):
                damaged(path, _GARBLED)


def _serial(begun: bytes, raw: BinaryIO, delimiter: str, skipped: int) -> Iterator[bytes]:
    """Yield whole rows of a file with quotes that are not clean, behind a line end that is not in the file.

    ``begun`` was read before, and begins with that line end. The first text has ``skipped`` lines that are no rows.
    """
    quotes = OpenQuotes(delimiter, BLOCK_BYTES)
    text, block = b"", begun
    while block:
        text += quotes.rows(block)
        if text.count(b"\n") > skipped:  # else it has no row
            yield text
            text, skipped = b"\n", 1
        block = raw.read(BLOCK_BYTES)
    last = quotes.rest()
    if text.count(b"\n") + bool(last) > skipped:
        yield text + last


def _length(batch: Callable[[], Any]) -> int:
    return int(batch().num_rows)


def _table(batch: Callable[[], Any], numbers: Sequence[str], texts: Sequence[str], ids: Sequence[str]) -> Table:
    return arrow_table(batch(), numbers, texts, ids)


def _parsed(path: Path, form: CsvForm, text: Any, first: int) -> Any:
    """Return the rows of a block."""
    try:
        return form.batch(text, first)
    except arrow("pyarrow").ArrowException:
        damaged(path, _GARBLED)


def _check_line_end(path: Path) -> None:
    """Refuse a header that ends in CR alone: a cell that begins with LF would make it one of CR LF."""
    with opened_bytes(path) as file:
        while block := file.read(1 << 16):
            if (found := re.search(rb"[\r\n]", block)) is not None:
                if found[0] == b"\r" and (block[found.end() : found.end() + 1] or file.read(1)) != b"\n":
                    damaged(path, "has a header line that ends in CR alone. Write it again with LF, or CR LF.")
                return
