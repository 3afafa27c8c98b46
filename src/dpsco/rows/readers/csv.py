"""CSV files with a header line, read by pyarrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from dpsco.errors import DataError, InvalidArgument
from dpsco.rows.readers.arrow import arrow_table
from dpsco.rows.readers.source import (
    COMPRESSED,
    Table,
    TableSource,
    arrow,
    damaged,
    missing_columns,
    opened_bytes,
)

__all__ = ["CsvSource"]

BLOCK_BYTES = 4 << 20  # also the longest row

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
    header: in a file without one it is a row.
    """

    number_columns = None
    has_schema = False

    def __init__(
        self, paths: Sequence[Path], *, delimiter: str | None = None, names: Sequence[str] | None = None
    ) -> None:
        self._paths = tuple(paths)
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            raise InvalidArgument(f"Expected delimiter={delimiter!r} to be one letter, such as ';'.")
        self._delimiter = delimiter or ("\t" if ".tsv" in self._paths[0].suffixes[-2:] else ",")
        self._stated = None if names is None else tuple(names)
        if self._stated is not None and (len(set(self._stated)) != len(self._stated) or not self._stated):
            raise InvalidArgument("Expected names to be the different names of all columns of the file.")
        self.names = self._header(self._paths[0])

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
        if not names or len(set(names)) != len(names) or "" in names:
            damaged(path, "has no header line with a different name for each column. Add one.")
        return names

    def read(self, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Table]:
        """Yield the rows, chunk by chunk."""
        wanted = tuple(dict.fromkeys((*numbers, *texts)))
        for path in self._paths:
            missing_columns(path, wanted, names := self._header(path), show=False)
            if names != self.names:
                raise DataError(f"The file {path.name!r} has other columns than {self._paths[0].name!r}.")
        for path in self._paths:
            yield from self._tables(path, numbers, texts)

    def count(self) -> int:
        """Return the number of rows."""
        first = self.names[:1]
        return sum(len(table[first[0]]) for table in self.read((), first))

    def _tables(self, path: Path, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Table]:
        """Yield the rows of one file. If lines of blanks stop Arrow, go on behind a filter of such lines."""
        done = 0
        try:
            for batch in self._batches(path, None, numbers, texts):
                done += batch.num_rows
                yield arrow_table(batch, numbers, texts)
            return
        except _LinesOfBlanks:
            pass
        with opened_bytes(path) as raw:
            for batch in self._batches(path, _WithoutBlanks(raw, self._delimiter), numbers, texts):
                rows, done = batch.slice(min(done, batch.num_rows)), max(0, done - batch.num_rows)
                if rows.num_rows:
                    yield arrow_table(rows, numbers, texts)

    def _batches(
        self, path: Path, filtered: _WithoutBlanks | None, numbers: Sequence[str], texts: Sequence[str]
    ) -> Iterator[Any]:
        pa, pa_csv = arrow("pyarrow"), arrow("pyarrow.csv")
        wanted, plain = list(dict.fromkeys((*numbers, *texts))), path.suffix.lower() not in COMPRESSED
        try:
            reader = pa_csv.open_csv(
                filtered or (path if plain else pa.input_stream(str(path), compression="detect")),
                read_options=pa_csv.ReadOptions(
                    use_threads=False,
                    block_size=BLOCK_BYTES,
                    column_names=list(self.names),
                    skip_rows=0 if self._stated else 1,
                ),
                parse_options=pa_csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=False
                ),
                convert_options=pa_csv.ConvertOptions(
                    include_columns=wanted,
                    column_types={name: pa.string() for name in wanted},
                    strings_can_be_null=False,
                    check_utf8=False,  # a cell that is not UTF-8 is missing by itself
                ),
            )
            yield from reader
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            if filtered is None and _has_blanks(path, self._delimiter):
                raise _LinesOfBlanks from None
            if not self._stated and not _has_rows(path):
                return
            damaged(path, _LONG if "straddling object" in str(error) else _GARBLED)


class _LinesOfBlanks(Exception):
    """Raised where a file that Arrow refuses has lines of blanks."""


def _blanks(delimiter: str) -> bytes:
    return bytes(set(b" \t\v\f\r\n") - set(delimiter.encode()))


def _has_blanks(path: Path, delimiter: str) -> bool:
    """Whether a line has blanks and nothing else."""
    blanks = _blanks(delimiter)
    try:
        with opened_bytes(path) as file:
            return any(not line.strip(blanks) and line.strip(b"\r\n") for line in file)
    except (OSError, EOFError):
        return False


class _WithoutBlanks(io.RawIOBase):
    """Bytes of a CSV file, lines of blanks as empty lines. Such a line in a quoted cell changes that cell alone."""

    def __init__(self, raw: BinaryIO, delimiter: str) -> None:
        super().__init__()
        self._raw, self._rest = raw, memoryview(b"")
        self._blanks = _blanks(delimiter)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            lines = self._raw.readlines(BLOCK_BYTES // 4)
            self._rest = memoryview(b"".join(line if line.strip(self._blanks) else b"\n" for line in lines))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _has_rows(path: Path) -> bool:
    """Whether anything follows the header."""
    try:
        with opened_bytes(path) as file:
            file.readline()
            return bool(file.read(1 << 16).strip())
    except (OSError, EOFError):
        return True
