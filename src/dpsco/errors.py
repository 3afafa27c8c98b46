"""Errors in one voice: ``name=value``, what was expected, why it matters, what to do.

No message ever echoes a data value: an error text is an output, and outputs are private or public.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "AccountError",
    "CheckpointError",
    "ClusterError",
    "DataError",
    "DpscoError",
    "ExtraMissing",
    "HorizonError",
    "InvalidArgument",
    "LedgerError",
    "SecondPassError",
    "one_of",
    "positive",
    "positive_integer",
]


class DpscoError(Exception):
    """Base of every error the library raises on purpose."""


class InvalidArgument(DpscoError, ValueError):
    """A public argument is outside its range; nothing has been spent."""


class DataError(DpscoError, ValueError):
    """The data do not fit the plan (width, labels, non-finite values, nothing there)."""


class SecondPassError(DpscoError, RuntimeError):
    """A stream was opened twice. One plan pays for one pass."""


class HorizonError(DpscoError, RuntimeError):
    """More releases were asked for than the plan paid for."""


class LedgerError(DpscoError, RuntimeError):
    """A release would break the rule: one noise value, one release."""


class CheckpointError(DpscoError, RuntimeError):
    """A checkpoint is missing, damaged, locked, or belongs to another run."""


class AccountError(DpscoError, RuntimeError):
    """A run would overdraw the privacy account of its data set."""


class ClusterError(DpscoError, RuntimeError):
    """The cluster cannot go on; what was released is kept."""


class ExtraMissing(DpscoError, ImportError):
    """An optional dependency is not installed."""


def positive(name: str, value: Any, why: str, *, infinite: bool = False) -> float:
    """``value`` as a float if it is a number > 0 (finite unless ``infinite``), else ``InvalidArgument``."""
    number = _number(name, value, why)
    if not number > 0 or (number == float("inf") and not infinite):
        bound = "> 0" if infinite else "> 0 and finite"
        raise InvalidArgument(f"Expected {name}={value!r} to be {bound}. {why}")
    return number


def positive_integer(name: str, value: Any, why: str) -> int:
    """``value`` as an int if it is a whole number >= 1 (``1e6`` counts), else ``InvalidArgument``."""
    number = _number(name, value, why)
    if number != number or number in (float("inf"), float("-inf")) or number != int(number) or number < 1:
        raise InvalidArgument(f"Expected {name}={value!r} to be a whole number >= 1. {why}")
    return int(value)


def one_of(name: str, value: Any, choices: Iterable[str]) -> str:
    """``value`` if it is one of ``choices``, else ``InvalidArgument`` listing them."""
    known = sorted(choices)
    if not isinstance(value, str) or value not in known:
        raise InvalidArgument(f"Unknown {name}={value!r}. Choose one of: {', '.join(known)}.")
    return value


def _number(name: str, value: Any, why: str) -> float:
    if isinstance(value, (bool, str, bytes)):
        raise InvalidArgument(f"Expected {name}={value!r} to be a number. {why}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"Expected {name} to be a number, got {type(value).__name__}. {why}") from None
