"""The sum of a full survey by a compiled kernel, in the type of the rows: float32 rows take half the time of float64.

Statement and layout are those of clipping/survey.py. A row a is made in the type of the rows, with an exact norm within
the bound; v(d) is the exact function of a and of the slopes, which are functions of the label alone.

Floating point
    The kernel's block sums are off by at most 64 gamma_65 of the largest ||a|| ||(a, s)||. With the weight of the
    slopes that is 2.5e-4 sqrt(1 + kappa^2) rho^2 for float32, less than 2.5e-4 of the clip; the contract of oracles
    allows 4.9e-4. All later sums are float64. Rows whose squares leave the range of the kernel are added by the plain
    sum.
Guarantee: each unit of rows has its own sum, rounded to the grid, so bits depend neither on threads nor on chunks.
Cost: half of m p^2 multiply-adds for m rows, and one read of them where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.borrowed_zeros import borrow, give_back
from dpsco.clipping.bound import LARGEST_NORM, clip_scale, row_norms
from dpsco.clipping.kernel_inputs import flat
from dpsco.clipping.linear import LinearOracle
from dpsco.clipping.row_map import NORMS
from dpsco.clipping.survey import SurveyOracle, health_of, joint_parts, joint_sum, pack, sum_length
from dpsco.parallel import available_threads, in_order, one_blas_thread
from dpsco.problem import Loss
from dpsco.query import Array, Batch, Clipped, Curvature, Moment, Query, chunk_multiple, to_grid
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.on_demand import RowsOnDemand

__all__ = ["CompiledSurveyOracle"]

_WIDEST = 1024
"""Columns beyond which a tile is not used often enough between its reads from memory."""
_SLOPES = (2.0**-60, 2.0**60)
_SHORTENED = {4: 1.0 + 1e-6, 8: 1.0 + 1e-9}
_NO_PLACES = np.zeros(0, np.int64)


@dataclass(frozen=True)
class CompiledSurveyOracle(SurveyOracle):
    """``SurveyOracle`` with a compiled kernel for full surveys of dense rows."""

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the sum of the joint contributions of ``batch``."""
        moment = query.moment
        if moment is None or moment.kind != "full" or isinstance(moment, Curvature) or query.rowwise:
            return super().answer(query, batch)
        columns, low, high = query.points[0].size // moment.outputs, *NORMS[np.dtype(np.float32)]
        if columns > _WIDEST or not (low <= moment.feature_norm <= high and _SLOPES[0] <= moment.slope <= _SLOPES[1]):
            return super().answer(query, batch)
        answer = Clipped(np.zeros(sum_length(query)), 0)
        with one_blas_thread():
            for part in in_order(self._units(query, moment, batch), available_threads()):
                answer.add(part)
        return answer

    def _units(self, query: Query, moment: Moment, batch: Batch) -> Iterator[Any]:
        for features, labels in batch.chunks:
            rows: Any = CsrRows.of(features) if is_sparse(features) else features
            size = chunk_multiple(rows.shape[1])
            for start in range(0, len(labels), size):
                span = slice(start, min(start + size, len(labels)))
                if isinstance(rows, CsrRows):
                    yield partial(self._block, query, moment, partial(rows.__getitem__, span), labels[span])
                else:
                    yield partial(self._unit, query, moment, rows, span, labels[span])

    def _unit(self, query: Query, moment: Moment, features: Any, span: slice, labels: NDArray[Any]) -> Clipped:
        from dpsco.clipping.kernels.moments import CAREFUL, moments

        rows, places, start, norm, inside = _inputs(features, span, moment.feature_norm)
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            held, width, single = len(labels), features.shape[1], rows.itemsize == 4
            y, valid, slopes, norms, weights = self._of_labels(moment, labels)
            if single:
                slopes *= 1.0 - 2.0**-22
            root = valid.astype(np.float64) if weights is None else np.sqrt(weights) * valid
            slopes *= root[:, None]
            columns = width + (moment.constant > 0)
            lanes = 16 if single else 8
            size = -(-(columns + moment.outputs) // lanes) * lanes
            total = borrow(-(-columns // 8) * 8 * size)
            lengths, state = np.zeros(held), np.zeros(held, np.uint8)
            given = (rows, width, places, start, start + held, norm, moment.constant)
            moments(*given, root, slopes, total, lengths, state)
            table = total.reshape(-1, size)
            gradient = moment.omega * table[:columns, columns : columns + moment.outputs].T
            careful = state == CAREFUL
            usable, weight = valid & ~careful, moment.health * (1 + moment.constant**2)
            shortened = np.zeros(held, bool) if inside else lengths > _SHORTENED[rows.itemsize]
            health = _health_sum(moment, y, usable, shortened, norms, weights)
            joint = np.concatenate([pack(table, columns), gradient.ravel(), weight * health])
            zeroed = int(np.sum(~valid & ~careful))
            if np.any(careful):
                few = np.flatnonzero(careful)
                own = np.concatenate([np.asarray(features[span.start + k : span.start + k + 1]) for k in few.tolist()])
                parts = joint_parts(self.loss, moment, own, labels[few])
                joint += joint_sum(moment, parts)
                zeroed += int(np.sum(parts.unusable))
            give_back(total)
            return Clipped(to_grid(joint, query.grid), held, zeroed_rows=zeroed)

    def _of_labels(self, moment: Moment, labels: NDArray[Any]) -> tuple[Any, NDArray[np.bool_], Array, Array, Any]:
        """Return labels, which are valid, slopes within their bound, their norms before, and class weights: SENSITIVE.

        All are functions of a row's label alone. Classes are few, so theirs are computed once and looked up; norms,
        which only a regression counts, are then those of the classes.
        """
        y = np.array(labels)
        valid = self.loss.valid(y)
        y[~valid] = 0
        if not moment.classes:
            slopes, norms, usable, weights = _slopes(self.loss, moment, y)
            valid &= usable
            norms[~valid] = 0.0
            return y, valid, slopes, norms, weights
        slopes, norms, usable, weights = _class_slopes(self.loss, moment)
        y = y.astype(np.intp)
        valid &= usable[y]
        return y, valid, slopes[y], norms, None if weights is None else weights[y]


def _slopes(loss: Loss, moment: Moment, y: NDArray[Any]) -> tuple[Array, Array, NDArray[np.bool_], Any]:
    """Return slopes within their bound, their norms before, which are usable, and class weights, of each label."""
    slopes = LinearOracle(loss.unweighted()).slopes(np.zeros((len(y), moment.outputs)), y)
    norms = row_norms(slopes)
    usable = norms <= LARGEST_NORM
    slopes[~usable], norms[~usable] = 0.0, 0.0
    slopes *= clip_scale(norms, moment.slope, moment.outputs)[0][:, None]
    return slopes, norms, usable, loss.class_weights(y)


@lru_cache(maxsize=8)
def _class_slopes(loss: Loss, moment: Moment) -> tuple[Array, Array, NDArray[np.bool_], Any]:
    """Return ``_slopes`` of every class. Public."""
    return _slopes(loss, moment, np.arange(moment.classes, dtype=np.float64))


def _health_sum(
    moment: Moment, y: NDArray[Any], usable: NDArray[np.bool_], shortened: NDArray[np.bool_], norms: Array, weights: Any
) -> Array:
    """Sum of the health of the rows: SENSITIVE. Rows that weigh alike are counted, which is exact."""
    if moment.classes and weights is None:
        counts = np.bincount(y[usable], minlength=moment.classes)
        return np.array([np.sum(counts), np.count_nonzero(shortened & usable), *counts], dtype=np.float64)
    if not moment.classes:
        norms = np.where(usable, norms, 0.0)
    health = health_of(moment, y, usable, shortened, norms)
    return np.asarray(np.sum(health if weights is None else health * weights[:, None], axis=0))


def _inputs(
    features: Any, span: slice, feature_norm: float
) -> tuple[NDArray[Any], NDArray[np.int64], int, float, bool]:
    """Return flat rows, places, the first of them, the norm that they are divided by, and whether none is longer."""
    if isinstance(features, RowsOnDemand) and features.source is not None and feature_norm == 1.0:
        array, places, norm = features.source
        low, high = NORMS[np.dtype(np.float32)]
        if low <= norm <= high:
            if isinstance(array, np.ndarray) and _direct(array):
                return flat(array, array.dtype), places, span.start, norm, True
            return _flat_rows(array[places[span]], features.dtype), _NO_PLACES, 0, norm, True
    if isinstance(features, np.ndarray) and _direct(features):
        return flat(features, features.dtype), _NO_PLACES, span.start, feature_norm, False
    return _flat_rows(features[span], features.dtype), _NO_PLACES, 0, feature_norm, False


def _flat_rows(rows: Any, given: Any) -> NDArray[Any]:
    return flat(np.asarray(rows), np.dtype(np.float32 if given == np.float32 else np.float64))


def _direct(rows: NDArray[Any]) -> bool:
    return rows.dtype in (np.float32, np.float64) and rows.dtype.isnative and rows.flags.c_contiguous
