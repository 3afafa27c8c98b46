"""Rows that ``PublicColumns`` made carry their norm, and a digest that shows whether they are still those rows."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from dpsco.rows.csr import is_sparse

__all__ = ["EncodedRows", "declared_norm", "stamped"]


class EncodedRows(np.ndarray):
    """A plain array that also says how long its rows can be; views and results of arithmetic say nothing."""

    feature_norm: float | None = None


def stamped(rows: Any, norm: float | None) -> Any:
    """Return new rows, an array or a SciPy matrix in CSR, with ``feature_norm`` and the digest of their content."""
    if not is_sparse(rows):
        rows = rows.view(EncodedRows)
    rows.feature_norm, rows.content_digest = norm, _digest(rows)
    return rows


def declared_norm(rows: Any) -> float | None:
    """Return the norm that ``rows`` carry; None if nothing stamped them or they have changed since.

    A scaler that works in place returns the matrix that it was given, attributes included. Cost: one hash of the rows.
    """
    if not (isinstance(rows, EncodedRows) or is_sparse(rows)):
        return None  # a table may have a column named feature_norm
    norm, digest = (getattr(rows, name, None) for name in ("feature_norm", "content_digest"))
    return float(norm) if norm is not None and digest is not None and digest == _digest(rows) else None


def _digest(rows: Any) -> bytes:
    found = hashlib.blake2b(repr(rows.shape).encode(), digest_size=16)
    for part in (rows.data, rows.indices, rows.indptr) if is_sparse(rows) else (np.asarray(rows).T,):
        found.update(str(part.dtype).encode())
        found.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return found.digest()
