"""The contract of oracles: rows in, one clipped sum out."""

from __future__ import annotations

from typing import Protocol

from dpsco.query import Batch, Clipped, Query

__all__ = ["Oracle"]


class Oracle(Protocol):
    """Answers a query from the rows of one batch.

    Contract. The privacy of a run depends on it:

    * Each row contributes one vector, a function of that row and the query only, of norm at most ``query.clip`` in
      exact arithmetic. A row that is not finite contributes 0.
    * Contributions are added in blocks of rows, cut by position in the batch (one row per block if ``query.rowwise``).
      The summation error of a block is at most ``SUMMATION_SLACK / 2`` of the clip in norm.
    * Each block sum is rounded by ``to_grid(., query.grid)``, and the rounded sums are added.
    """

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the clipped sum of ``batch``."""
        ...
