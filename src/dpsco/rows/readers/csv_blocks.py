"""CSV text in blocks of whole rows, which threads may parse side by side.

    1,"Lyon",0 LF 2,"two LF lines",1 LF 3,"Ni       cut behind the last line end that is not inside quotes

A line end lies inside quotes if an odd number of quotes stands before it. That holds where quotes are clean: each opens
at the start of a cell, is doubled inside of one, or ends one. A block with other quotes is not cut here: the rest of
the file then goes to a reader that parses it from one end to the other.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

__all__ = ["LongRow", "WholeRows"]

_QUOTE, _LF, _CR = b'"\n\r'


class LongRow(OSError):
    """A row is longer than a block."""


class WholeRows:
    """Blocks of whole rows of a file, in order, as long as its quotes are clean.

    Parameters
    ----------
    raw : binary file
        At the start of a row.
    delimiter : str
        Separator of the cells.
    size : int
        Bytes that are read at once; also the longest row.

    Guarantee: joined, the blocks and ``rest`` are the bytes that were read. Every block but the first begins with a
    line end that is not in the file: Arrow drops a mark of byte order at the start of its input, and such letters at
    the start of a row are part of its first cell.
    """

    def __init__(self, raw: BinaryIO, delimiter: str, size: int) -> None:
        self._raw, self._size = raw, size
        self._ends = (*delimiter.encode(), _LF, _CR)
        self._plain = len(self._ends) == 3
        self.rest = b""
        """Bytes that were read and not handed out; to be followed by those that ``raw`` has left."""

    def __iter__(self) -> Iterator[memoryview]:
        while block := self._raw.read(self._size):
            text = self.rest + block
            cut = self._cut(text) if self._plain else 0
            if not cut:
                self.rest = text
                return
            self.rest = b"\n" + text[cut:]
            yield memoryview(text)[:cut]

    def _cut(self, text: bytes) -> int:
        """Return the place behind the last row that ends in ``text``; 0 if there is none or quotes are not clean."""
        cut = text.rfind(b"\n") + 1
        quoted = b'"' in text
        if quoted:
            letters = np.frombuffer(text, dtype=np.uint8)
            quotes = np.flatnonzero(letters == _QUOTE)
            if np.searchsorted(quotes, cut) % 2:
                lines = np.flatnonzero(letters == _LF)
                whole = lines[np.searchsorted(quotes, lines) % 2 == 0]
                cut = int(whole[-1]) + 1 if len(whole) else 0
            if not self._clean(letters, quotes[: np.searchsorted(quotes, cut)]):
                return 0
        if cut and len(text) > self._size:
            self._check_first(text, quoted)
        return cut if cut > 1 else 0

    def _clean(self, letters: NDArray[np.uint8], quotes: NDArray[np.int64]) -> bool:
        """Return whether the quotes open a cell, are doubled or end a cell, by turns."""
        before, behind = letters[quotes[::2] - 1], letters[quotes[1::2] + 1]  # a line end is behind the last one
        doubled = np.zeros(len(quotes) // 2 + 1, dtype=bool)
        doubled[1:-1] = quotes[2::2] == quotes[1:-1:2] + 1
        opens = np.isin(before, self._ends) | doubled[:-1]
        opens[:1] |= quotes[:1] == (3 if letters[:3].tobytes() == BOM_UTF8 else 0)
        return bool(np.all(opens) and np.all(np.isin(behind, self._ends) | doubled[1:]))

    def _check_first(self, text: bytes, quoted: bool) -> None:
        """Raise ``LongRow`` if the row that began in an earlier block is longer than one."""
        end = text.find(b"\n", 1)
        while quoted and text.count(b'"', 0, end) % 2:
            end = text.find(b"\n", end + 1)
        if end > self._size:
            raise LongRow
