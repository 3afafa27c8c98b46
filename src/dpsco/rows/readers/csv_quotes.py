"""Quotes of CSV text that the writer did not escape: they would join rows.

    7,"oops,1            a quote opens a cell here,
    8,fine,0
    9,"x, y",1           which ends at the quote before x: one row, and those behind it move up

A quoted cell of several lines must end where a cell ends. No writer that escapes quotes makes another one. A cell that
ends there by chance cannot be told from text of several lines.
"""

from __future__ import annotations

import re

import numpy as np

__all__ = ["OpenQuotes"]

_QUOTE, _LF, _CR = b'"\n\r'


class OpenQuotes:
    """Looks at the blocks of a file in order.

    Parameters
    ----------
    delimiter : str
        Separator of the cells.

    Cost: nothing for blocks without a quote, a count where each line has an even number of them, else a regular
    expression over the block.
    """

    def __init__(self, delimiter: str) -> None:
        ends = re.escape(delimiter.encode()) + rb"\r\n"
        self._cell = re.compile(rb"[" + ends + rb"]\"([^\"]*+(?:\"\"[^\"]*+)*+)(?:\"([^" + ends + rb"])?|\Z)")
        self._kept = b"\n"
        """What is left of the blocks before: it begins outside of quotes."""

    def look(self, block: bytes) -> None:
        """Take the next bytes of the file; raise ``OSError`` if they end a cell of several lines in another cell."""
        if b'"' not in block and b'"' not in self._kept:
            self._kept = block[-1:] or self._kept
            return
        text = self._kept + block
        self._kept = text[self._even(text) or self._parsed(text) :]

    def _even(self, text: bytes) -> int:
        """Return the place of the last line end if no line has an odd number of quotes, else 0."""
        letters = np.frombuffer(text, dtype=np.uint8)
        quotes, ends = np.flatnonzero(letters == _QUOTE), np.flatnonzero((letters == _LF) | (letters == _CR))
        return 0 if np.any(np.searchsorted(quotes, ends) % 2) or not len(ends) else int(ends[-1])

    def _parsed(self, text: bytes) -> int:
        """Return the place of the last quoted cell if the next block may go on with it, else of the last letter."""
        for found in self._cell.finditer(text):
            if found.end() == len(text):
                return found.start()
            if found[2] and (b"\n" in found[1] or b"\r" in found[1]):
                raise OSError("A quoted cell of several lines ends in the middle of another cell.")
        return len(text) - 1
