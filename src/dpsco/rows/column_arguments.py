"""Arguments of ``PublicColumns`` as people write them, checked: names, ranges, levels, dropped levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsco.errors import InvalidArgument
from dpsco.rows.cells import label_text

__all__ = ["chosen", "dropped", "ends_of", "levels_of", "named", "names_of"]


def named(argument: str, given: Any) -> dict[str, Any]:
    """Return a mapping from columns, with their names as text."""
    if given is not None and not isinstance(given, Mapping):
        raise InvalidArgument(f"Expected {argument} to be a mapping from columns to what is declared of them.")
    return {str(name): value for name, value in (given or {}).items()}


def names_of(argument: str, given: Any) -> list[str]:
    """Return a list of columns."""
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise InvalidArgument(f"Expected {argument} to be a list of columns, such as [{given!r}].")
    return [str(name) for name in given]


def chosen(argument: str, given: Any, known: Any) -> set[str]:
    """Return the columns that an option names: all of ``known`` if True."""
    if isinstance(given, bool):
        return set(known) if given else set()
    if unknown := [name for name in names_of(argument, given) if name not in known]:
        raise InvalidArgument(
            f"{argument} names {', '.join(map(repr, unknown))}, which the columns it applies to do not contain."
        )
    return set(names_of(argument, given))


def ends_of(name: str, given: Any) -> tuple[Any, Any]:
    """Return both ends of a range."""
    if isinstance(given, (str, bytes)) or not hasattr(given, "__len__") or len(given) != 2:
        raise InvalidArgument(f"Expected the range of {name!r} as (low, high).")
    return given[0], given[1]


def levels_of(name: str, given: Any) -> tuple[Any, ...]:
    """Return the levels of a column, those of a set in the order of their texts."""
    if isinstance(given, (str, bytes)):
        raise InvalidArgument(f"Expected the levels of {name!r} as a list, such as ['A', 'B'].")
    return tuple(sorted(given, key=str) if isinstance(given, (set, frozenset)) else given)


def dropped(given: Any, levels: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the level that each column of categories drops."""
    if given is None:
        return {}
    if isinstance(given, str) and given == "first":
        return {name: each[0] for name, each in levels.items() if len(each) > 1}
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            f"Expected drop={given!r} to be None, 'first', or a mapping from columns of categories to a level of each."
        )
    drop = named("drop", given)
    chosen("drop", list(drop), levels)
    if empty := [name for name, level in drop.items() if not label_text(level)]:
        raise InvalidArgument(f"drop names no level of {', '.join(map(repr, empty))}.")
    return drop
