"""Rows of a batch in blocks of one fixed shape, cut by position in the batch whatever chunks it came in.

One shape means one compilation; one place for each row means the same bits for any chunking. The last block is filled
up with zeros, which the oracle leaves out of everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dpsco.errors import DataError
from dpsco.query import Chunk
from dpsco.rows.csr import is_sparse

__all__ = ["Block", "Form", "blocks", "form_of"]


class Form(NamedTuple):
    """Shape and type of one row as the model sees it: public, like the columns of a table."""

    shape: tuple[int, ...]
    features: np.dtype[Any]
    labels: np.dtype[Any]


class Block(NamedTuple):
    features: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]
    filled: int
    """Rows that are there; the rest are zeros."""


def form_of(features: Any, labels: Any, floats: np.dtype[Any]) -> Form:
    """The form of rows: floating values take the model's precision, whole numbers at most 32 bits."""
    return Form(tuple(features.shape[1:]), _narrow(features.dtype, floats), _narrow(labels.dtype, floats))


def blocks(chunks: Iterable[Chunk], rows: int, form: Form) -> Iterator[Block]:
    """The rows of ``chunks``, ``rows`` at a time."""
    features, labels = np.zeros((rows, *form.shape), form.features), np.zeros(rows, form.labels)
    filled = 0
    for a, y in chunks:
        if is_sparse(a) or tuple(a.shape[1:]) != form.shape:
            raise DataError(f"Expected dense rows of shape {form.shape}, as in the first batch.")
        start = 0
        while start < len(y):
            take = min(rows - filled, len(y) - start)
            with np.errstate(all="ignore"):  # a value too large for the model becomes infinite, and the row counts as 0
                features[filled : filled + take] = a[start : start + take]
                labels[filled : filled + take] = y[start : start + take]
            start, filled = start + take, filled + take
            if filled == rows:
                yield Block(features, labels, rows)
                features, labels, filled = np.zeros_like(features), np.zeros_like(labels), 0
    if filled:
        yield Block(features, labels, filled)


def _narrow(dtype: np.dtype[Any], floats: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "f":
        return floats
    small: dict[Any, Any] = {np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32}
    return np.dtype(small.get(dtype, dtype))
