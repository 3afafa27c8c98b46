"""Errors and argument checks. A message gives ``name=value``, what was expected, why, and what to do.

Guarantee: no message contains a data value, because an error text is an output.
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
    "IntervalError",
    "InvalidArgument",
    "LedgerError",
    "SecondPassError",
    "one_of",
    "positive",
    "positive_integer",
]


class DpscoError(Exception):
    """Base class of the library's errors."""


class InvalidArgument(DpscoError, ValueError):
    """A public argument is outside its range. No privacy budget has been spent."""


class DataError(DpscoError, ValueError):
    """The data do not fit the plan: width, labels, values that are not finite, or no rows."""


class SecondPassError(DpscoError, RuntimeError):
    """A stream was opened twice. A plan covers one pass."""


class HorizonError(DpscoError, RuntimeError):
    """More rounds were requested than the plan covers."""


class IntervalError(DpscoError, RuntimeError):
    """Released values do not support standard errors or intervals. The message gives the reason."""


class LedgerError(DpscoError, RuntimeError):
    """A release would use one noise value twice."""


class CheckpointError(DpscoError, RuntimeError):
    """A checkpoint is missing, damaged, locked, or belongs to another run."""


class AccountError(DpscoError, RuntimeError):
    """A run would exceed the limit of its data set's privacy account."""


class ClusterError(DpscoError, RuntimeError):
    """The cluster cannot continue. Released rounds are kept."""


class ExtraMissing(DpscoError, ImportError):
    """An optional dependency is not installed."""


def positive(name: str, value: Any, why: str, *, infinite: bool = False) -> float:
    """Return ``value`` as a float if it is a number > 0 (finite unless ``infinite``).

    Parameters
    ----------
    name : str
        Name of the argument, for the message.
    value : object
        The argument.
    why : str
        What the argument means, for the message.
    infinite : bool
        Whether infinity is allowed.

    Raises
    ------
    InvalidArgument
        If it is not such a number; booleans and strings are not numbers.
    """
    number = _number(name, value, why)
    if not number > 0 or (number == float("inf") and not infinite):
        bound = "> 0" if infinite else "> 0 and finite"
        raise InvalidArgument(f"Expected {name}={value!r} to be {bound}. {why}")
    return number


def positive_integer(name: str, value: Any, why: str) -> int:
    """Return ``value`` as an int if it is a whole number >= 1 (``1e6`` is), else raise InvalidArgument."""
    number = _number(name, value, why)
    if number != number or number in (float("inf"), float("-inf")) or number != int(number) or number < 1:
        raise InvalidArgument(f"Expected {name}={value!r} to be a whole number >= 1. {why}")
    return int(value)


def one_of(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``, else raise InvalidArgument with the list of choices."""
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
