"""Rows that ``PublicColumns`` made carry their norm and their columns, and cannot be written to.

Whether rows carry a norm decides how all of them are scaled, so no cell may decide it. A step of a pipeline that works
in place changes cells in some tables and none in others. Such a step fails here: the memory is read-only. (SciPy lets
an assignment to no places at all pass, which changes nothing.) Whether an array is still the one that was made is then
a question of identity, not of content.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.rows.csr import is_sparse

__all__ = ["EncodedRows", "encoded_by", "stamped"]


class EncodedRows(np.ndarray):
    """A plain array that also says how long its rows can be; views and results of arithmetic say nothing."""

    feature_norm: float | None = None
    stamp: tuple[Any, ...] | None = None


def stamped(rows: Any, columns: Any) -> Any:
    """Return new rows, an array or a SciPy matrix in CSR, with their ``columns``; their memory becomes read-only."""
    for part in _parts(rows):
        own: Any = part
        while isinstance(own, np.ndarray):  # a view can be made writable as long as its owner is
            own.flags.writeable = False
            own = own.base
    if not is_sparse(rows):
        rows = rows.view(EncodedRows)
    rows.feature_norm = columns.row_norm
    rows.stamp = (columns, rows.shape, _parts(rows) if is_sparse(rows) else rows.dtype)
    return rows


def encoded_by(rows: Any) -> Any:
    """Return the ``PublicColumns`` that made ``rows``; None if nothing stamped them or their memory is another one.

    Guarantee: depends on which objects were passed on and on no cell in them. Cost: none.
    """
    if not (isinstance(rows, EncodedRows) or is_sparse(rows)):
        return None  # a table may have a column named stamp
    stamp = getattr(rows, "stamp", None)
    if stamp is None or any(part.flags.writeable for part in _parts(rows)):
        return None
    columns, shape, made = stamp
    if is_sparse(rows):
        same = all(part is before for part, before in zip(_parts(rows), made, strict=True))
    else:
        same = rows.dtype == made
    return columns if same and rows.shape == shape else None


def _parts(rows: Any) -> tuple[NDArray[Any], ...]:
    return (rows.data, rows.indices, rows.indptr) if is_sparse(rows) else (rows,)
