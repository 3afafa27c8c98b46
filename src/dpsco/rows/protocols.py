"""What a container is, asked of its type and never of the object: a row may answer for the object.

A pandas series hands out its cells as attributes: in a series whose index holds names of people, ``series.columns`` is
the cell of whoever is named "columns". Asked with ``hasattr``, such a row would turn the column of everybody into a
table, or into one of Arrow.
"""

from __future__ import annotations

from typing import Any

__all__ = ["offers"]


def offers(data: Any, name: str) -> bool:
    """Return whether the type of ``data`` has the attribute ``name``.

    Guarantee: no row, no cell and no label of the index decides it.

    >>> offers([1, 2], "append"), offers([1, 2], "columns")
    (True, False)
    """
    return hasattr(type(data), name)
