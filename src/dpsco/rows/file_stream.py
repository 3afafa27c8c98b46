"""Files as streams: CSV, JSON lines, Parquet, Arrow IPC, libsvm and .npz, in order, chunk by chunk, never loaded whole.

    columns = PublicColumns(ranges={"age": (0, 100)}, categories={"city": ["Lyon", "Paris"]})
    rows = FileRows("people/*.parquet", Labels("income", classes=("low", "high")), columns)
    result = dpsco.train(plan, dpsco.stream(rows))

Guarantee: a row's features and label are functions of that row and of what was declared; a row without a declared
label counts as a zero row; a file that is damaged stops the run with its name and without its content.
Cost: a few chunks in memory, read ahead by a thread; with ``shuffle`` one block of that many rows besides.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpsco.errors import DataError, InvalidArgument, positive, positive_integer
from dpsco.parallel import available_threads, in_order
from dpsco.query import Array
from dpsco.rows.cells import Coded, coded, label_text
from dpsco.rows.containers import column_numbers, column_texts
from dpsco.rows.contribution_cap import ContributionCap
from dpsco.rows.gate import Declared, admit
from dpsco.rows.mixed_blocks import mixed_blocks
from dpsco.rows.prefetch import prefetched
from dpsco.rows.public_columns import PublicColumns
from dpsco.rows.readers.arrow import ArrowSource
from dpsco.rows.readers.csv import CsvSource
from dpsco.rows.readers.json_lines import JsonLinesSource
from dpsco.rows.readers.libsvm import LibsvmSource
from dpsco.rows.readers.npz import NpzSource
from dpsco.rows.readers.parquet import PART_ROWS, ParquetSource
from dpsco.rows.readers.remote import RemoteFile, is_remote, remote_files
from dpsco.rows.readers.source import COMPRESSED, MatrixSource, Part, Table, TableSource
from dpsco.rows.row_norm import clamped, unit_rows
from dpsco.rows.shuffle import shuffled
from dpsco.rows.table_rows import TableRows, table_rows

__all__ = ["FileRows", "Labels", "RowForm", "local_files", "open_source"]

TABLES: dict[str, Any] = {
    ".csv": CsvSource,
    ".tsv": CsvSource,
    ".parquet": ParquetSource,
    ".arrow": ArrowSource,
    ".feather": ArrowSource,
    ".ipc": ArrowSource,
    ".jsonl": JsonLinesSource,
    ".ndjson": JsonLinesSource,
}
_BLOCK_BYTES = 256 << 20
TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")
"""Kinds that may be compressed."""
MATRICES = (".npz", ".libsvm", ".svm")


@dataclass(frozen=True)
class Labels:
    """The label column.

    Parameters
    ----------
    column : str
    classes : tuple of str, optional
        Every class; labels become their codes.
    bound : float, optional
        In place of ``classes``: numbers are clamped to it and divided by it.
    """

    column: str = "y"
    classes: tuple[str, ...] | None = None
    bound: float | None = None

    def __post_init__(self) -> None:
        if (self.classes is None) == (self.bound is None):
            raise InvalidArgument("Expected the label's classes (to classify) or its bound (to regress), one of them.")
        if self.classes is not None:
            known = coded(self.classes, np.arange(len(self.classes))).values
            names = {label_text(name) for name in self.classes} - {""}
            if len(names) != len(self.classes) or len(names) < 2:
                raise InvalidArgument("Expected at least two different classes.")
            object.__setattr__(self, "classes", known)
        else:
            why = "Targets are clamped to it; it must be public."
            object.__setattr__(self, "bound", positive("label bound", self.bound, why))

    def encode(self, column: Any) -> Array:
        """One number per row; NaN, a zero row, where the label is missing or not declared."""
        if self.bound is not None:
            return clamped(column_numbers(column), self.bound)
        texts, codes = (column.values, column.codes) if isinstance(column, Coded) else column_texts(column)
        named = self.classes or ()
        places = {label_text(name): place for place, name in enumerate(named)}
        table = np.array([*(places.get(label_text(text), np.nan) for text in texts), np.nan])
        return np.asarray(table[codes])


@dataclass(frozen=True)
class RowForm:
    """What makes rows of a table's cells: all of it public, and the same wherever the cells are read."""

    labels: Labels | None
    columns: PublicColumns
    feature_norm: float

    def __post_init__(self) -> None:
        if self.labels is not None and self.labels.column in self.columns.names:
            raise InvalidArgument(f"The label {self.labels.column!r} is among the features. Leave it out there.")

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns to read as numbers."""
        named = () if self.labels is None or self.labels.classes is not None else (self.labels.column,)
        return (*self.columns.reads("number"), *named)

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns to read as text."""
        return (*self.words, *self.columns.reads("date"))

    @property
    def words(self) -> tuple[str, ...]:
        """Columns to read as text that are no dates."""
        named = () if self.labels is None or self.labels.classes is None else (self.labels.column,)
        return (*self.columns.reads("text"), *named)

    def encode(self, table: Table) -> tuple[Any, Array]:
        """Features in the unit ball and labels of the rows of ``table``."""
        if self.columns.sparse:
            features = unit_rows(self.columns.encode(table), self.feature_norm)
        else:
            features = table_rows(self.columns, table, self.feature_norm)
        return features, self._labels(table)

    def ready(self, table: Table) -> TableRows:
        """Return the rows of ``table``, dense ones, with their labels, to be written part by part."""
        return TableRows(self.columns, table, self.feature_norm, self._labels(table))

    def _labels(self, table: Table) -> Array:
        if self.labels is None:
            return np.zeros(len(table[self.columns.names[0]]))
        return self.labels.encode(table[self.labels.column])


