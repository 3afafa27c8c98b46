"""Rows of any shape as flat rows: pictures, sequences, and the chunks of a loader.

    (rows, *shape)  ->  (rows, width)       width = product of shape, row-major; the oracle restores the shape

The shape of a row is declared, or it is that of an array that holds all rows; no row decides it. Rows that come one by
one (``together=False``) become typed one by one: a row of another shape is a zero row and changes no other row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError, InvalidArgument, positive_integer
from dpsco.query import Chunk
from dpsco.rows.containers import as_array, is_frame, is_rows
from dpsco.rows.csr import is_sparse
from dpsco.rows.gate import Declared
from dpsco.rows.lists import is_pair
from dpsco.rows.protocols import family

__all__ = ["ShapedChunks", "declared_shape", "flat_rows"]

Shape = tuple[int, ...]


def declared_shape(data: Any, input_shape: Any) -> Shape:
    """Return the shape of a row: ``input_shape``, or that of the rows of the array ``data``.

    Raises
    ------
    InvalidArgument
        If neither states it.
    """
    if input_shape is not None:
        sizes = input_shape if isinstance(input_shape, (tuple, list)) else (input_shape,)
        return tuple(positive_integer("input_shape", size, "It is the shape of one row.") for size in sizes)
    shape = getattr(data, "shape", None)
    if shape is None or is_rows(data) or len(shape) < 2:
        raise InvalidArgument(
            "Expected input_shape=..., the shape of one row, such as (1, 28, 28): only arrays of all rows, passed as a "
            "tuple (X, y), state it, and rows that come in chunks are not looked at before they are spent."
        )
    return tuple(int(size) for size in shape[1:])


def flat_rows(data: Any, shape: Shape) -> Any:
    """Return a container of rows of ``shape`` as one of flat rows: arrays are viewed, lists read row by row.

    Raises
    ------
    DataError
        If an array holds rows of another shape.
    """
    if is_sparse(data) or is_frame(data):
        return data
    if is_rows(data):
        return [_flat(row, shape) for row in data]
    array = as_array(data)
    if tuple(array.shape[1:]) != shape:
        raise DataError(f"Expected rows of shape {shape}, got {tuple(array.shape[1:])}. Fix the data or input_shape.")
    return array.reshape(len(array), math.prod(shape))


class ShapedChunks:
    """Typed flat chunks of an iterable, for ``dpsco.stream``.

    Parameters
    ----------
    items : iterable
        Chunks (X, y) if ``together``, else lists of pairs (row, label).
    shape : tuple of int
        Shape of a row.
    dtype : str
        "float32" or "float64".
    together : bool
        Whether an item holds arrays of several rows.
    """

    def __init__(self, items: Iterable[Any], shape: Shape, dtype: str, *, together: bool = True) -> None:
        self.declared = Declared(math.prod(shape), dtype)
        self._items, self._shape, self._together = items, shape, together

    def __iter__(self) -> Iterator[Chunk]:
        source = iter(self._items)  # here, not at the first row: a loader forks its workers before a run has a key
        return (self._typed(item) for item in source)

    def _typed(self, item: Any) -> Chunk:
        if not self._together:
            pairs = [pair if is_pair(pair) else (None, None) for pair in item]
            return self.declared.row_pairs([(_flat(row, self._shape), label) for row, label in pairs])
        try:
            features, labels = item
        except (TypeError, ValueError):
            raise DataError("Expected chunks (X, y): inputs and labels of several rows.") from None
        rows, targets = self.declared.chunk(flat_rows(features, self._shape), labels)
        return np.array(rows), np.array(targets)  # a source may fill one buffer again and again


def _flat(row: Any, shape: Shape) -> NDArray[Any] | None:
    """Return one row as a vector; None, which the gate counts as a zero row, if it has another shape."""
    try:
        # As objects, which the gate reads one by one: NumPy warns of a masked cell that it makes a number.
        array = row if isinstance(row, np.ndarray) else np.asarray(row, object if family(row) == "list" else None)
        return array.reshape(-1) if array.shape == shape else None
    except Exception:  # whatever an object raises about itself, it is not a row
        return None
