"""CSV files with a header line: pyarrow's parser if it is there, Python's if not; the same cells either way."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dpsco.errors import DataError
from dpsco.query import Array
from dpsco.rows.cells import Coded, coded, numbers_from_text
from dpsco.rows.readers.source import Table, TableSource, arrow, damaged, missing_columns

__all__ = ["CsvSource"]

BLOCK_BYTES = 1 << 20
BATCH_ROWS = 1 << 12

_GARBLED = (
    "has lines with another number of cells than its header, an unclosed quote, or bytes that are not UTF-8: it is "
    "damaged, cut short, or has another delimiter. Repair it, or write it again with one line a row."
)


class CsvSource(TableSource):
    """Comma-separated (``.tsv``: tab-separated) text in UTF-8, quoted as in RFC 4180."""

    number_columns = None

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._delimiter = "\t" if self._paths[0].suffix == ".tsv" else ","
        self.names = self._header(self._paths[0])

    def _header(self, path: Path) -> tuple[str, ...]:
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                names = tuple(name.strip() for name in next(csv.reader(file, delimiter=self._delimiter), []))
        except (OSError, UnicodeDecodeError, csv.Error):
            damaged(path, "cannot be read as CSV. Check the path and that it is text in UTF-8.")
        if any("\n" in name or "\r" in name for name in names):
            damaged(path, "has a line break in the name of a column. Give each column a name on the one header line.")
        if not names or len(set(names)) != len(names) or "" in names:
            damaged(path, "has no header line with a different name for each column. Add one.")
        return names

    def read(self, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Table]:
        wanted = tuple(dict.fromkeys((*numbers, *texts)))
        for path in self._paths:
            missing_columns(path, wanted, names := self._header(path))
            if names != self.names:
                raise DataError(f"The file {path.name!r} has other columns than {self._paths[0].name!r}.")
        for path in self._paths:
            yield from self._fast(path, numbers, texts) if _has_arrow() else self._plain(path, numbers, texts)

    def count(self) -> int:
        first = self.names[:1]
        return sum(len(table[first[0]]) for table in self.read((), first))

    def _fast(self, path: Path, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Table]:
        from dpsco.rows.readers.arrow import arrow_table

        pa, pa_csv = arrow("pyarrow"), arrow("pyarrow.csv")
        wanted = list(dict.fromkeys((*numbers, *texts)))
        try:
            reader = pa_csv.open_csv(
                path,
                read_options=pa_csv.ReadOptions(
                    use_threads=False, block_size=BLOCK_BYTES, column_names=list(self.names), skip_rows=1
                ),
                parse_options=pa_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                convert_options=pa_csv.ConvertOptions(
                    include_columns=wanted,
                    column_types={name: pa.string() for name in wanted},
                    strings_can_be_null=False,
                ),
            )
            for batch in reader:
                yield arrow_table(batch, numbers, texts)
        except StopIteration:
            return
        except (pa.ArrowException, OSError):
            if not _has_rows(path):
                return
            damaged(path, _GARBLED)

    def _plain(self, path: Path, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Table]:
        places = {name: self.names.index(name) for name in (*numbers, *texts)}
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                lines = csv.reader(file, delimiter=self._delimiter, strict=True)
                next(lines, None)
                batch: list[list[str]] = []
                for cells in lines:
                    if not cells:
                        continue  # an empty line, as pyarrow passes over it
                    if len(cells) != len(self.names):
                        damaged(path, _GARBLED)
                    batch.append(cells)
                    if len(batch) == BATCH_ROWS:
                        yield _table(batch, places, numbers, texts)
                        batch = []
                if batch:
                    yield _table(batch, places, numbers, texts)
        except (OSError, UnicodeDecodeError, csv.Error):
            damaged(path, _GARBLED)


def _table(batch: list[list[str]], places: dict[str, int], numbers: Sequence[str], texts: Sequence[str]) -> Table:
    table: dict[str, Array | Coded] = {
        name: numbers_from_text(cells[places[name]] for cells in batch) for name in numbers
    }
    for name in texts:
        values, codes = np.unique(np.array([cells[places[name]] for cells in batch], dtype=object), return_inverse=True)
        table[name] = coded(values.tolist(), codes)
    return table


def _has_rows(path: Path) -> bool:
    """Whether anything follows the header."""
    with path.open("rb") as file:
        file.readline()
        return bool(file.read(1 << 16).strip())


def _has_arrow() -> bool:
    from importlib.util import find_spec

    return find_spec("pyarrow") is not None
