"""Combinations of containers and odd cells: which of them the fast suite runs, and what came of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from tests.rows.containers_under_test import ROWS, Unmakeable

PLACES = (0, 13, ROWS - 1)
"""Rows that are made odd, one at a time."""
SHARE = 12
"""The fast suite runs one of so many combinations."""


def in_share(*names: Any) -> bool:
    """Whether a combination is in the part that the fast suite runs: fixed, and spread over all names."""
    return int.from_bytes(hashlib.blake2b(repr(names).encode(), digest_size=4).digest(), "little") % SHARE == 0


class Tally:
    """Counts combinations, and collects those that fail so that all are seen at once."""

    def __init__(self) -> None:
        self.tested = self.unmakeable = 0
        self.failed: list[str] = []

    def run(self, name: str, body: Callable[[], None]) -> None:
        try:
            body()
        except Unmakeable:
            self.unmakeable += 1
            return
        except (Exception, AssertionError) as error:
            self.failed.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        self.tested += 1

    def done(self, record: Any, least: int) -> None:
        record("combinations", self.tested)
        print(f"{self.tested} combinations, {self.unmakeable} more that a container cannot hold")
        assert not self.failed, f"{len(self.failed)} of {self.tested}:\n" + "\n".join(self.failed[:40])
        assert self.tested >= least


EXHAUSTIVE = [pytest.param(False, id="part"), pytest.param(True, id="all", marks=pytest.mark.slow)]
