"""Rows of a batch in blocks of one fixed shape, cut by position in the batch whatever chunks it came in.

One shape means one compilation; one place for each row means the same bits for any chunking. The last block is filled
up with zeros, which the oracle leaves out of everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError
from dpsco.query import Chunk
from dpsco.rows.csr import is_sparse
from dpsco.rows.rechunk import in_blocks

__all__ = ["Block", "Form", "blocks", "forms_to_try"]


class Form(NamedTuple):
    """Shape and type of one row as the model sees it: public, a function of the loss and of the width of the rows."""

    shape: tuple[int, ...]
    features: np.dtype[Any]
    labels: np.dtype[Any]


class Block(NamedTuple):
    """Rows of one fixed shape, in the types of a ``Form``."""

    features: NDArray[Any]
    labels: NDArray[Any]
    there: NDArray[np.bool_]
    """Rows that are there and that the types can hold; the rest are zeros."""
    filled: int
    """Rows that are there."""


def forms_to_try(shape: tuple[int, ...], floats: np.dtype[Any]) -> Iterator[Form]:
    """Yield the forms that a loss may take, the first that it accepts being the one: numbers, then whole numbers.

    No row decides: the types of the data are not asked. Whole numbers are for losses that index with a label or with
    features; every other loss takes numbers.
    """
    whole = np.dtype(np.int32)
    for features, labels in ((floats, floats), (floats, whole), (whole, floats), (whole, whole)):
        yield Form(shape, features, labels)


def blocks(chunks: Iterable[Chunk], rows: int, form: Form) -> Iterator[Block]:
    """Yield the rows of ``chunks``, ``rows`` at a time."""
    for a, y in in_blocks(_dense(chunks, form), rows):
        features, labels = np.zeros((rows, *form.shape), form.features), np.zeros(rows, form.labels)
        there = np.zeros(rows, dtype=bool)
        filled = len(y)
        fits = _holds(form.features, a).reshape(filled, -1).all(axis=1) & _holds(form.labels, y)
        with np.errstate(all="ignore"):  # a value too large for the model becomes infinite, and the row counts as 0
            features[:filled] = np.where(fits.reshape(-1, *(1,) * (a.ndim - 1)), a, 0)
            labels[:filled] = np.where(fits, y, 0)
        there[:filled] = fits
        yield Block(features, labels, there, filled)


def _dense(chunks: Iterable[Chunk], form: Form) -> Iterator[Chunk]:
    for a, y in chunks:
        if is_sparse(a) or tuple(a.shape[1:]) != form.shape:
            raise DataError(f"Expected dense rows of shape {form.shape}, as in the first batch.")
        yield a, y


def _holds(kind: np.dtype[Any], values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are finite and, for a type of whole numbers, whole and within its range."""
    with np.errstate(all="ignore"):
        fits = np.isfinite(values)
        if kind.kind == "i":
            bounds = np.iinfo(kind)
            fits &= (values == np.floor(values)) & (values >= bounds.min) & (values <= bounds.max)
    return np.asarray(fits)
