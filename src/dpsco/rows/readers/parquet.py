"""Parquet files: footers, and the wanted columns of row groups, batch by batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from dpsco.errors import DataError
from dpsco.rows.readers.arrow import BATCH_ROWS, AnyFile, ArrowFiles, check_columns
from dpsco.rows.readers.arrow_columns import is_any_text
from dpsco.rows.readers.remote import RemoteFile
from dpsco.rows.readers.source import Table, arrow

__all__ = ["PART_ROWS", "ParquetSource"]

T = TypeVar("T")

MAPPED_BYTES = 128 << 20  # larger files are read piece by piece where their addresses alone might not fit
GROUP_BYTES = 64 << 20
"""Decoded bytes that are read at once: a row group, or a piece of a large one."""
OPEN_BYTES = 256 << 20
"""Bytes of a file that are mapped before it is opened anew: memory then does not seem to grow with the file."""
PART_ROWS = 1 << 16
"""Rows whose cells are converted at once: a part costs some time per column."""
_FOOTERS_AT_ONCE = 8
_CODABLE = {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}
_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8}
_TEXT_BYTES = 16
"""What a cell of text is taken to be long."""


class ParquetSource(ArrowFiles):
    """Parquet: columns that are not wanted are not read; memory of a row group's wanted columns at most."""

    kind = "Parquet"

    def groups(self, numbers: Sequence[str], texts: Sequence[str]) -> list[tuple[AnyFile, tuple[int, ...]]]:
        """Each file with the number of rows of each of its row groups; files without the wanted columns are refused."""

        def look(path: AnyFile) -> tuple[AnyFile, tuple[int, ...]]:
            with self._open(path) as file:
                check_columns(path, file.schema_arrow, numbers, texts)
                found = file.metadata
                return path, tuple(found.row_group(k).num_rows for k in range(found.num_row_groups))

        return list(self.of_each(look).values())

    def of_each(self, look: Callable[[AnyFile], T]) -> dict[AnyFile, T]:
        """Return ``look(file)`` of each file, in order; some files are looked at side by side."""
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            return dict(zip(self._paths, pool.map(look, self._paths), strict=True))

    @classmethod
    def read_groups(
        cls, path: AnyFile, groups: Sequence[int], numbers: Sequence[str], texts: Sequence[str]
    ) -> Iterator[Table]:
        """Yield some row groups of one file, in order."""
        wanted = list(dict.fromkeys((*numbers, *texts)))
        for batch in cls._guarded(path, cls._batches(path, wanted, groups, coded=texts, most=PART_ROWS)):
            yield cls._converted(path, batch, numbers, texts)

    @classmethod
    def _open(cls, path: AnyFile, coded: Sequence[str] = (), footer: Any = None) -> Any:
        """Open a file; the columns ``coded`` are read as codes of their distinct texts, a ``footer`` not again."""
        pq = arrow("pyarrow.parquet")
        try:
            remote = isinstance(path, RemoteFile)
            return pq.ParquetFile(
                path.open() if isinstance(path, RemoteFile) else path,
                memory_map=not isinstance(path, RemoteFile) and (path.stat().st_size <= MAPPED_BYTES or _much_room()),
                pre_buffer=remote,  # one request for many columns, where a request is what costs
                page_checksum_verification=True,  # where the file has them
                read_dictionary=list(coded),
                metadata=footer,
            )
        except arrow("pyarrow").ArrowNotImplementedError:
            raise DataError(
                f"The file {path.name!r} has a column of a type that Arrow does not read. polars writes whole numbers "
                "of 128 bits where one of them is beyond 64 bits: write text, or numbers of 64 bits."
            ) from None
        except (arrow("pyarrow").ArrowException, OSError):
            cls._refuse(path)

    @classmethod
    def _schema(cls, path: AnyFile) -> Any:
        with cls._open(path) as file:
            return file.schema_arrow

    @classmethod
    def _batches(
        cls,
        path: AnyFile,
        wanted: list[str],
        groups: Sequence[int] | None = None,
        *,
        coded: Sequence[str] = (),
        most: int = BATCH_ROWS,
    ) -> Iterator[Any]:
        """Yield batches, of some row groups in the calling thread, of all of them on all processors.

        A row group is decoded whole if it is small: Arrow takes a third less time for it than batch by batch.
        """
        with cls._open(path) as file:
            footer, coded = file.metadata, _codable(file, coded)
        if groups and max(groups) >= footer.num_row_groups:
            cls._refuse(path)  # it was cut short since it was looked at
        for some in _runs(footer, range(footer.num_row_groups) if groups is None else groups):
            with cls._open(path, coded, footer) as file:  # what was mapped before is given back
                for group in some:
                    for batch in cls._group(file, group, wanted, coded, threads=groups is None):
                        yield from (batch.slice(start, most) for start in range(0, batch.num_rows, most))

    @classmethod
    def _group(cls, file: Any, group: int, wanted: list[str], coded: list[str], *, threads: bool) -> Iterator[Any]:
        """Yield the batches of a row group."""
        about = file.metadata.row_group(group)
        pieces = -(-_decoded_bytes(about, wanted, coded) // GROUP_BYTES)
        if pieces <= 1:
            yield from file.read_row_group(group, columns=wanted, use_threads=threads).to_batches()
            return
        size = max(1024, -(-about.num_rows // pieces))
        yield from file.iter_batches(batch_size=size, row_groups=[group], columns=wanted, use_threads=threads)

    def count(self) -> int:
        """Return the number of rows."""
        total = 0
        for path in self._paths:
            with self._open(path) as file:
                total += int(file.metadata.num_rows)
        return total


@cache
def _much_room() -> bool:
    """Return whether this process may use any number of addresses."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    return sys.maxsize > 1 << 32 and resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def _codable(file: Any, names: Sequence[str]) -> list[str]:
    """Return which of the columns Arrow can read as codes of their distinct texts: text, of encodings that it can.

    Columns that are declared as text have few distinct cells as a rule. What is in the file does not matter here, its
    schema and how it was written do.
    """
    metadata = file.metadata
    kept = {name for name in names if is_any_text(file.schema_arrow.field(name).type)}
    for group in range(metadata.num_row_groups if kept else 0):
        about = metadata.row_group(group)
        for place in range(metadata.num_columns):
            column = about.column(place)
            if column.path_in_schema in kept and not _CODABLE.issuperset(column.encodings):
                kept.discard(column.path_in_schema)
    return [name for name in names if name in kept]


def _runs(footer: Any, groups: Iterable[int]) -> Iterator[list[int]]:
    """Yield the row groups in order, so many at a time as lie in ``OPEN_BYTES`` of the file."""
    some, size = list[int](), 0
    for group in groups:
        some.append(group)
        about = footer.row_group(group)
        size += sum(about.column(place).total_compressed_size for place in range(about.num_columns))
        if size >= OPEN_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _decoded_bytes(group: Any, wanted: Sequence[str], coded: Sequence[str]) -> int:
    """Return about how many bytes the wanted columns of a row group take in memory: by their types, not their cells."""
    kinds = (
        (group.column(place).path_in_schema, group.column(place).physical_type) for place in range(group.num_columns)
    )
    width = sum(4 if name in coded else _BYTES.get(kind, _TEXT_BYTES) for name, kind in kinds if name in wanted)
    return int(width * group.num_rows)
