"""``PublicColumns``: columns of a raw table as features, declared by people and never learned from the rows.

    columns = PublicColumns(ranges={"age": (0, 120), "income": (0, 1e6)}, log=["income"],
                            categories={"city": ["Lyon", "Paris"]})
    columns.transform(frame)        scikit-learn, pandas, polars, Arrow, arrays, dicts of columns, lists of rows
    columns.write("columns.json")   a schema that people can review; files and the command line read it

Guarantee: the features of a row depend on that row and on what was declared. Neither another row nor the type, the
order or the container of a column changes a bit of them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import InvalidArgument
from dpsco.parallel import for_each
from dpsco.rows.category_columns import Category, Hashed
from dpsco.rows.column_arguments import chosen, dropped, ends_of, levels_of, named, names_of
from dpsco.rows.column_kinds import Boolean, Column, Date, Number
from dpsco.rows.column_schema import entries_of, from_entries, read_schema, write_schema
from dpsco.rows.encoded_rows import stamped
from dpsco.rows.named_columns import table_of

__all__ = ["PublicColumns", "Units", "columns_from"]

SPARSE_FROM = 32
"""Features for each column from which rows are kept sparse."""
_PAGE, _APART = 1024, 16
_SHARED_ROWS = 1 << 17
"""Rows from which columns are encoded in several threads; chunks of files are shorter, and threads share those."""


class Units(NamedTuple):
    """Features in terms of quantities of the table: feature_j = slopes_j * quantity_j + offsets_j, exactly."""

    slopes: NDArray[np.float64]
    offsets: NDArray[np.float64]
    quantities: tuple[str, ...]


class PublicColumns:
    """Declared columns of a raw table, as a scikit-learn transformer.

    Parameters
    ----------
    numbers : sequence of str, optional
        Columns of numbers without a range: taken as they are, 0 where missing. ``feature_norm`` of the estimator must
        then bound the rows.
    ranges : mapping of str to (low, high), optional
        Columns of numbers: clamped to the range and mapped to [0, 1]. A wide range costs little with a survey.
    log : sequence of str
        Columns of ``ranges`` on a log scale: linear in log(1 + 1000 s) for the share s of the range, on both sides of 0
        if the range is.
    centered : bool or sequence of str
        Columns that are mapped to [-1, 1] instead; True for all.
    dates : mapping of str to (first, last), optional
        Columns of dates, such as ("1900-01-01", "2030-01-01"), mapped like numbers, by the day. Text is a date if it
        begins with the year: 2024-02-29, 2024/02/29, 20240229, 2024-02. Write other dates so before, cell by cell. A
        reader that parses them leaves the whole column as text where one cell is no date, and all are then missing.
    booleans : sequence of str
        Columns of yes and no: 1, true, yes, t, y, on and their opposites.
    categories : mapping of str to sequence, optional
        Columns of categories with their levels: one 0/1 feature per level. 3, 3.0 and "3" are one level.
    hashed : mapping of str to int, optional
        Columns of categories that cannot be listed: one 0/1 feature per bucket of a fixed hash.
    missing : bool or sequence of str
        Columns that get one more feature, 1 where the cell is missing; True for all. With or without it a missing cell
        is the middle of its range, or no level.
    other : bool or sequence of str
        Columns of ``categories`` that get one more feature, 1 for levels that are not declared; True for all. Without
        it such a cell has no level.

    drop : {"first"} or mapping of str to level, optional
        Dummy coding: the level of a column of ``categories`` that has no feature, so that the others are measured
        against it. "first" drops the first declared level of every column of two or more. Standard errors beside an
        intercept need it. A cell that has no feature is then the mean of the K declared levels, 1/K in each: an
        undeclared level without ``other``, a missing cell without ``missing``. It never looks like the dropped level.

    Raises
    ------
    InvalidArgument
        If a column is declared twice, an option names a column that is not declared, or a range is not one.

    Guarantee: the features of a row depend on that row and on these arguments alone. Columns of a table that are not
    declared are never looked at. Columns of arrays and of lists of rows are named "0", "1", ... by their position.
    Cost: one pass over the declared cells; float32 features, CSR where most of them are 0.

    Examples
    --------
    >>> columns = PublicColumns(ranges={"age": (0, 100)}, categories={"city": ["Lyon", "Paris"]})
    >>> columns.get_feature_names_out().tolist()
    ['age', 'city=Lyon', 'city=Paris']
    >>> columns.transform({"age": [50, "?"], "city": ["Paris", "Oslo"]}).tolist()
    [[0.5, 0.0, 1.0], [0.5, 0.0, 0.0]]
    >>> PublicColumns(categories={"city": ["Lyon", "Paris"]}, drop="first").transform({"city": ["Paris", "?"]}).tolist()
    [[1.0], [0.5]]
    """

    def __init__(
        self,
        numbers: Sequence[str] = (),
        *,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        log: Sequence[str] = (),
        centered: bool | Sequence[str] = False,
        dates: Mapping[str, tuple[Any, Any]] | None = None,
        booleans: Sequence[str] = (),
        categories: Mapping[str, Sequence[Any]] | None = None,
        hashed: Mapping[str, int] | None = None,
        missing: bool | Sequence[str] = False,
        other: bool | Sequence[str] = False,
        drop: str | Mapping[str, Any] | None = None,
    ) -> None:
        self.numbers, self.ranges, self.log, self.centered = numbers, ranges, log, centered
        self.dates, self.booleans, self.categories, self.hashed = dates, booleans, categories, hashed
        self.missing, self.other, self.drop = missing, other, drop
        self.features = self._declared()
        """The declared columns, in the order of their features."""

    def _declared(self) -> tuple[Column, ...]:
        ranges, dates = named("ranges", self.ranges), named("dates", self.dates)
        categories, hashed = named("categories", self.categories), named("hashed", self.hashed)
        numbers, booleans = names_of("numbers", self.numbers), names_of("booleans", self.booleans)
        plain = [name for name in numbers if name not in ranges]
        names = [*plain, *ranges, *dates, *booleans, *categories, *hashed]
        if not names:
            raise InvalidArgument("Expected at least one feature column.")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidArgument(f"Expected each column to be declared once; declared twice: {', '.join(twice)}.")
        missing = chosen("missing", self.missing, names)
        log = chosen("log", self.log, ranges)
        centered = chosen("centered", self.centered, [*ranges, *dates, *booleans])
        other = chosen("other", self.other, categories)
        levels = {name: levels_of(name, given) for name, given in categories.items()}
        drop = dropped(self.drop, levels)
        return (
            *(Number(name, name in missing) for name in plain),
            *(Number(k, k in missing, k in centered, *ends_of(k, v), k in log) for k, v in ranges.items()),
            *(Date(k, k in missing, k in centered, *ends_of(k, v)) for k, v in dates.items()),
            *(Boolean(k, k in missing, k in centered) for k in booleans),
            *(Category(k, k in missing, v, k in other, drop.get(k, "")) for k, v in levels.items()),
            *(Hashed(k, k in missing, v) for k, v in hashed.items()),
        )

    # --- what the features are ----------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the table that are read."""
        return tuple(column.name for column in self.features)

    def reads(self, kind: str) -> tuple[str, ...]:
        """Return the columns whose cells are read as "number", "text" or "date"."""
        return tuple(column.name for column in self.features if column.reads == kind)

    @property
    def width(self) -> int:
        """Number of features of an encoded row."""
        return sum(column.size for column in self.features)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features of an encoded row."""
        return tuple(name for column in self.features for name in column.outputs())

    @property
    def units(self) -> Units:
        """What the features are in the units of the table: feature = slope * quantity + offset.

        The quantity of a number is its column, of a log column the logarithm that its name states, of dates the days
        since the first of their range. Features that are 0 or 1 are their own.
        """
        each = [unit for column in self.features for unit in column.units()]
        slopes, offsets = np.array([unit.slope for unit in each]), np.array([unit.offset for unit in each])
        return Units(slopes, offsets, tuple(unit.quantity for unit in each))

    def original_units(self, coef: Any, intercept: Any = 0.0) -> tuple[NDArray[np.float64], Any]:
        """Return coefficients and intercept of the features in the units of the table: those of ``units``.

        Parameters
        ----------
        coef : array of shape (features,) or (outputs, features)
            Coefficients of the features, such as ``coef_`` of an estimator behind these columns.
        intercept : float or array of shape (outputs,)
            Its intercept.

        Returns
        -------
        coef : array
            slope * coef.
        intercept : float or array
            intercept + sum of offset * coef.

        Examples
        --------
        >>> coef, intercept = PublicColumns(ranges={"age": (20, 70)}).original_units([5.0], 1.0)
        >>> coef.tolist(), float(intercept)
        ([0.1], -1.0)
        """
        slopes, offsets, _ = self.units
        given = np.asarray(coef, dtype=np.float64)
        return slopes * given, intercept + given @ offsets

    @property
    def row_norm(self) -> float | None:
        """Largest norm that an encoded row can have; None if a column of numbers has no range."""
        total = sum(column.bound for column in self.features)
        return math.sqrt(total) if math.isfinite(total) else None

    @property
    def sparse(self) -> bool:
        """Whether rows come as CSR: where most features of a row are 0 because of its many levels."""
        return self.width >= SPARSE_FROM * len(self.features)

    def encode(self, table: Any) -> Any:
        """Return the features of cells that a reader has read, float32: CSR if ``sparse``, else column-major.

        A DataFrame or another container is read first, as in ``transform``.
        """
        if not isinstance(table, Mapping):
            table = self.table(table)
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            return self._sparse(table) if self.sparse else self._dense(table)

    def _dense(self, table: Mapping[str, Any]) -> NDArray[np.float32]:
        rows = len(table[self.features[0].name])
        # Lines a multiple of a page apart share places in the cache, and the matrix is turned soon.
        lines = np.empty((self.width, rows + (0 if rows % _PAGE else _APART)), dtype=np.float32)[:, :rows]
        ends = np.cumsum([column.size for column in self.features])

        def fill(column: Column, end: int) -> None:
            with np.errstate(all="ignore"):  # that of the caller does not hold in a thread
                column.write(table[column.name], lines[end - column.size : end])

        columns = zip(self.features, ends, strict=True)
        if rows < _SHARED_ROWS:
            for each in columns:
                fill(*each)
        else:
            for_each(lambda each: fill(*each), columns)
        return lines.T

    def _sparse(self, table: Mapping[str, Any]) -> Any:
        from scipy.sparse import csr_matrix

        rows, start = len(table[self.features[0].name]), 0
        places, values, means = [], [], []
        for column in self.features:
            if isinstance(column, Category) and column.spreads:
                means.append((column.unlisted(table[column.name]), start, column))
            for place, value in column.entries(table[column.name]):
                position = np.full(rows, place) if isinstance(place, int) else place
                places.append(np.where(position >= 0, start + position, -1))
                values.append(np.broadcast_to(np.asarray(value, dtype=np.float32), rows))
            start += column.size
        index, value = np.stack(places, axis=1), np.stack(values, axis=1)
        used = index >= 0
        edges = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        whole = csr_matrix((value[used], index[used].astype(np.int32), edges), shape=(rows, self.width))
        return _with_means(whole, means) if means else whole

    # --- scikit-learn -------------------------------------------------------------------------------

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Return the transformer as it is: nothing is learned, and the rows are not looked at."""
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of the rows of ``X``; the array carries ``feature_norm`` and its columns, for estimators.

        The array is read-only. A step that works in place must copy it first; the copy carries no norm, whatever its
        cells hold.

        Parameters
        ----------
        X : table, array, dict of columns, or list of rows
            A table with the declared columns, in any order and of any type, among others.

        Raises
        ------
        DataError
            If a declared column is absent, there twice, or of a type that cannot hold it. Messages name columns.
        """
        return stamped(self.encode(self.table(X)), self)

    def table(self, X: Any) -> Mapping[str, Any]:
        """Return the declared columns of ``X``, for ``encode``."""
        return table_of(X, {column.name: column.reads for column in self.features})

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Return ``transform(X)``."""
        return self.transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features."""
        return np.array(self.feature_names, dtype=object)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the declarations."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change declarations."""
        self.__init__(**{**self.get_params(), **params})  # type: ignore[misc]
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(string=True, categorical=True, allow_nan=True, sparse=False),
            requires_fit=False,
        )

    # --- schemas ------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON values: one entry per column, without defaults."""
        return {"columns": entries_of(self.features)}

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the columns of a schema; ``InvalidArgument`` if it has fields that are not its own."""
        return cls(**from_entries(data))

    def write(self, path: str | Path) -> Path:
        """Write the schema to a file that people can review: JSON, or TOML if the name ends in ``.toml``."""
        return write_schema(Path(path), self.to_dict())

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a schema from a ``.json`` or ``.toml`` file."""
        return cls.from_dict(read_schema(Path(path)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicColumns) and self.features == other.features

    def __hash__(self) -> int:
        return hash(self.features)

    def __repr__(self) -> str:
        default = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        given = {name: value for name, value in self.get_params().items() if value != default[name]}
        return f"PublicColumns({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _with_means(whole: Any, means: Sequence[tuple[NDArray[np.int64], int, Category]]) -> Any:
    """Return CSR rows with the cells that are the mean of their column's levels."""
    from scipy.sparse import coo_matrix

    given = whole.tocoo()
    line, place, value = [given.row], [given.col], [given.data]
    for rows, start, column in means:
        kept = len(column.kept)
        line.append(np.repeat(rows, kept))
        place.append(np.tile(np.arange(start, start + kept), len(rows)))
        value.append(np.full(len(rows) * kept, 1.0 / len(column.levels), dtype=np.float32))
    parts = (np.concatenate(each) for each in (value, line, place))
    values, lines, places = parts
    made = coo_matrix((values, (lines.astype(np.int32), places.astype(np.int32))), shape=whole.shape).tocsr()
    made.sort_indices()  # the order within a row is that of its features, whatever other rows hold
    return made


def columns_from(given: Any) -> PublicColumns:
    """Return ``given`` as columns: itself, a schema, or the path of one."""
    if isinstance(given, PublicColumns):
        return given
    if isinstance(given, Mapping):
        return PublicColumns.from_dict(given)
    if isinstance(given, (str, Path)):
        return PublicColumns.read(given)
    raise InvalidArgument("Expected columns to be a dpsco.PublicColumns, or the path of a schema such as columns.json.")
