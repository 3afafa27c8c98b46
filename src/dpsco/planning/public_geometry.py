"""The geometry of rows that are public: another population's, last year's published ones, simulated ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsco.clipping.stored_values import sums, unit_values
from dpsco.clipping.survey import dense, unit_rows
from dpsco.errors import DataError, positive
from dpsco.methods.in_geometry import PUBLIC_ROWS
from dpsco.methods.surveyed import INTERCEPT, WIDEST
from dpsco.parallel import one_blas_thread
from dpsco.planning.geometry import Geometry
from dpsco.query import CHUNK_ROWS, chunk_multiple
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.gate import admit, container, container_width, declared_by

__all__ = ["public_geometry"]

_NONE = "No public row is usable: each has cells that are missing or not finite."


def public_geometry(rows: Any, *, feature_norm: float = 1.0, intercept: bool = False) -> Geometry:
    """Compute the geometry of rows that are PUBLIC, for ``dpsco.plan(..., geometry=...)``.

    Parameters
    ----------
    rows : array, table or sparse matrix
        Rows with the columns of the private ones. They get no protection at all.
    feature_norm : float
        That of the problem: rows are divided by it and shortened to norm 1.
    intercept : bool
        That of the problem.

    Returns
    -------
    Geometry
        Its noise is the sampling error of a typical entry. Reports of runs in it state that its rows are assumed to be
        public.

    Raises
    ------
    DataError
        If no row is usable.

    Cost: p^2 multiply-adds per row and one eigendecomposition. Beyond 2,048 columns the geometry has a size per column
    and no other directions, at p multiply-adds per row, or as many as a sparse row has stored values.
    """
    norm = positive("feature_norm", feature_norm, "Rows are divided by it.")
    data = container(rows)
    width = container_width(data)
    table, constant = admit(data, declared_by(data, width, None)), INTERCEPT if intercept else 0.0
    p = int(table.shape[1]) + intercept
    if p > WIDEST:
        return _of_columns(table, p, norm, constant)
    moment, usable = np.zeros((p, p)), 0
    with one_blas_thread():
        for start in range(0, table.shape[0], chunk_multiple(p)):
            a, _, unusable = unit_rows(dense(table[start : start + chunk_multiple(p)]), norm, constant)
            usable += int(np.sum(~unusable))
            moment += a.T @ a
        if not usable:
            raise DataError(_NONE)
        moment /= usable
        observed, directions = np.linalg.eigh(moment)
    noise = float(np.trace(moment)) / (p * math.sqrt(usable))
    mean = np.append(moment[:-1, -1] / constant, constant) if intercept else np.zeros(p)
    return Geometry(
        scale=np.ones(p),
        directions=directions,
        sizes=np.maximum(observed, 0.0),
        rest=0.0,
        observed=observed,
        noise=noise,
        radius=noise * math.sqrt(2 * p),
        mean=mean,
        feature_norm=norm,
        source=PUBLIC_ROWS,
    )


def _of_columns(table: Any, p: int, norm: float, constant: float) -> Geometry:
    """Return the geometry of very many columns, the axes for directions."""
    width, usable = p - (constant > 0), 0
    second, mean = np.zeros(width), np.zeros(width)
    size = CHUNK_ROWS if is_sparse(table[:0]) else chunk_multiple(p)
    for start in range(0, table.shape[0], size):
        piece = table[start : start + size]
        if is_sparse(piece):
            _, column, value, _, unusable = unit_values(CsrRows.of(piece), norm)
            second += sums(column, value * value, width)
            mean += sums(column, value, width)
        else:
            a, _, unusable = unit_rows(np.asarray(piece), norm, 0.0)
            second += np.sum(a * a, axis=0)
            mean += np.sum(a, axis=0)
        usable += int(np.sum(~unusable))
    if not usable:
        raise DataError(_NONE)
    sizes, mean = second / usable, mean / usable
    if constant > 0:
        sizes, mean = np.append(sizes, constant**2), np.append(mean, constant)
    else:
        mean = np.zeros(p)
    noise = float(np.sum(sizes)) / (p * math.sqrt(usable))
    radius = noise * math.sqrt(2 * math.log(p + 1))
    none = np.zeros((p, 0))
    return Geometry(np.ones(p), none, sizes, 0.0, sizes, noise, radius, mean, norm, source=PUBLIC_ROWS)