def open_source(
    path: str | Path,
    *,
    label: str | None = "y",
    delimiter: str | None = None,
    names: Sequence[str] | None = None,
) -> TableSource | MatrixSource:
    """Return the reader of a file, a folder or a glob; files of a folder are read in the order of their names.

    Parameters
    ----------
    path : path
        Local, or the address of Parquet files in an object store.
    label : str, optional
        The array of labels of a ``.npz`` file.
    delimiter : str, optional
        The separator of a CSV file, if it is not the comma.
    names : sequence of str, optional
        The columns of a CSV file without a header line.

    Returns
    -------
    TableSource or MatrixSource
    """
    paths = _paths(str(path))
    suffix = _kind(paths[0])
    if suffix in (".csv", ".tsv"):
        return CsvSource(paths, delimiter=delimiter, names=names, label=label)
    if delimiter is not None or names is not None:
        raise InvalidArgument(f"delimiter= and names= are about CSV files; {paths[0].name!r} is none.")
    if isinstance(paths[0], RemoteFile) and suffix != ".parquet":
        raise InvalidArgument(f"Expected Parquet files in {str(path)!r}: other kinds are read from local disks.")
    if suffix in TABLES:
        source: TableSource = TABLES[suffix](paths)
        return source
    if suffix == ".npz" and len(paths) == 1:
        return NpzSource(paths[0], label)
    if suffix in MATRICES[1:]:
        return LibsvmSource(paths)
    raise InvalidArgument(
        f"Cannot tell how to read {paths[0].name!r}. Expected a name ending in one of: "
        f"{', '.join((*TABLES, *MATRICES))} (.npz: one file)."
    )


