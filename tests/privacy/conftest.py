"""The one place that adds up false alarms: every statistical test draws its alpha from ``false_alarms``.

Tests use fresh keys from the operating system, so a failure by chance is possible; the total over a run, slow
suite included, is kept below ``LIMIT``. A failing test prints its numbers: run it once more, chance does not repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

LIMIT = 1e-4


@pytest.fixture(scope="session")
def false_alarms() -> Iterator[Callable[[float], float]]:
    """``false_alarms(alpha)`` books alpha and returns it; more than LIMIT in total is an error."""
    booked: list[float] = []

    def book(alpha: float) -> float:
        booked.append(alpha)
        total = sum(booked)
        if total > LIMIT:
            raise RuntimeError(f"The statistical tests book {total:.2g} > {LIMIT:g}: lower their alphas.")
        return alpha

    return book
