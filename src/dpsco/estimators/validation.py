"""What ``fit`` and ``predict`` are given, through the gate: typed rows, labels and ids.

The messages are ours: those of scikit-learn quote cells. Where ``invalid_rows="zero"`` no row decides whether a call
succeeds; every error here is then about the container.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from dpsco.clipping.no_warnings import no_warnings
from dpsco.errors import DataError, InvalidArgument, positive_integer
from dpsco.rows.check_beside import CheckBeside
from dpsco.rows.column_types import form_of
from dpsco.rows.containers import frame_columns, frame_names, is_frame, is_rows, plain_column, table_numbers
from dpsco.rows.csr import CsrRows
from dpsco.rows.gate import admit, all_finite, container, container_width, declared_by
from dpsco.rows.protocols import offers

__all__ = ["check_labels", "checked_ids", "is_chunks", "is_empty", "one_column", "typed_rows"]

BESIDE_FROM = 1 << 22
"""Numbers of an array from which the check of its values pays for a thread of its own."""

_REMEDY = "Clean them, or pass invalid_rows='zero' to count such rows as zero rows. Nothing was spent."
_ENCODE = "columns=dpsco.PublicColumns(...) encodes missing cells."


def typed_rows(
    estimator: Any,
    X: Any,
    *,
    first: bool,
    strict: bool,
    width: int | None = None,
    form: tuple[str, bool] | tuple[None, None] = (None, None),
    checks: list[CheckBeside] | None = None,
) -> Any:
    """Return the rows of ``X`` as the gate types them, and note names and number of features on the estimator.

    Parameters
    ----------
    estimator
        Gets ``n_features_in_`` and ``feature_names_in_``, or is asked for them if not ``first``.
    X
        Any container of rows.
    first
        Whether this call begins a fit.
    strict
        Whether rows that do not fit are an error; if not, they become zero rows.
    width
        Features per row, for lists of rows: a list does not state it.
    form
        Type of the rows and whether they are sparse, as rows before these declared it; by default ``X`` declares it.
    checks
        Takes the check of the values of a large array, which then runs beside what follows.

    Raises
    ------
    DataError, InvalidArgument, ValueError
        If the container is no table of the estimator's features, or (``strict``) a row does not fit.
    """
    given, X = X, container(X)
    if is_rows(X):
        X, own = _listed(estimator, X, first=first, strict=strict, width=width)
        named: Any = np.empty((len(X), own))
    else:
        own = container_width(X) or 0
        named = np.empty((1, own)) if isinstance(X, CsrRows) else X
    if own == 0:
        raise DataError(f"Found array with 0 feature(s) (shape=({len(X)}, 0)) while a minimum of 1 is required.")
    if len(X) == 0:
        raise DataError("Found array with 0 sample(s) while a minimum of 1 is required: X is empty.")
    validate_data(estimator, named, skip_check_array=True, reset=first)
    if strict:
        _refuse_kinds(X)
    rows = admit(X, declared_by(X, own, *form))
    if not strict:
        return rows
    if checks is not None and isinstance(rows, np.ndarray) and rows.size >= BESIDE_FROM:
        checks.append(CheckBeside(partial(_refuse_unfit, given, rows, alone=True)))
    else:
        _refuse_unfit(given, rows)
    return rows


def _refuse_unfit(given: Any, rows: Any, *, alone: bool = False) -> None:
    if all_finite(rows, alone=alone):
        return
    if named := _without_numbers(given):
        raise DataError(
            f"These columns are not of numbers, by their type: {', '.join(named)}. Declare what they hold with "
            "columns=dpsco.PublicColumns(...), or leave them out. Nothing was spent."
        )
    raise DataError(f"X has cells that are NaN or infinite, or not numbers. {_REMEDY} {_ENCODE}")


def _without_numbers(X: Any) -> list[str]:
    """Return the names of the columns of a table whose type is not one of numbers."""
    if not is_frame(X):
        return []
    columns = zip(frame_names(X), frame_columns(X), strict=True)
    return [name for name, column in columns if form_of(plain_column(column)) != "numbers"]


def is_chunks(X: Any) -> bool:
    """Return whether ``X`` is an iterable of chunks and no container of rows: a generator, an iterator, a reader."""
    return hasattr(X, "__iter__") and not hasattr(X, "__len__") and not hasattr(X, "__array__")


def is_empty(chunk: Any) -> bool:
    """Return whether ``chunk`` is a pair (X, y) without a row: such a chunk is skipped."""
    return isinstance(chunk, (tuple, list)) and len(chunk) == 2 and all(map(_without_rows, chunk))


def _without_rows(part: Any) -> bool:
    if isinstance(part, Mapping):
        part = next(iter(part.values()), None)
    shape = getattr(part, "shape", None)
    if shape is not None:
        return len(shape) > 0 and shape[0] == 0
    return hasattr(part, "__len__") and len(part) == 0


def one_column(y: Any, rows: int, *, strict: bool) -> Any:
    """Return ``y`` as one plain column of ``rows`` labels, in the type that it was given in: lists stay lists.

    NumPy would find one type for all labels of a list: one of them as text makes text of all.
    """
    if y is None:
        raise DataError("This estimator requires y to be passed, but the target y is None.")
    shape = tuple(y.shape) if offers(y, "shape") else (0,)
    if len(shape) == 2 and shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples, ).",
            DataConversionWarning,
            stacklevel=4,
        )
    elif len(shape) != 1:
        raise DataError(f"y should be a 1d array: one label per row, got {len(shape)} dimensions.")
    y = plain_column(y)
    if strict:
        _refuse_complex(y)
        if isinstance(y, (list, tuple)) and any(isinstance(cell, (list, tuple, np.ndarray)) for cell in y):
            raise DataError("y should be a 1d array: one label per row, text or numbers.")
    if len(y) != rows:
        raise DataError("Found input variables with inconsistent numbers of samples: expected one label per row of X.")
    return y


def check_labels(y: Any) -> None:
    """Raise ``DataError`` if ``y`` holds no labels of classes; the text of scikit-learn names a kind and no cell.

    Its warnings are left out: it counts the different labels, and one row decides whether they are more than half.
    """
    if type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biu":
        return  # whole numbers are labels, whatever they are
    try:
        with no_warnings():
            check_classification_targets(y)
    except Exception as error:
        told = str(error)
        known = isinstance(error, ValueError) and told.startswith("Unknown label type: ")
        raise DataError(told if known else f"y has cells that are NaN or infinite, or no labels. {_REMEDY}") from None


def checked_ids(unit: Any, rows: int) -> Any:
    """Return ``unit`` if it is one column of ``rows`` ids."""
    if unit is None or len(unit.shape if offers(unit, "shape") else (0,)) != 1:
        raise InvalidArgument("Expected unit to be one column with one id for each row of X.")
    unit = plain_column(unit, "unit")
    if len(unit) != rows:
        raise InvalidArgument("Expected unit to be one column with one id for each row of X.")
    return unit


def _listed(estimator: Any, X: Any, *, first: bool, strict: bool, width: int | None) -> tuple[Any, int]:
    """Return a list of rows and the number of features, which must be stated."""
    if width is not None:
        return X, positive_integer("n_features", width, "It is the number of features of a row.")
    if not first:
        return X, int(estimator.n_features_in_)
    if not strict:
        raise InvalidArgument(
            "A list of rows does not state how many features a row has, and with invalid_rows='zero' no row may decide "
            "it. Pass an array or a table, or state n_features=...."
        )
    array = _rectangular(X)
    if array.ndim != 2:
        raise DataError(
            f"Expected 2D array, got {array.ndim}D array instead. Reshape your data: rows of one length each."
        )
    return table_numbers(X, array.shape[1]), array.shape[1]  # float64: no row decides on the type, as in ``array``


def _rectangular(X: Any) -> NDArray[Any]:
    try:
        return np.asarray(X if isinstance(X, (list, tuple)) else X.tolist())
    except Exception:  # the text of a foreign error may quote cells
        raise DataError("Expected 2D array: rows of one length each. Reshape your data.") from None


def _refuse_complex(y: Any) -> None:
    cells = y if isinstance(y, (list, tuple)) else ()
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    if kind == "c" or any(isinstance(cell, (complex, np.complexfloating)) for cell in cells):
        raise DataError(f"Complex data not supported: y holds complex numbers. {_REMEDY}")


def _refuse_kinds(X: Any) -> None:
    """Refuse what scikit-learn's estimators refuse by type."""
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind == "c":
        raise DataError(f"Complex data not supported: X holds complex numbers. {_REMEDY}")
    if kind == "O" and any(isinstance(cell, (dict, list, tuple, set)) for cell in np.asarray(X, dtype=object).ravel()):
        raise TypeError("X has cells that are not numbers: a cell or argument must be a string or a number.")
