"""Several rows of one person: count at most k of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsco.errors import DataError, positive_integer

__all__ = ["ContributionCap"]


class ContributionCap:
    """Says of each row whether it is among the first ``limit`` rows of its unit, over any number of calls.

    Guarantee: whether a row counts depends on the rows of its own unit and on their order alone, so changing one
    unit changes at most ``limit`` counted rows. Ids that are missing share one unit.
    Cost: memory of one id and one number for each unit met. The ids are data: the object does not print or pickle them.

    >>> cap = ContributionCap(2)
    >>> cap.counted(["a", "b", "a", "a"]).tolist(), cap.counted(["b", "b"]).tolist()
    ([True, True, True, False], [True, False])
    """

    def __init__(self, limit: int) -> None:
        self.limit = positive_integer("max_rows_per_unit", limit, "It is how many rows of one person may count.")
        self._met: dict[Any, int] = {}

    def counted(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """One flag for each row, in order."""
        column = np.asarray(ids)
        if column.ndim != 1:
            raise DataError(f"Expected unit to be one column of ids, one a row, got {column.ndim} dimensions.")
        column = np.array(_names(column), dtype=object) if column.dtype.kind in "OSU" else column
        if column.dtype.kind not in "iubO":
            raise DataError(
                "Expected unit ids to be whole numbers or text: numbers with a point do not hold them exactly."
            )
        units, of_row = np.unique(column, return_inverse=True)
        by_unit = np.argsort(of_row, kind="stable")
        sizes = np.bincount(of_row, minlength=len(units))
        rank = np.empty(len(column), dtype=np.int64)
        rank[by_unit] = np.arange(len(column)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        names = [str(name) for name in units.tolist()]
        before = np.array([self._met.get(name, 0) for name in names], dtype=np.int64)
        for name, size in zip(names, sizes.tolist(), strict=True):
            self._met[name] = self._met.get(name, 0) + size
        return np.asarray(rank + before[of_row] < self.limit)

    def __repr__(self) -> str:
        return f"ContributionCap(limit={self.limit})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("A contribution cap holds the ids it has met and is never pickled or copied.")


def _names(ids: Any) -> list[str]:
    """Each id as text by itself, so that no id depends on the type of another; all missing ones as one name."""
    names = []
    for name in ids.tolist():
        if name is None or name != name:
            name = ""
        elif isinstance(name, float):
            if not name.is_integer():
                raise DataError("Expected unit ids to be whole numbers or text.")
            name = int(name)
        names.append(name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name))
    return names
