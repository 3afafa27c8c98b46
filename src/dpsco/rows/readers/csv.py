"""CSV files with a header line, read by pyarrow."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpsco.errors import DataError
from dpsco.rows.readers.arrow import arrow_table
from dpsco.rows.readers.source import Table, TableSource, arrow, damaged, missing_columns

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
    """Comma-separated (``.tsv``: tab-separated) text in UTF-8, quoted as in RFC 4180.

    A cell that is not UTF-8 counts as missing. A row of more than 4 MiB stops the run. A blank line is a row of missing
    cells, so no row can leave itself out and move the rows behind it. Messages never quote the header: in a file
    without one it is a row.
    """

    number_columns = None
    has_schema = False

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._delimiter = "\t" if self._paths[0].suffix == ".tsv" else ","
        self.names = self._header(self._paths[0])

    def _header(self, path: Path) -> tuple[str, ...]:
        try:
            # Only the names must be UTF-8: bytes of a row, which are read along with them, decide nothing here.
            with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
                names = tuple(name.strip() for name in next(csv.reader(file, delimiter=self._delimiter), []))
        except (OSError, csv.Error):
            damaged(path, "cannot be read as CSV. Check the path and that it is text in UTF-8.")
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
        pa, pa_csv = arrow("pyarrow"), arrow("pyarrow.csv")
        wanted = list(dict.fromkeys((*numbers, *texts)))
        try:
            reader = pa_csv.open_csv(
                path,
                read_options=pa_csv.ReadOptions(
                    use_threads=False, block_size=BLOCK_BYTES, column_names=list(self.names), skip_rows=1
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
            for batch in reader:
                yield arrow_table(batch, numbers, texts)
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            if not _has_rows(path):
                return
            damaged(path, _LONG if "straddling object" in str(error) else _GARBLED)


def _has_rows(path: Path) -> bool:
    """Whether anything follows the header."""
    with path.open("rb") as file:
        file.readline()
        return bool(file.read(1 << 16).strip())
