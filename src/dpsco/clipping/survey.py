"""The survey's sum: second moment, gradient at zero and health of each row, in one bounded vector per row.

A row d with features f and label y gives, with a = (f / F shortened to norm 1, constant),

    v(d) = ( moment(a),   omega a s',   theta rho^2 health(d) ),       rho^2 = 1 + constant^2,  omega = kappa rho / G

moment(a) is the upper triangle of a a' with off-diagonals times sqrt 2 (or some of its entries, kind "diagonal"): its
Euclidean norm is the Frobenius norm ||a||^2. s is the derivative of the loss in the scores at scores of 0. health is
(usable, shortened, one-hot class), and (usable, shortened, ||s||^2 / G^2) for a regression. A row that is not finite or
has no valid label gives 0. Where classes have public weights w <= 1, a and s are multiplied by sqrt(w) and health by w,
so that v(d) is w times what it is without them; none becomes longer, so the statement below covers it.

A Newton step (``Curvature``, one score per row) asks for s at the query's point instead of 0, clamped to G, and for
w moment(a): w in [0, 1] is the row's curvature there over the largest that the loss has, moved towards 1 by a public
share.

Statement
    zero-out       ||v(d)||         <= rho^2 sqrt(1 + kappa^2 + 3 theta^2)
    replace-one    ||v(d) - v(d')|| <= rho^2 sqrt(2 (1 + kappa^2 / 2)^2 + 4 theta^2)      for kappa <= sqrt 2
                   twice the first bound for ``Curvature``
Proof
    Packing keeps the Frobenius inner product: <pack(aa'), pack(bb')> = (a.b)^2. Dropping entries shortens distances.
    One row: ||aa'||_F = ||a||^2 <= rho^2; ||omega a s'||_F = omega ||a|| ||s|| <= kappa rho^2; health has at most three
    entries that are not 0, each at most 1. The squares add up.
    Two rows, t = a.b: ||aa' - bb'||_F^2 = ||a||^4 + ||b||^4 - 2 t^2 <= 2 rho^4 - 2 t^2, and
    ||a s_a' - b s_b'||_F^2 <= G^2 (2 rho^2 + 2 |t|). Their sum with omega^2 is at most
    2 rho^4 - 2 t^2 + 2 kappa^2 rho^4 + 2 kappa^2 rho^2 |t|, largest at |t| = kappa^2 rho^2 / 2, where it is
    2 rho^4 (1 + kappa^2 / 2)^2. Health differs in at most four entries, each by at most 1. An unusable row is the case
    b = 0. Weights in [0, 1] keep the first bound; two rows with weights of their own break the second.
Floating point
    a and s are float64 vectors whose exact norms obey the bounds (clipping/bound.py). v is the exact function of them.
    Block sums are off by at most m gamma_{m+8} of the largest ||v|| for blocks of m <= 4096 rows, in any order of
    addition: below 2e-9 of the clip, far below the summation slack. Each block sum is rounded to the grid. Under
    add-remove v(d) is made number by number and rounded to the grid by itself, so that no row's place matters.
Cost
    m p^2 multiply-adds for m rows; p (p + 1) / 2 + p K + 2 + classes numbers. Kind "diagonal": m p, or as many as
    sparse rows have stored values (sparse_survey.py), and 2 p - 1 numbers in place of p (p + 1) / 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.bound import LARGEST_NORM, SMALLEST_NORM, clip_scale, row_norms
from dpsco.clipping.linear import LinearOracle
from dpsco.clipping.sketch import TAU, rank_of, sketched
from dpsco.clipping.sparse_survey import sparse_joint_sum
from dpsco.errors import InvalidArgument
from dpsco.parallel import available_threads, in_order, one_blas_thread
from dpsco.problem.losses import Loss
from dpsco.query import CHUNK_ROWS, Array, Batch, Clipped, Curvature, Moment, Query, chunk_multiple, to_grid
from dpsco.rows.csr import CsrRows, is_sparse

__all__ = [
    "SurveyOracle",
    "dense",
    "health_of",
    "joint_bounds",
    "joint_parts",
    "joint_rows",
    "joint_sum",
    "moment_size",
    "pack",
    "padded",
    "sum_length",
    "survey_size",
    "unit_rows",
    "unpack",
]

MOMENTS = ("full", "diagonal", "low-rank")

_ALONE_NUMBERS = 1 << 16
"""Numbers of a survey's rows up to which it ends before a second thread wakes up."""