class FileRows:
    """An iterable of (features, labels) chunks for ``dpsco.stream``: rows of files, in the unit ball.

    Parameters
    ----------
    path : path
        A file, a folder or a glob.
    labels : Labels, optional
        The label column; None reads rows without labels, to predict them.
    columns : PublicColumns or int
        The feature columns of a table; the number of features for ``.npz`` and libsvm.
    feature_norm : float
        Longer rows are shortened to it, all rows divided by it.
    unit, max_rows_per_unit : str and int, optional
        The column of ids and how many rows of one id count, in the order of the file; further ones are zero rows.
    shuffle : int
        Mixes the order within blocks of so many rows; 0 keeps it. Rows of a sorted file are no random sample, and one
        pass over them learns what comes last.
    seed : int
        Of the shuffle.
    delimiter, names
        Of a CSV file, as in ``open_source``.
    """

    again = True
    """A second pass reads the same rows."""
    fast = True
    """Decoded at millions of rows per second: see ``Stream.fast``."""

    def __init__(
        self,
        path: str | Path,
        labels: Labels | None,
        columns: PublicColumns | int,
        *,
        feature_norm: float = 1.0,
        unit: str | None = None,
        max_rows_per_unit: int | None = None,
        shuffle: int = 0,
        seed: int = 0,
        delimiter: str | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        label = None if labels is None else labels.column
        self._source = open_source(path, label=label, delimiter=delimiter, names=names)
        self._labels, self._columns = labels, columns
        self._norm = positive("feature_norm", feature_norm, "Rows are scaled into it; it must be public.")
        if (unit is None) != (max_rows_per_unit is None):
            raise InvalidArgument("unit and max_rows_per_unit go together: whose a row is, and how many count.")
        self._unit, self._limit = unit, max_rows_per_unit
        self._shuffle = shuffle if shuffle == 0 else positive_integer("shuffle", shuffle, "It is a number of rows.")
        self._seed = seed
        if isinstance(self._source, TableSource) != isinstance(columns, PublicColumns):
            raise InvalidArgument("Tables need PublicColumns; .npz and libsvm files need the number of their features.")
        if isinstance(self._source, MatrixSource):
            width = positive_integer("columns", columns, "It is the number of features.")
            if self._source.width not in (None, width):
                raise DataError(f"Expected {width} features, the file has {self._source.width}.")
        if unit is not None and not isinstance(self._source, TableSource):
            raise InvalidArgument("A unit needs a table with a column of ids (CSV, Parquet, Arrow).")
        if unit is not None and unit in (label, *(columns.names if isinstance(columns, PublicColumns) else ())):
            raise InvalidArgument(
                f"The unit {unit!r} is the label or a feature. Leave it out there: it says whose a row is."
            )

    @property
    def cap(self) -> tuple[int, str] | None:
        """Rows of one id that count, and the column of ids: see ``Stream.cap``."""
        return None if self._limit is None or self._unit is None else (self._limit, self._unit)

    @property
    def declared(self) -> Declared:
        """What a row is: stated by the columns, or by the kind of file."""
        if isinstance(self._columns, PublicColumns):
            return Declared(self._columns.width, "float32", self._columns.sparse)
        source = self._source
        if not isinstance(source, MatrixSource):
            raise TypeError
        return Declared(self._columns, "float32" if source.single else "float64", source.sparse)

    def __iter__(self) -> Iterator[tuple[Any, Array]]:
        if not self._shuffle:
            return prefetched(self._chunks())
        source, columns = self._source, self._columns
        if isinstance(source, ParquetSource) and isinstance(columns, PublicColumns) and self._straight(columns):
            return prefetched(self._mixed(source, columns))
        return prefetched(shuffled(self._chunks(), self._shuffle, self._seed))

    def _straight(self, columns: PublicColumns) -> bool:
        """Return whether rows are written straight to their places: dense ones in blocks that fit, nobody's counted."""
        return self._unit is None and not columns.sparse and 4 * self._shuffle * columns.width <= _BLOCK_BYTES

    def _mixed(self, source: ParquetSource, columns: PublicColumns) -> Iterator[tuple[Any, Array]]:
        """Yield shuffled rows of files that state their number of rows."""
        form = RowForm(self._labels, columns, self._norm)
        source.refuse_times(form.words)
        parts = source.parts(form.numbers, form.texts, most=PART_ROWS)
        yield from mixed_blocks(parts, source.count(), columns.width, self._shuffle, self._seed, form.ready)

    def _chunks(self) -> Iterator[tuple[Any, Array]]:
        return self._table_chunks() if isinstance(self._source, TableSource) else self._matrix_chunks()

    def _table_chunks(self) -> Iterator[tuple[Any, Array]]:
        source, columns = self._source, self._columns
        if not isinstance(source, TableSource) or not isinstance(columns, PublicColumns):
            raise TypeError
        form = RowForm(self._labels, columns, self._norm)
        cap = None if self._limit is None else ContributionCap(self._limit)
        units = () if self._unit is None else (self._unit,)
        source.refuse_times(form.words)
        for name in units:
            source.refuse_ids(name)
        parts = source.parts(form.numbers, form.texts, units)
        tasks = (partial(_encoded, part, form, self._unit) for part in parts)
        for features, targets, ids in in_order(tasks, available_threads()):
            if cap is not None:
                targets[~cap.counted_texts([*ids.values, ""], ids.codes)] = np.nan
            if len(targets):
                yield features, targets

    def _matrix_chunks(self) -> Iterator[tuple[Any, Array]]:
        source = self._source
        if not isinstance(source, MatrixSource):
            raise TypeError
        for features, labels in source.read(self.declared.width):
            matrix = features if source.sparse else admit(features, self.declared)[:]
            targets = np.zeros(features.shape[0]) if self._labels is None else self._labels.encode(labels)
            yield unit_rows(matrix, self._norm), targets


def _encoded(part: Part, form: RowForm, unit: str | None) -> tuple[Any, Array, Any]:
    """Return features, labels and ids of the rows of ``part``."""
    table = part()
    return *form.encode(table), None if unit is None else table[unit]


def _kind(path: Any) -> str:
    """Return the ending that says how to read a file, without that of a compression."""
    ending = str(path.suffix).lower()
    if ending in COMPRESSED:
        inner = Path(path.name[: -len(ending)]).suffix.lower()
        return inner if inner in TEXTS else ending
    return ending


def local_files(name: str) -> list[Path]:
    """Return the files of this machine that ``open_source`` reads for ``name``, whether they are there or not."""
    path, known = Path(name), (*TABLES, *MATRICES)
    if is_remote(name):
        return []
    if path.is_dir():
        return sorted(p for p in path.rglob("*") if _kind(p) in known and not p.name.startswith((".", "_")))
    if glob.has_magic(name) and not path.exists():
        return sorted(Path(match) for match in glob.glob(name, recursive=True))  # noqa: PTH207 - an absolute pattern
    return [path]


def _paths(name: str) -> Sequence[Any]:
    found: Sequence[Any] = local_files(name)
    if is_remote(name):
        found = [file for file in remote_files(name) if _kind(file) in (*TABLES, *MATRICES)]
    if not found:
        raise DataError(f"No data file was found at {name!r}. Check the path.")
    if absent := [p.name for p in found if isinstance(p, Path) and not p.is_file()]:
        raise DataError(f"There is no file {absent[0]!r}. Check the path.")
    if twice := _twice([p for p in found if isinstance(p, Path)]):
        raise DataError(
            f"The files at {name!r} hold one file under two names, {twice[0].name!r} and {twice[1].name!r}: a link or "
            "a compressed copy. Its rows would count twice. Name one of them."
        )
    if len({_kind(p) for p in found}) > 1:
        raise DataError(f"The files at {name!r} are of several kinds. Name one kind, such as {name}/*.parquet.")
    return found


def _twice(paths: Sequence[Path]) -> tuple[Path, Path] | None:
    """Return two paths of one file, or of a file and its compressed copy; None if there are none."""
    known: dict[object, Path] = {}
    for path in paths:
        status = path.stat()
        plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
        for identity in ((status.st_dev, status.st_ino), plain):
            if (first := known.setdefault(identity, path)) is not path:
                return first, path
    return None
