"""Oracle of any loss, from a function that returns the gradient of one row.

It is general and slow: one Python call per row and point. Privacy depends on the clipping, not on the function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from dpsco.clipping.bound import LARGEST_NORM, clip_scale, row_norms
from dpsco.clipping.no_warnings import no_warnings
from dpsco.clipping.synthetic import must_answer_once
from dpsco.errors import DataError
from dpsco.query import Array, Batch, Clipped, Query, to_grid

__all__ = ["PerExample"]

BLOCK_ROWS = 256


@dataclass(frozen=True)
class PerExample:
    """Oracle of ``gradient(x, features, label)``.

    Parameters
    ----------
    gradient : callable
        Returns the gradient in x of one row's loss, a vector like x. It must depend on its arguments only.

    Guarantee
    ---------
    A row changes the sum by at most the clip, whatever the function returns for it. A row counts as 0 if it is not
    finite (the function is not called), its result is not finite, or the function fails. Before the first row of a
    batch the function is tried on synthetic rows. Its error is raised if it fails on all of them, whatever rows come.
    What it warns of on a row of the data is not shown. Each call gets copies of x and of the row.
    """

    gradient: Callable[[Array, Any, Any], Any]

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the clipped sum of ``batch``."""
        answer = Clipped(np.zeros(query.points[0].size), 0)
        block = 1 if query.rowwise else BLOCK_ROWS
        tried = False
        with np.errstate(all="ignore"):  # a warning that depends on a row is an output
            for features, labels in batch.chunks:
                if not tried:
                    self._try_synthetic_rows(query, features.shape[1])
                    tried = True
                with no_warnings():  # np.errstate does not know those of Python code
                    for start in range(0, len(labels), block):
                        stop = min(start + block, len(labels))
                        rows = np.stack([self._difference(query, features[i], labels[i]) for i in range(start, stop)])
                        answer += _clipped_sum(query, rows)
        return answer

    def _difference(self, query: Query, features: Any, label: Any) -> Array:
        nothing = np.full(query.points[0].size, np.nan)
        if not (np.isfinite(label) and np.all(np.isfinite(features))):
            return nothing
        try:
            return self._weighted(query, features, label)
        except KeyboardInterrupt:  # of the user, not of a row
            raise
        except BaseException:  # an error that depends on a row is an output, SystemExit too
            return nothing

    def _try_synthetic_rows(self, query: Query, width: int) -> None:
        """Raise the function's first error if it fails on each of nine rows: no row of the data decides that."""
        kinds = product((0.0, 1.0, -1.0), (0.0, 1.0, 0.5))
        must_answer_once(partial(self._weighted, query, np.full(width, value), label) for label, value in kinds)

    def _weighted(self, query: Query, features: Any, label: Any) -> Array:
        total = np.zeros(query.points[0].size)
        for weight, point in zip(query.weights, query.points, strict=True):
            # A function that works in place would write into the caller's rows, the next call and the iterate. The
            # flag shows the mistake; torch.from_numpy ignores it, so both arguments are copies too.
            own, x = np.array(features), point.copy()
            x.setflags(write=False)
            with np.errstate():  # a function may call np.seterr: that ends with it
                gradient = np.asarray(self.gradient(x, own, label), dtype=np.float64).ravel()
            if gradient.size != total.size:
                raise DataError(f"Expected the gradient function to return {total.size} numbers, got {gradient.size}.")
            total += weight * gradient
        return total


def _clipped_sum(query: Query, rows: Array) -> Clipped:
    lengths = row_norms(rows)
    bad = ~(lengths <= LARGEST_NORM)
    rows[bad], lengths[bad] = 0.0, 0.0
    scale, over = clip_scale(lengths, query.clip, rows.shape[1])
    total = to_grid(np.sum(rows * scale[:, None], axis=0), query.grid)
    return Clipped(total, len(rows), clipped_rows=int(over.sum()), zeroed_rows=int(bad.sum()))