@dataclass(frozen=True)
class SurveyOracle:
    """Answers the query of a survey, or of a Newton step, for a loss of linear models."""

    loss: Loss
    intercept: bool = False

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the sum of the joint contributions of ``batch``."""
        moment = query.moment
        if moment is None:
            raise InvalidArgument("This oracle answers surveys and nothing else.")
        answer = Clipped(np.zeros(sum_length(query)), 0)
        most = _rowwise_size(query) if query.rowwise else 0
        blocks = (partial(self._block, query, moment, *block) for block in _blocks(batch, moment, most))
        few = query.size * query.points[0].size <= _ALONE_NUMBERS
        with one_blas_thread():
            for part in in_order(blocks, 1 if few else available_threads()):
                answer.add(part)
        return answer

    def _block(self, query: Query, moment: Moment, rows_of: Callable[[], Any], labels: NDArray[Any]) -> Clipped:
        rows = rows_of()
        if _stays_sparse(moment, rows):
            return sparse_joint_sum(self.loss, moment, query, rows, labels, health_of)
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            features, held = dense(rows), len(labels)
            if query.rowwise:
                size = _rowwise_size(query)
                parts = joint_parts(self.loss, moment, padded(features, size), padded(labels, size))
                total = to_grid(joint_rows(moment, parts)[:held], query.grid).sum(axis=0)
            else:
                point = query.points[0] if isinstance(moment, Curvature) else None
                parts = joint_parts(self.loss, moment, features, labels, point)
                total = to_grid(joint_sum(moment, parts), query.grid)
            return Clipped(total, held, zeroed_rows=int(np.sum(parts.unusable[:held])))


class JointParts(NamedTuple):
    """What the joint contributions of some rows are made of: SENSITIVE."""

    rows: Array
    slopes: Array
    health: Array
    unusable: NDArray[np.bool_]
    curvature: Array | None = None
    """w of each row, where the moment is weighed."""


def joint_parts(
    loss: Loss, moment: Moment, features: NDArray[Any], labels: NDArray[Any], point: Array | None = None
) -> JointParts:
    """Return unit rows, slopes within ``moment.slope`` and health; zeros for a row that is not usable.

    With ``point``, slopes are those at its scores, and rows have curvatures.
    """
    rows, shortened, unusable = unit_rows(features, moment.feature_norm, moment.constant)
    y = np.array(labels)
    unusable |= ~loss.valid(y)
    y[unusable] = 0
    rows[unusable] = 0.0
    plain = loss.unweighted()
    scores = np.zeros((len(y), moment.outputs)) if point is None else (rows @ point)[:, None]
    slopes, curvature = LinearOracle(plain).slopes(scores, y), None
    if point is not None and isinstance(moment, Curvature):
        curvature = np.clip(plain.curvature(scores[:, 0], y) / plain.smoothness(1.0), 0.0, 1.0)
        curvature = moment.least + (1.0 - moment.least) * curvature
        unusable |= ~(curvature <= 1.0)
        curvature[unusable] = 0.0
    norms = row_norms(slopes)
    unusable |= ~(norms <= LARGEST_NORM)
    rows[unusable], slopes[unusable], norms[unusable] = 0.0, 0.0, 0.0
    scale, _ = clip_scale(norms, moment.slope, moment.outputs)
    slopes *= scale[:, None]
    health = health_of(moment, y, ~unusable, shortened, norms)
    weights = loss.class_weights(y)
    if weights is not None:
        root = np.sqrt(weights)[:, None]
        rows, slopes, health = rows * root, slopes * root, health * weights[:, None]
    return JointParts(rows, slopes, health, unusable, curvature)


def health_of(
    moment: Moment, y: NDArray[Any], usable: NDArray[np.bool_], shortened: NDArray[np.bool_], norms: Array
) -> Array:
    """Health of each row, from its label, its states and the norm of its slopes: SENSITIVE."""
    health = np.zeros((len(y), health_size(moment)))
    health[:, 0], health[:, 1] = usable, shortened & usable
    if moment.classes:
        health[np.flatnonzero(usable), 2 + y[usable].astype(np.int64)] = 1.0
    else:
        health[:, 2] = np.minimum(norms / moment.slope, 1.0) ** 2
    return health


def unit_rows(
    features: NDArray[Any], feature_norm: float, constant: float
) -> tuple[Array, NDArray[np.bool_], NDArray[np.bool_]]:
    """Rows over ``feature_norm``, shortened to norm 1, with the constant appended (0: none): SENSITIVE.

    Returns
    -------
    rows, shortened, unusable
        The rows, a new array; which were shortened; which are not finite and are set to 0.

    Guarantee: the exact norm of a returned row without its constant is at most 1; a row depends on itself alone.
    """
    width = features.shape[1]
    rows = np.zeros((len(features), width + (constant > 0)))
    with np.errstate(all="ignore"):
        rows[:, :width] = features
        rows[:, :width] /= feature_norm
        lengths = row_norms(rows[:, :width])
        unusable = ~(lengths <= LARGEST_NORM)
        nothing = unusable | (lengths < SMALLEST_NORM)
        lengths[nothing] = 0.0
        scale, _ = clip_scale(lengths, 1.0, width)
        rows[:, :width] *= scale[:, None]
    rows[nothing, :width] = 0.0
    if constant > 0:
        rows[:, -1] = constant
        rows[unusable, -1] = 0.0
    return rows, lengths > 1.0 + 1e-9, unusable


def joint_bounds(moment: Moment) -> tuple[float, float]:
    """Bounds on ||v(d)|| and on ||v(d) - v(d')||: the statement of the module."""
    kappa, theta = moment.gradient, moment.health
    if not 0 < kappa <= math.sqrt(2.0) or not 0 < theta <= 1:
        raise InvalidArgument(f"Expected gradient={kappa:g} in (0, sqrt 2] and health={theta:g} in (0, 1].")
    square = 1 + moment.constant**2
    if moment.kind == "low-rank":
        clip = square * math.sqrt(TAU**2 + kappa**2 + 4 * theta**2)  # the statement of clipping/sketch.py
        return clip, 2 * clip
    if isinstance(moment, Curvature):
        clip = square * math.sqrt(1 + kappa**2 + 3 * theta**2)
        return clip, 2 * clip
    apart = math.sqrt(2 * (1 + kappa**2 / 2) ** 2 + 4 * theta**2)
    return square * math.sqrt(1 + kappa**2 + 3 * theta**2), square * apart


def survey_size(moment: Moment, parameters: int) -> int:
    """Numbers that a survey of a model with ``parameters`` parameters sends."""
    p = parameters // moment.outputs
    return moment_size(moment.kind, p) + parameters + health_size(moment)


def moment_size(kind: str, columns: int) -> int:
    """Numbers of the second moment in a survey of rows of so many columns."""
    sizes = {"full": columns * (columns + 1) // 2, "diagonal": 2 * columns - 1}
    return sizes.get(kind, columns * rank_of(columns) + 1)


def health_size(moment: Moment) -> int:
    """Numbers of the health check: usable, shortened, and one per class or the squared slope."""
    return 2 + max(moment.classes, 1)


def sum_length(query: Query) -> int:
    """Numbers of the sum that answers ``query``."""
    parameters = query.points[0].size
    if query.moment is not None:
        return survey_size(query.moment, parameters)
    return 2 * parameters if query.squares else parameters


def pack(matrix: Array, columns: int | None = None) -> Array:
    """Upper triangle, off-diagonals times sqrt 2: the Euclidean norm of the result is the Frobenius norm.

    Of a matrix that is larger, the first ``columns`` rows and columns.

    >>> round(float(np.linalg.norm(pack(np.ones((3, 3))))), 12)
    3.0
    """
    places, weights = _packing(len(matrix) if columns is None else columns, matrix.shape[1])
    return np.asarray(matrix.take(places) * weights)


@lru_cache(maxsize=2)
def _triangle(p: int) -> Any:
    return np.triu_indices(p)


@lru_cache(maxsize=2)
def _packing(p: int, stride: int) -> tuple[NDArray[np.int64], Array]:
    """Return the places of the upper triangle in a flat matrix, and what each is multiplied by."""
    rows, columns = _triangle(p)
    return rows * stride + columns, np.where(rows == columns, 1.0, math.sqrt(2.0))


def unpack(packed: Array, p: int) -> Array:
    """Return the symmetric matrix behind ``pack``."""
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p)] = packed
    return np.triu(matrix, 1) / math.sqrt(2.0) + np.triu(matrix, 1).T / math.sqrt(2.0) + np.diag(np.diag(matrix))


