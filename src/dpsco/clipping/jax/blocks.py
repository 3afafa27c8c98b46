"""Rows of a batch in blocks of one fixed shape, cut by position in the batch, independent of its chunks.

One shape needs one compilation. A fixed place per row gives the same bits for any chunks. The last block is padded with
zeros, which the oracle ignores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.class_labels import ClassLabels
from dpsco.errors import DataError
from dpsco.query import Chunk
from dpsco.rows.csr import is_sparse
from dpsco.rows.rechunk import in_blocks

__all__ = ["Block", "Form", "blocks", "forms_to_try"]


class Form(NamedTuple):
    """Shape and types of one row for the model. Public: a function of the loss and the width of the rows."""

    shape: tuple[int, ...]
    features: np.dtype[Any]
    labels: np.dtype[Any]
    classes: int | None = None
    """Labels are 0 to ``classes`` - 1; None if any number will do."""


class Block(NamedTuple):
    """Rows of one fixed shape, in the types of a ``Form``."""

    features: NDArray[Any]
    labels: NDArray[Any]
    there: NDArray[np.bool_]
    """Which rows are actual rows whose values the types can hold; the others are zeros."""
    filled: int
    """Number of actual rows."""


def forms_to_try(shape: tuple[int, ...], floats: np.dtype[Any], classes: int | None = None) -> Iterator[Form]:
    """Yield the candidate forms of a loss; the first that it accepts is used: floats, then integers.

    The types of the data play no role, so no row decides. Losses that index with a label or with features need
    integers; every other loss accepts floats.
    """
    whole = np.dtype(np.int32)
    for features, labels in ((floats, floats), (floats, whole), (whole, floats), (whole, whole)):
        yield Form(shape, features, labels, classes)


def blocks(chunks: Iterable[Chunk], rows: int, form: Form) -> Iterator[Block]:
    """Yield the rows of ``chunks``, ``rows`` at a time. Raise DataError for sparse rows or another shape."""
    for a, y in in_blocks(_dense(chunks, form), rows):
        features, labels = np.zeros((rows, *form.shape), form.features), np.zeros(rows, form.labels)
        there = np.zeros(rows, dtype=bool)
        filled = len(y)
        fits = _holds(form.features, a).reshape(filled, -1).all(axis=1) & _holds(form.labels, y)
        if form.classes is not None:
            fits &= ClassLabels(form.classes).valid(y)
        with np.errstate(all="ignore"):  # a value too large for the type becomes infinite, and its row counts as 0
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
    """Return which values are finite and, for an integer type, whole and within its range."""
    with np.errstate(all="ignore"):
        fits = np.isfinite(values)
        if kind.kind == "i":
            bounds = np.iinfo(kind)
            fits &= (values == np.floor(values)) & (values >= bounds.min) & (values <= bounds.max)
    return np.asarray(fits)
