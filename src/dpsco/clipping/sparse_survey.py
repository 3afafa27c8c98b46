"""The joint contributions of sparse rows to a diagonal survey, value by value: nothing is made dense.

v(d), its bounds and their proof are those of clipping/survey.py, kind "diagonal": the squares of a, sqrt 2 c a,
omega a s' and health. Entries of columns that a row does not store are 0: a row moves three numbers per stored value,
and those of the constant.

Floating point
    a and s are float64 vectors whose exact norms obey the bounds (stored_values.py, clipping/bound.py). Sums over a
    block of at most 4096 rows are made one addition after the other. Under add-remove every entry of v(d) is rounded
    to the grid by itself, so that no row's place matters.
Cost: O(stored values) per block of rows, and 3 p for its sum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.clipping.bound import LARGEST_NORM, clip_scale, row_norms
from dpsco.clipping.linear import LinearOracle
from dpsco.clipping.stored_values import sums, unit_values
from dpsco.problem.losses import Loss
from dpsco.query import Array, Clipped, Moment, Query, to_grid
from dpsco.rows.csr import CsrRows

__all__ = ["sparse_joint_sum"]


def sparse_joint_sum(
    loss: Loss, moment: Moment, query: Query, features: CsrRows, labels: NDArray[Any], health_of: Any
) -> Clipped:
    """Return the sum of v(d) over a block of sparse rows, rounded to the grid: SENSITIVE.

    Parameters
    ----------
    loss, moment, query
        What is asked.
    features, labels
        The rows of the block.
    health_of
        Health of rows, as clipping/survey.py counts it.
    """
    with np.errstate(all="ignore"):  # a warning that depends on a row is an output
        row, column, a, shortened, unusable = unit_values(features, moment.feature_norm)
        y = np.array(labels)
        unusable = unusable | ~loss.valid(y)
        y[unusable] = 0
        slopes = LinearOracle(loss.unweighted()).slopes(np.zeros((len(y), moment.outputs)), y)
        norms = row_norms(slopes)
        unusable |= ~(norms <= LARGEST_NORM)
        slopes[unusable], norms[unusable] = 0.0, 0.0
        slopes *= clip_scale(norms, moment.slope, moment.outputs)[0][:, None]
        health, root = health_of(moment, y, ~unusable, shortened, norms), (~unusable).astype(np.float64)
        weights = loss.class_weights(y)
        if weights is not None:
            root *= np.sqrt(weights)
            health *= weights[:, None]
        a, slopes, one = a * root[row], slopes * root[:, None], moment.constant * root
        grid, width, held = query.grid if query.rowwise else 0.0, features.shape[1], moment.constant > 0

        def total(values: Array, last: Array) -> Array:
            """Sum one entry per stored value, and one of the constant per row."""
            found = sums(column, to_grid(values, grid), width)
            return np.append(found, np.sum(to_grid(last, grid))) if held else found

        second = [total(a * a, one * one), np.zeros(width - 1 + held)]
        if held:
            second[1] = sums(column, to_grid(math.sqrt(2.0) * (a * one[row]), grid), width)
        gradients = [total(moment.omega * (s[row] * a), moment.omega * (s * one)) for s in slopes.T]
        weight = moment.health * (1 + moment.constant**2)
        joint = np.concatenate([*second, *gradients, np.sum(to_grid(weight * health, grid), axis=0)])
        return Clipped(to_grid(joint, query.grid), len(y), zeroed_rows=int(np.sum(unusable)))
