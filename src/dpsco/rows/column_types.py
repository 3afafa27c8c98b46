"""Which types a column may have, and how each is read: a list of what is allowed.

=========  =======================================================  ==============================  ==================
package    cast as a whole ("numbers")                              each cell by its rule ("cells")  days ("dates")
=========  =======================================================  ==============================  ==================
NumPy      bool, int, uint, float of any size and byte order,       complex, bytes, text, objects,  datetime64
           bfloat16 and its kin (ml_dtypes)                         StringDType
pandas     those of NumPy, Int*, UInt*, Float*, boolean, Sparse     string, objects, complex,       datetime64 with
           of them, those of Arrow                                  Sparse of objects, category      and without a zone
polars     Boolean, Int8-64, UInt8-64, Float16-64                   Int128, UInt128,                Date, Datetime
                                                                    Decimal, String, Binary,
                                                                    Categorical, Enum, Null, Object
Arrow      integers, half float, float, double, bool                decimals, (large) string and    date32, date64,
                                                                    binary and their views, null    timestamp
=========  =======================================================  ==============================  ==================

A dictionary, a run-end encoded column and a category are read as their values are. Lists are read cell by cell. Columns
of days are read where they were declared as dates, and refused elsewhere; where dates were declared, polars columns of
floating point are refused. **Every other type is refused**: structured and void arrays, durations, times of day, month
intervals, periods, intervals, lists, records, maps, unions, bytes of a fixed size, extension types, and types that a
later release of a package adds.

Why by type. NumPy, Arrow and polars make a column of numbers into one of times or records where one cell is one, and
the numbers of the other rows are lost before the library sees them. pandas and its readers make text into times, which
one cell that is no time prevents. Read as missing, such a column would change in all rows with one of them. The
refusal is loud, and comes before anything is spent.

Guarantee: how a column is read, and whether it is refused, depends on its type alone. Both ways of reading agree on
every cell: the cast of a real number to float64 is a function of that number.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from dpsco.errors import DataError
from dpsco.rows.protocols import family

__all__ = ["form_of", "kind_without_ids", "readable", "type_of"]

_FORMS = ("numbers", "cells", "dates")
_MASKED = (
    *("BooleanDtype", "Int8Dtype", "Int16Dtype", "Int32Dtype", "Int64Dtype", "UInt8Dtype", "UInt16Dtype"),
    *("UInt32Dtype", "UInt64Dtype", "Float32Dtype", "Float64Dtype"),
)
_POLARS = {
    **dict.fromkeys(("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"), "numbers"),
    **dict.fromkeys(("Boolean", "Float16", "Float32", "Float64"), "numbers"),
    **dict.fromkeys(("Int128", "UInt128", "Decimal", "String", "Utf8", "Binary"), "cells"),
    **dict.fromkeys(("Categorical", "Enum", "Null", "Object"), "cells"),
    **dict.fromkeys(("Date", "Datetime"), "dates"),
    **dict.fromkeys(("Time", "Duration"), "times"),
}


def readable(column: Any, what: str, *, dates: bool = False) -> str:
    """Return how a column is read: "numbers", "cells", or "dates" where it was declared as one.

    Raises
    ------
    DataError
        If its type is not in the list of this module. The message names the type and no cell.
    """
    form = form_of(column)
    if form in _FORMS and (form != "dates" or dates):
        return form
    kind, held = type_of(column), "times" if form == "dates" else form
    declare = " Declare a column of days in dates= of PublicColumns." if form == "dates" else ""
    raise DataError(
        f"{what} holds {held}, by its type {kind}. Expected numbers or text: convert it, or leave it out.{declare} "
        "(NumPy, Arrow and polars make such a column of numbers where one of them is one: write one type per column, "
        "or pass a list.)"
    )


def type_of(column: Any) -> Any:
    """Return the type of the cells of a column, None for a list."""
    return None if family(column) == "list" else column.type if family(column) == "arrow column" else column.dtype


def form_of(column: Any) -> str:
    """Return one of "numbers", "cells" and "dates", or what a type that is refused holds."""
    kind = family(column)
    if kind == "list":
        return "cells"
    if kind == "arrow column":
        return _arrow(column.type)
    return _polars(column.dtype) if kind == "polars column" else _of_dtype(column.dtype)


def _of_dtype(kind: Any) -> str:
    return _numpy(kind) if isinstance(kind, np.dtype) else _pandas(kind)


def _numpy(kind: np.dtype[Any]) -> str:
    if kind.kind in "biuf":
        return "numbers"
    if kind.kind in "cSUOT":
        return "cells"
    if kind.kind in "mM":
        return "dates" if kind.kind == "M" else "times"
    return "numbers" if kind.names is None and kind.type.__module__.startswith("ml_dtypes") else "records"


def _pandas(kind: Any) -> str:
    pd = import_module("pandas")

    if isinstance(kind, tuple(getattr(pd, name) for name in _MASKED)):
        return "numbers"
    if isinstance(kind, pd.StringDtype):
        return "cells"
    if isinstance(kind, pd.ArrowDtype):
        return _arrow(kind.pyarrow_dtype)
    if isinstance(kind, pd.CategoricalDtype):
        form = "cells" if kind.categories is None else _of_dtype(kind.categories.dtype)
        return "cells" if form == "numbers" else form
    if isinstance(kind, pd.SparseDtype):
        form = _of_dtype(kind.subtype)
        return "times" if form == "dates" else form
    if isinstance(kind, pd.DatetimeTZDtype):
        return "dates"
    known = {pd.PeriodDtype: "times", pd.IntervalDtype: "intervals"}
    return next((held for dtype, held in known.items() if isinstance(kind, dtype)), "values of another package")


def _polars(kind: Any) -> str:
    return _POLARS.get(kind.base_type().__name__, "records")


def _arrow(kind: Any) -> str:
    from dpsco.rows.readers.source import arrow

    types = arrow("pyarrow").types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        form = _arrow(kind.value_type)
        return "cells" if form == "numbers" and types.is_dictionary(kind) else form
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return "numbers"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "cells"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "cells"
    if types.is_decimal(kind) or types.is_null(kind):
        return "cells"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "dates"
    return "times" if types.is_temporal(kind) else "records"


def kind_without_ids(column: Any) -> str | None:
    """Return the name of the column's type if it is one of floating point or booleans, which name no people; else None.

    Booleans as categories of pandas stand for 1 and 0, since pandas keeps one category for True and 1: the first of
    them in the table would otherwise decide whether the ids of all are refused.
    """
    kind = type_of(column)
    if kind is None:
        return None
    if family(column) == "arrow column" or hasattr(kind, "pyarrow_dtype"):
        return _arrow_without_ids(getattr(kind, "pyarrow_dtype", kind))
    if family(column) == "polars column":
        return str(kind) if kind.is_float() or kind.__class__.__name__ == "Boolean" else None
    levels = getattr(kind, "categories", None)
    values = kind if levels is None else levels.dtype
    odd = "fc" if levels is not None else "fcb"
    if hasattr(values, "pyarrow_dtype"):
        return _arrow_without_ids(values.pyarrow_dtype)
    lost = _numpy(values) == "numbers" and values.kind == "V" if isinstance(values, np.dtype) else False
    return str(kind) if lost or values.kind in odd else None


def _arrow_without_ids(kind: Any) -> str | None:
    from dpsco.rows.readers.source import arrow

    types = arrow("pyarrow").types
    value = kind.value_type if types.is_dictionary(kind) or types.is_run_end_encoded(kind) else kind
    return str(kind) if types.is_floating(value) or types.is_boolean(value) else None