def joint_rows(moment: Moment, parts: JointParts) -> Array:
    """v(d) of each row, by operations on single numbers, so that no row's place matters: SENSITIVE."""
    rows, slopes, health = parts[:3]
    p = rows.shape[1]
    if moment.kind == "full":
        first, second = _triangle(p)
        moments = rows[:, first] * rows[:, second]
        moments[:, first != second] *= math.sqrt(2.0)
    elif moment.kind == "low-rank":
        b, energy = _sketch_parts(moment, rows, rowwise=True)
        moments = np.hstack([(rows[:, :, None] * b[:, None, :]).reshape(len(rows), p * b.shape[1]), energy[:, None]])
    else:
        column = rows[:, :-1] * rows[:, -1:] if moment.constant > 0 else np.zeros((len(rows), p - 1))
        moments = np.hstack([rows * rows, math.sqrt(2.0) * column])
    gradients = moment.omega * (slopes[:, :, None] * rows[:, None, :]).reshape(len(rows), slopes.shape[1] * p)
    return np.hstack([moments, gradients, moment.health * (1 + moment.constant**2) * health])


def _sketch_parts(moment: Moment, rows: Array, *, rowwise: bool) -> tuple[Array, Array]:
    """Sketch and weighed energy of each row: SENSITIVE."""
    b = sketched(rows, math.hypot(1.0, moment.constant), rowwise=rowwise)
    return b, moment.health * np.einsum("ij,ij->i", rows, rows)


