"""CSV files with a header line, read by pyarrow."""

from __future__ import annotations

import csv
import io
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dpsco.errors import DataError, InvalidArgument
from dpsco.rows.readers.arrow import arrow_table
from dpsco.rows.readers.csv_quotes import OpenQuotes
from dpsco.rows.readers.source import (
    Table,
    TableSource,
    arrow,
    damaged,
    missing_columns,
    opened_bytes,
)

__all__ = ["CsvSource"]

BLOCK_BYTES = 4 << 20  # also the longest row
_BLANKS_AT_ONCE = 1 << 14

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
        self._paths = tuple(paths)
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            raise InvalidArgument(f"Expected delimiter={delimiter!r} to be one letter, such as ';'.")
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
        return names

    def read(self, numbers: Sequence[str], texts: Sequence[str], ids: Sequence[str] = ()) -> Iterator[Table]:
        """Yield the rows, chunk by chunk."""
        wanted = tuple(dict.fromkeys((*numbers, *texts, *ids)))
        for path in self._paths:
            missing_columns(path, wanted, names := self._header(path), show=False)
            if names != self.names:
                raise DataError(f"The file {path.name!r} has other columns than {self._paths[0].name!r}.")
        for path in self._paths:
            yield from self._tables(path, numbers, texts, ids)

    def count(self) -> int:
        """Return the number of rows."""
        first = self.names[:1]
        return sum(len(table[first[0]]) for table in self.read((), first))

    def _tables(self, path: Path, numbers: Sequence[str], texts: Sequence[str], ids: Sequence[str]) -> Iterator[Table]:
        """Yield the rows of one file, those of lines of blanks in their places."""
        if self._stated is None and not _goes_on(path):
            return
        pa = arrow("pyarrow")
        wanted, first = list(dict.fromkeys((*numbers, *texts, *ids))), 0 if self._stated else 1
        blanks = _LinesOfBlanks(first)
        try:
            with _WholeLineEnds(opened_bytes(path), OpenQuotes(self._delimiter)) as lines:
                with blanks.silent():
                    reader = self._reader(lines, wanted, first, blanks)
                while True:
                    with blanks.silent():
                        batch = next(reader, None)
                    if batch is None:
                        break
                    yield arrow_table(blanks.put_back(batch), numbers, texts, ids)
        except (pa.ArrowException, OSError) as error:
            damaged(path, _LONG if "straddling object" in str(error) else _GARBLED)
        while count := min(blanks.left, _BLANKS_AT_ONCE):
            empty = pa.record_batch([pa.nulls(0, pa.string())] * len(wanted), names=wanted)
            yield arrow_table(blanks.put_back(empty, count), numbers, texts, ids)

    def _reader(self, lines: Any, wanted: list[str], first: int, blanks: Any) -> Any:
        """Return Arrow's reader of the wanted columns behind ``first`` lines, all cells as text."""
        pa, pa_csv = arrow("pyarrow"), arrow("pyarrow.csv")
        return pa_csv.open_csv(
            lines,
            read_options=pa_csv.ReadOptions(
                use_threads=False, block_size=BLOCK_BYTES, column_names=list(self.names), skip_rows=first
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                ignore_empty_lines=False,
                invalid_row_handler=blanks,
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=wanted,
                column_types={name: pa.string() for name in wanted},
                strings_can_be_null=False,
                check_utf8=False,  # a cell that is not UTF-8 is missing by itself
            ),
        )


class _WholeLineEnds(io.RawIOBase):
    """Bytes of a file in blocks that never end between CR and LF.

    Arrow drops an LF that begins a block behind a CR, also in a quoted cell: the length of one row would decide about a
    cell of another.
    """

    def __init__(self, raw: BinaryIO, quotes: OpenQuotes) -> None:
        super().__init__()
        self._raw, self._held, self._quotes = raw, b"", quotes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block = self._held + self._raw.read(size - len(self._held)) if self._held else self._raw.read(size)
        self._held = b"\r" if len(block) == size > 1 and block.endswith(b"\r") else b""
        whole = block[: len(block) - len(self._held)]
        self._quotes.look(whole)
        return whole

    def close(self) -> None:
        self._raw.close()
        super().close()


class _LinesOfBlanks:
    """Lines of blanks, which Arrow leaves out since they have one cell: puts them back as rows of missing cells.

    Arrow calls it with each line that has another number of cells than the header. Any other such line is an error.
    No line changes how Arrow reads another one.
    """

    def __init__(self, first: int) -> None:
        self._first, self._places, self._done = first, deque[int](), 0

    def __call__(self, row: Any) -> str:
        if row.text.strip() or row.number is None:
            return "error"
        self._places.append(row.number - 1 - self._first)
        return "skip"

    @property
    def left(self) -> int:
        """How many lines are not yet put back."""
        return len(self._places)

    def put_back(self, batch: Any, most: int | None = None) -> Any:
        """Return the next rows of the file with lines of blanks among and behind them, at most ``most`` such lines."""
        size, places = batch.num_rows, list[int]()
        while self._places and len(places) != most and self._places[0] - self._done <= size + len(places):
            places.append(self._places.popleft() - self._done)
        self._done += size + len(places)
        if not places:
            return batch
        pa, absent = arrow("pyarrow"), np.zeros(size + len(places), dtype=bool)
        absent[places] = True
        return batch.take(pa.array(np.cumsum(~absent) - 1, mask=absent))

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Print nothing about a line of another number of cells that is not UTF-8: the message would quote a byte."""
        before = sys.unraisablehook

        def hook(failure: Any) -> None:
            if failure.object is not self:
                before(failure)

        sys.unraisablehook = hook
        try:
            yield
        finally:
            sys.unraisablehook = before


def _goes_on(path: Path) -> bool:
    """Whether the first line ends, in any of the three ways: Arrow refuses a file that is a header without an end."""
    try:
        with opened_bytes(path) as file:
            while block := file.read(1 << 16):
                if b"\n" in block or b"\r" in block:
                    return True
        return False
    except (OSError, EOFError):
        return True
