"""What a container is, asked of its type and never of the object: a row may answer for the object.

A pandas series hands out its cells as attributes: in a series whose index holds names of people, ``series.columns`` is
the cell of whoever is named "columns". Asked with ``hasattr``, such a row would turn the column of everybody into a
table, or into one of Arrow.

``family`` is a list of what is allowed. Anything else has no family, and is refused by its type:

===============  ====================================================================================================
"list"           list, tuple, and sequences without a type of their own (deque, UserList, range); no text, no mapping
"array"          NumPy arrays: plain, masked, ``np.matrix``, memory maps. Not: subclasses of other packages
"sparse"         matrices and arrays of SciPy, of any format
"pandas table"   DataFrame
"pandas column"  Series, Index, extension arrays. Not: MultiIndex
"polars table"   DataFrame, and "polars lazy" LazyFrame
"polars column"  Series
"arrow table"    Table, RecordBatch
"arrow column"   Array, ChunkedArray
"memory"         what hands NumPy an array of its own type: ``__array__`` (PyTorch, JAX, scikit-learn's contract), or a
                 buffer (array.array, memoryview). Not: tables of other packages, which also offer it
===============  ====================================================================================================
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsco.errors import DataError

__all__ = ["family", "listed", "offers", "refuse_container"]

_CLASSES = (
    ("pandas", "DataFrame", "pandas table"),
    ("pandas", "MultiIndex", ""),
    ("pandas", "Series", "pandas column"),
    ("pandas", "Index", "pandas column"),
    ("pandas.api.extensions", "ExtensionArray", "pandas column"),
    ("polars", "DataFrame", "polars table"),
    ("polars", "LazyFrame", "polars lazy"),
    ("polars", "Series", "polars column"),
    ("pyarrow", "Table", "arrow table"),
    ("pyarrow", "RecordBatch", "arrow table"),
    ("pyarrow", "Array", "arrow column"),
    ("pyarrow", "ChunkedArray", "arrow column"),
    ("scipy.sparse", "spmatrix", "sparse"),
    ("scipy.sparse", "sparray", "sparse"),
)
_TABLE = ("columns", "iloc", "__dataframe__", "to_pylist", "__arrow_array__", "__arrow_c_stream__", "tocsr")
"""What tables and columns of packages offer beside ``__array__``, which reads all their cells to find one type."""


def offers(data: Any, name: str) -> bool:
    """Return whether the type of ``data`` has the attribute ``name``.

    Guarantee: no row, no cell and no label of the index decides it.

    >>> offers([1, 2], "append"), offers([1, 2], "columns")
    (True, False)
    """
    return hasattr(type(data), name)


def family(data: Any) -> str:
    """Return what kind of container ``data`` is, by its type; "" for anything that is not allowed.

    Guarantee: a package that is not imported is not imported to ask. No row decides the answer.

    >>> family([1, 2]), family(np.ones(2)), family(range(3)), family({1: 2}), family("12")
    ('list', 'array', 'list', '', '')
    """
    kind = type(data)
    if issubclass(kind, (list, tuple)):
        return "list"
    if issubclass(kind, np.ndarray):
        return "array" if kind.__module__.partition(".")[0] in ("numpy", "dpsco") else ""
    for package, name, found in _CLASSES:
        known = getattr(sys.modules.get(package), name, None)
        if known is not None and issubclass(kind, known):
            return found
    if issubclass(kind, (str, bytes, bytearray)) or any(hasattr(kind, name) for name in _TABLE):
        return ""
    if hasattr(kind, "__array__") or _is_buffer(data):
        return "memory"
    return "list" if issubclass(kind, Sequence) else ""


def listed(data: Any) -> Any:
    """Return a sequence without a type of its own (deque, UserList, range) as a list; anything else as it is.

    NumPy would look at all its cells to find a type for them.
    """
    return list(data) if family(data) == "list" and not isinstance(data, (list, tuple)) else data


def refuse_container(data: Any, what: str) -> DataError:
    """Return the error about a container that cannot be ``what``."""
    kind = type(data)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    wanted = "an array, a table, a sparse matrix or a list of rows" if what == "X" else "one column, an array or a list"
    return DataError(
        f"{what} is a {name}. Expected {wanted}: "
        "those of NumPy, pandas, polars, Arrow and SciPy. Convert it first, by a rule that treats each row by itself "
        "(np.asarray, list, to_pandas, collect)."
    )


def _is_buffer(data: Any) -> bool:
    try:
        memoryview(data)
    except TypeError:
        return False
    return True
