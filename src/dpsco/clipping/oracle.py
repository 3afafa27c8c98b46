"""What an oracle is: rows in, one clipped sum out."""

from __future__ import annotations

from typing import Protocol

from dpsco.query import Batch, Clipped, Query

__all__ = ["Oracle"]


class Oracle(Protocol):
    """Answers a query from the rows of one batch.

    Contract, on which the privacy of the run rests: each row contributes one vector, a function of that row
    and the query alone, of norm at most ``query.clip`` in exact arithmetic (a row that is not finite
    contributes 0). Contributions are added in blocks of rows cut by position in the batch (one row a block if
    ``query.rowwise``), each with a summation error of at most ``SUMMATION_SLACK / 2`` of the clip in norm; each
    block sum is rounded by ``to_grid(., query.grid)``, and the rounded sums are added up.
    """

    def answer(self, query: Query, batch: Batch) -> Clipped: ...
