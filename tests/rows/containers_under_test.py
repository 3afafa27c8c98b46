"""Every container that rows may come in, every cell that does not fit, and what rows become at every entry point.

A container is made from a grid of Python cells, as a caller would make it: where one cell does not fit the type of the
others, NumPy, pandas, polars and Arrow choose another type for all of them. ``Unmakeable`` says that a container cannot
hold such a cell at all.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse as sp

ROWS, WIDTH = 24, 3
Grid = list[list[Any]]
Make = Callable[[Grid], Any]


class Unmakeable(Exception):
    """The container cannot hold the cell."""


class Nothing:
    """An object that is no number."""


ODD_CELLS: dict[str, Any] = {
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": -np.inf,
    "None": None,
    "text": "x",
    "empty text": "",
    "the text nan": "nan",
    "pandas.NA": pd.NA,
    "pandas.NaT": pd.NaT,
    "10**400": 10**400,
    "complex": 1 + 2j,
    "a list": [1.0],
    "a dict": {},
    "a date": datetime.date(2020, 1, 1),
    "numpy.datetime64": np.datetime64("2020-01-01"),
    "a time that is none": np.datetime64("NaT", "D"),
    "bytes": b"\xff",
    "Decimal NaN": decimal.Decimal("NaN"),
    "an object": Nothing(),
    "an array": np.ones(2),
}
ODD_ROWS: dict[str, Any] = {
    "None": None,
    "short": [1.0, 2.0],
    "long": [1.0, 2.0, 3.0, 4.0],
    "empty": [],
    "text": "123",
    "a number": 5,
    "many rows": np.ones((40, WIDTH)),
    "a dict": {0: 1.0, 1: 2.0, 2: 3.0},
    "nested": [[1.0], [2.0], [3.0]],
}
ODD_LABELS = ODD_CELLS | {"undeclared": 77, "a fraction": 0.5}
_TEXT_IDS = ("text", "the text nan", "10**400")
ODD_IDS = {name: cell for name, cell in ODD_CELLS.items() if name not in _TEXT_IDS} | {"a half": 0.5}


def a_grid() -> Grid:
    """Small whole numbers: every numeric type holds them exactly; rows are different."""
    return [[int(k % 2), int(k // 2 % 2), int(k % 7)] for k in range(ROWS)]


def object_array(cells: list[Any]) -> np.ndarray:
    out = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        out[place] = cell
    return out


def object_grid(grid: Grid) -> np.ndarray:
    return object_array([cell for row in grid for cell in row]).reshape(len(grid), WIDTH)


def _array_of(dtype: str) -> Make:
    """The array that a caller gets: of ``dtype`` if every cell fits, else of the type NumPy falls back to."""

    def make(grid: Grid) -> np.ndarray:
        # Whatever is stored in an array of float32 stays float32: it has no type to fall back to.
        for kind in (dtype,) if dtype == "float32" else (dtype, "float64", "complex128"):
            if kind == "complex128" and not any(isinstance(cell, complex) for row in grid for cell in row):
                continue
            try:
                with np.errstate(all="ignore"):
                    made = object_grid(grid).astype(kind)
            except (ValueError, TypeError, OverflowError, np.exceptions.ComplexWarning):
                continue
            if _holds(made, grid):
                return made
        if dtype == "float32":
            raise Unmakeable
        return object_grid(grid)

    return make


def _holds(made: np.ndarray, grid: Grid) -> bool:
    """Whether a cast kept every ordinary number and no odd cell turned into one."""
    kept = made.astype(object)
    for place, cell in np.ndenumerate(object_grid(grid)):
        ordinary = isinstance(cell, (int, float)) and cell == cell and abs(cell) < 1e300
        got = complex(kept[place])
        if ordinary and got != cell:
            return False
        if not ordinary and np.isfinite(got) and got == got.real:
            return False
    return True


def _text(kind: str) -> Make:
    def make(grid: Grid) -> np.ndarray:
        try:
            return np.array([[_plain_text(cell) for cell in row] for row in grid], dtype=kind)
        except UnicodeError:
            raise Unmakeable from None

    return make


def _plain_text(cell: Any) -> Any:
    return cell if isinstance(cell, bytes) else str(cell)


def _memory_map(dtype: str) -> Make:
    def make(grid: Grid) -> np.ndarray:
        array = _array_of(dtype)(grid)
        if array.dtype == object:
            raise Unmakeable
        path = Path(tempfile.mkdtemp()) / "rows.npy"
        np.save(path, array)
        mapped: np.ndarray = np.load(path, mmap_mode="r")
        return mapped

    return make


def _view(make: Make) -> Make:
    def strided(grid: Grid) -> Any:
        array = make(grid)
        wide = np.empty((2 * ROWS, 2 * WIDTH), dtype=array.dtype)
        wide[::2, ::2] = array
        return wide[::2, ::2]

    return strided


def _masked(grid: Grid) -> Any:
    cells = object_grid(grid)
    known = np.vectorize(lambda cell: isinstance(cell, int) and abs(cell) < 100, otypes=[bool])(cells)
    return np.ma.MaskedArray(np.where(known, cells, 0).astype(float), mask=~known)


def _sparse(form: str, index: type, dtype: str) -> Make:
    def make(grid: Grid) -> Any:
        array = _array_of(dtype)(grid)
        if array.dtype == object:
            raise Unmakeable
        matrix = getattr(sp, f"{form}_matrix")(array)
        for name in ("indices", "indptr", "row", "col"):
            if hasattr(matrix, name):
                setattr(matrix, name, getattr(matrix, name).astype(index))
        return matrix

    return make


def _frame(grid: Grid) -> pd.DataFrame:
    columns = zip(*[list(row) for row in grid], strict=True)
    return pd.DataFrame({f"c{k}": _inferred(list(column)) for k, column in enumerate(columns)})


def _inferred(cells: list[Any]) -> Any:
    """The series that pandas makes of a list, cell by cell where it would look inside a cell."""
    column = pd.Series(object_array(cells), dtype=object)
    try:
        return column.infer_objects()
    except OverflowError:  # pandas before 3, about a whole number beyond float64: later ones leave objects
        return column


def _converted(**how: Any) -> Make:
    def make(grid: Grid) -> pd.DataFrame:
        try:
            return _frame(grid).convert_dtypes(**how)
        except Exception:
            raise Unmakeable from None

    return make


def _categorical(grid: Grid) -> pd.DataFrame:
    try:
        return _frame(grid).astype("category")
    except (TypeError, OverflowError):
        raise Unmakeable from None


def _polars(strict: bool) -> Make:
    def make(grid: Grid) -> Any:
        try:
            columns = [list(column) for column in zip(*grid, strict=True)]
            made = pl.DataFrame([pl.Series(f"c{k}", column, strict=strict) for k, column in enumerate(columns)])
            for column, given in zip(made.get_columns(), columns, strict=True):
                _kept(column.to_list(), given)
            return made
        except BaseException as error:  # polars panics on some objects
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise Unmakeable from None

    return make


def _arrow(grid: Grid) -> pa.Table:
    try:
        columns = [_arrow_column(list(column)) for column in zip(*grid, strict=True)]
        return pa.table({f"c{k}": column for k, column in enumerate(columns)})
    except Exception:
        raise Unmakeable from None


def _arrow_column(cells: list[Any]) -> pa.Array:
    made = pa.array(cells, from_pandas=True)
    _kept(made.to_pylist(), cells)
    return made


def _tensor(grid: Grid) -> Any:
    try:
        import torch
    except ImportError:
        raise Unmakeable from None

    array = _array_of("int64")(grid)
    if array.dtype == object:
        raise Unmakeable
    return torch.tensor(array)


NUMERIC = (
    *(["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]),
    *(["float16", "float32", "float64", "longdouble", "complex64", "complex128"]),
)
TABLES: dict[str, Make] = {
    "list": lambda grid: [list(row) for row in grid],
    "tuple": lambda grid: tuple(tuple(row) for row in grid),
    "list of arrays": lambda grid: [object_array(row) for row in grid],
    "array of rows": lambda grid: object_array([list(row) for row in grid]),
    **{f"array of {dtype}": _array_of(dtype) for dtype in NUMERIC},
    "array of objects": object_grid,
    "array of text": _text("U"),
    "array of bytes": _text("S"),
    "memory map of float64": _memory_map("float64"),
    "memory map of float32": _memory_map("float32"),
    "memory map of uint8": _memory_map("uint8"),
    "Fortran order": lambda grid: np.asfortranarray(_array_of("float64")(grid)),
    "Fortran order of objects": lambda grid: np.asfortranarray(object_grid(grid)),
    "strided view": _view(_array_of("float64")),
    "strided view of uint8": _view(_array_of("uint8")),
    "big endian": lambda grid: (a := _array_of("float64")(grid)).astype(a.dtype.newbyteorder(">")),
    "masked array": _masked,
    **{
        f"{form} {np.dtype(index).name} of {dtype}": _sparse(form, index, dtype)
        for form, index, dtype in itertools.product(("csr", "csc", "coo"), (np.int32, np.int64), ("float64", "uint8"))
    },
    "pandas": _frame,
    "pandas from objects": lambda grid: pd.DataFrame(object_grid(grid), dtype=object),
    "pandas nullable": _converted(),
    "pandas Arrow": _converted(dtype_backend="pyarrow"),
    "pandas categorical": _categorical,
    "polars": _polars(strict=False),
    "polars strict": _polars(strict=True),
    "Arrow": _arrow,
    "a tensor": _tensor,
}
LISTS = ("list", "tuple", "array of rows")
"""Containers whose rows may have any length."""

COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "list of numpy numbers": lambda cells: [np.int64(c) if type(c) is int and abs(c) < 2**60 else c for c in cells],
    "list of booleans": lambda cells: [bool(c) if c in (0, 1) else c for c in map(_safe, cells)],
    "array": lambda cells: _column(_array_column("int64"), cells),
    "array of float32": lambda cells: _column(_array_column("float32"), cells),
    "array of objects": object_array,
    "array of text": lambda cells: np.array([str(cell) for cell in cells]),
    "pandas": _inferred,
    "pandas objects": lambda cells: pd.Series(object_array(cells), dtype=object),
    "pandas nullable": lambda cells: _column(lambda c: _inferred(c).convert_dtypes(), cells),
    "pandas Arrow": lambda cells: _column(lambda c: _inferred(c).convert_dtypes(dtype_backend="pyarrow"), cells),
    "pandas categorical": lambda cells: _column(lambda c: _inferred(c).astype("category"), cells),
    "polars": lambda cells: _column(_polars_column, cells),
    "Arrow": lambda cells: _column(_arrow_column, cells),
}


def _safe(cell: Any) -> Any:
    return cell if isinstance(cell, (int, float)) else _Odd(cell)


class _Odd:
    """Keeps an odd cell from being compared with numbers."""

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _array_column(dtype: str) -> Callable[[list[Any]], Any]:
    def make(cells: list[Any]) -> np.ndarray:
        for kind in (dtype, "float64"):
            try:
                made = object_array(cells).astype(kind)
            except (ValueError, TypeError, OverflowError):
                continue
            odd = [place for place, cell in enumerate(cells) if not isinstance(cell, (int, float))]
            wrong = [p for p, cell in enumerate(cells) if isinstance(cell, (int, float)) and made[p] != cell == cell]
            if not wrong and not np.any(np.isfinite(made[odd])):
                return made
        return object_array(cells)

    return make


def _polars_column(cells: list[Any]) -> Any:
    made = pl.Series("c", cells, strict=False)
    _kept(made.to_list(), cells)
    return made


def _kept(held: list[Any], given: list[Any]) -> None:
    """Raise if a library has made something else of ordinary cells beside an odd one: nothing is left to compare."""
    for a, b in zip(held, given, strict=True):
        ordinary = type(b) is int and abs(b) < 100
        if ordinary and str(a).lower() not in (str(b), str(float(b)), str(bool(b)).lower()):
            raise Unmakeable
        if not ordinary and not isinstance(b, (int, float)) and isinstance(a, (int, float)) and np.isfinite(a):
            raise Unmakeable  # a date that became its number


def _column(make: Callable[[list[Any]], Any], cells: list[Any]) -> Any:
    try:
        return make(cells)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        raise Unmakeable from None


def with_odd_cell(place: int, odd: Any) -> Grid:
    grid = a_grid()
    grid[place][1] = odd
    return grid


def pieces(container: Any, size: int) -> Iterator[Any]:
    """The rows of a container, some at a time."""
    if hasattr(container, "tocsr"):
        container = container.tocsr()
    for start in range(0, ROWS, size):
        if hasattr(container, "iloc"):
            yield container.iloc[start : start + size]
        elif isinstance(container, pa.Table):
            yield container.slice(start, size)
        else:
            yield container[start : start + size]