def joint_sum(moment: Moment, parts: JointParts) -> Array:
    """Sum of v(d) over the rows: SENSITIVE."""
    rows, slopes, health = parts[:3]
    if moment.kind == "full":
        weighed = rows if parts.curvature is None else rows * np.sqrt(parts.curvature)[:, None]
        second = pack(weighed.T @ weighed)
    elif moment.kind == "low-rank":
        b, energy = _sketch_parts(moment, rows, rowwise=False)
        second = np.append((rows.T @ b).ravel(), np.sum(energy))
    else:
        column = rows[:, :-1].T @ rows[:, -1] if moment.constant > 0 else np.zeros(rows.shape[1] - 1)
        second = np.concatenate([np.sum(rows * rows, axis=0), math.sqrt(2.0) * column])
    weight = moment.health * (1 + moment.constant**2)
    return np.concatenate([second, moment.omega * (slopes.T @ rows).ravel(), weight * np.sum(health, axis=0)])


def _stays_sparse(moment: Moment, rows: Any) -> bool:
    return isinstance(rows, CsrRows) and moment.kind == "diagonal"


def _blocks(batch: Batch, moment: Moment, most: int) -> Iterator[tuple[Callable[[], Any], NDArray[Any]]]:
    """Cut the rows into blocks, of ``most`` rows unless that is 0; a block's rows are taken where they are used."""
    for features, labels in batch.chunks:
        rows: Any = CsrRows.of(features) if is_sparse(features) else features
        size = CHUNK_ROWS if _stays_sparse(moment, rows) else most or chunk_multiple(features.shape[1])
        for start in range(0, len(labels), size):
            yield partial(rows.__getitem__, slice(start, start + size)), labels[start : start + size]


def _rowwise_size(query: Query) -> int:
    """Rows whose contributions are held at once."""
    return min(256, max(4, (1 << 19) // sum_length(query)))


def padded(values: NDArray[Any], unit: int) -> NDArray[Any]:
    """Rows in whole units: a deleted row shifts the others, and the arithmetic on these must not change."""
    more = -len(values) % unit
    return np.concatenate([values, np.zeros((more, *values.shape[1:]), dtype=values.dtype)]) if more else values


def dense(features: Any) -> NDArray[Any]:
    """Rows as a dense array; a stored place outside the matrix makes its row unusable."""
    if not is_sparse(features):
        return np.asarray(features)
    return CsrRows.of(features).dense()
