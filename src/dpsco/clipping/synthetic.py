"""Functions of the caller are tried on synthetic rows before the first row: an error that rows decide is an output."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["must_answer_once"]


def must_answer_once(attempts: Iterable[Callable[[], object]]) -> None:
    """Raise the first error if every attempt fails. No row of the data may be part of an attempt."""
    raised: Exception | None = None
    for attempt in attempts:
        try:
            attempt()
        except Exception as error:  # an error on a synthetic row is public
            raised = raised or error
        else:
            return
    if raised is not None:
        raise raised from None
