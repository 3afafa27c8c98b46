"""What a seeded bug is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mutant"]


@dataclass(frozen=True)
class Mutant:
    """``changes``: (file in src/dpsco, exact snippet, replacement); ``tests``: node ids, a few fast ones."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]
