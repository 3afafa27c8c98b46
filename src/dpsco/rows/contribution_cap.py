"""Several rows of one person: count at most k of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError, positive_integer
from dpsco.rows.containers import column_texts
from dpsco.rows.protocols import offers

__all__ = ["ContributionCap"]


class ContributionCap:
    """Says of each row whether it is among the first ``limit`` rows of its unit, over any number of calls.

    Parameters
    ----------
    limit
        How many rows of one unit count.

    Guarantee: whether a row counts depends on the rows of its own unit and on their order alone. A row without an id
    never counts. So a unit changes at most ``limit`` counted rows, and no row of another unit:

    zero-out    the rows of the unit become zero rows, their ids included;
    replace     the rows of the unit become rows of another unit, one that has no other rows. A neighbour that hands
                some of its rows to a third unit is two changes, and is not covered by one.

    Cost: memory of one id and one number for each unit met. The ids are data: the object does not print or pickle them.

    >>> cap = ContributionCap(2)
    >>> cap.counted(["a", "b", "a", "a", None]).tolist(), cap.counted(["b", "b"]).tolist()
    ([True, True, True, False, False], [True, False])
    """

    def __init__(self, limit: int) -> None:
        self.limit = positive_integer("max_rows_per_unit", limit, "It is how many rows of one person may count.")
        self._met: dict[str, int] = {}

    def counted(self, ids: Any) -> NDArray[np.bool_]:
        """Return one flag per row, in order.

        Parameters
        ----------
        ids
            One id per row, in any container; 7, 7.0, "7", "7.0" and ``np.float32(7)`` are one id. Other text is an id
            as it is written: "7", "007" and "7e0" are three ids (``cells.id_text``).

        Raises
        ------
        DataError
            If ``ids`` is not one column.
        """
        if len(ids.shape if offers(ids, "shape") else (0,)) != 1:
            raise DataError("Expected unit to be one column with an id per row.")
        return self.counted_texts(*column_texts(ids, of="id"))

    def counted_texts(self, texts: Sequence[str], codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the same for ids that are ``texts[codes[i]]``, all texts different; "" is no id."""
        codes = np.where(codes < 0, len(texts) - 1, codes)
        sizes = np.bincount(codes, minlength=len(texts))
        by_unit = np.argsort(codes, kind="stable")
        rank = np.empty(len(codes), dtype=np.int64)
        rank[by_unit] = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        before = np.array([self._met.get(text, 0) if text else self.limit for text in texts], dtype=np.int64)
        for text, size in zip(texts, sizes.tolist(), strict=True):
            if text and size:
                self._met[text] = self._met.get(text, 0) + size
        return np.asarray(rank + before[codes] < self.limit) if len(codes) else np.zeros(0, dtype=bool)

    def __repr__(self) -> str:
        return f"ContributionCap(limit={self.limit})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("A contribution cap holds the ids it has met and is never pickled or copied.")
