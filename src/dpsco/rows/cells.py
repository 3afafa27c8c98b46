"""Cells of a table as numbers or as text, each by a rule that looks at that cell alone.

A number is written as ``-12``, ``3.5``, ``.5`` or ``1e-6``, with up to 25 digits on either side of the point and two in
the exponent, blanks around it aside; anything else (``nan``, ``1,000``, nothing) is missing. The rule is a regular
expression that every reader shares, so a cell means the same whichever cells are beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.query import Array

__all__ = ["NUMBER", "Coded", "canonical_text", "coded", "numbers_from_text"]

NUMBER = r"^-?([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,25})([eE][+-]?[0-9]{1,2})?$"
_IS_NUMBER = re.compile(NUMBER)
_LARGEST_EXACT = 2.0**53


@dataclass(frozen=True)
class Coded:
    """A column of text: row i holds ``values[codes[i]]``, or nothing where the code is -1."""

    values: tuple[str, ...]
    codes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> Coded:
        return Coded(self.values, self.codes[rows])


def canonical_text(value: Any) -> str:
    """The text a cell is compared by: blanks off, and numbers in one form, so that 3, 3.0 and "3" are one level.

    >>> canonical_text(" 3.0 "), canonical_text(3), canonical_text(True), canonical_text("Paris ")
    ('3', '3', '1', 'Paris')
    """
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    text = value.strip() if isinstance(value, str) else repr(value.item() if isinstance(value, np.generic) else value)
    if not _IS_NUMBER.match(text):
        return text
    number = float(text)
    return str(int(number)) if number == int(number) and abs(number) < _LARGEST_EXACT else repr(number)


def numbers_from_text(cells: Iterable[str]) -> Array:
    """Each cell as a number, NaN where it is none."""
    stripped = (cell.strip() for cell in cells)
    return np.array([float(cell) if _IS_NUMBER.match(cell) else np.nan for cell in stripped], dtype=np.float64)


def coded(values: Iterable[Any], codes: NDArray[Any]) -> Coded:
    """Codes into ``values`` as codes into their canonical texts; empty text is missing."""
    texts = [canonical_text(value) for value in values]
    distinct = tuple(dict.fromkeys(text for text in texts if text))
    position = {text: code for code, text in enumerate(distinct)}
    table = np.array([position.get(text, -1) for text in texts] + [-1], dtype=np.int64)  # code -1 finds the last
    return Coded(distinct, table[np.asarray(codes, dtype=np.int64)])
