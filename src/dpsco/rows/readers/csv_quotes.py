"""Where rows of CSV text end: at an LF, also behind a CR, outside of quotes, and nowhere else.

    x,note,y LF
    1,a CR b,0 LF          a CR that no LF follows is a letter of its cell: not every writer quotes it
    7,"oops,1 LF           a quote opens a cell here,
    8,fine,0 LF
    9,"x, y",1 LF          which ends at the quote before x: one row, and those behind it move up

Arrow ends a row at each of CR, LF and CR LF. So a CR outside of quotes that no LF follows becomes a blank before it
reads the text: no cell makes rows. Where rows end is decided here, and Arrow gets whole rows. Its own search for the
end of a row depends on where blocks end, if a quote stands in the middle of a cell.

A quoted cell of several lines must end where a cell ends. No writer that escapes quotes makes another one. A cell that
ends there by chance cannot be told from text of several lines.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

__all__ = ["LongRow", "OpenQuotes", "blank_of", "clean_rows"]

_QUOTE, _LF, _CR = b'"\n\r'
_LONE = re.compile(rb"\r(?!\n)")


class LongRow(OSError):
    """A row is longer than a block."""


def blank_of(delimiter: str) -> bytes:
    """Return the letter that stands for a line end inside a cell: a blank, and one that hardly any text has.

    Two ids that differ in it stay two ids.
    """
    return b"\v" if delimiter != "\v" else b"\f"


def clean_rows(text: bytes, delimiter: str, *, at_start: int | None = None) -> tuple[int, bytes]:
    """Return the place behind the last row that ends in ``text``, and the text with blanks for CRs of cells so far.

    A line end lies inside quotes if an odd number of quotes stands before it. That holds where quotes are clean: each
    opens at the start of a cell, is doubled inside of one, or ends one. The place is 0 if no row ends or some quote of
    these rows is not clean. ``text`` begins outside of quotes; a quote at the place ``at_start`` begins a cell.
    """
    cut = text.rfind(b"\n") + 1
    quotes = np.empty(0, dtype=np.int64)
    if b'"' in text:
        letters = np.frombuffer(text, dtype=np.uint8)
        quotes = np.flatnonzero(letters == _QUOTE)
        if np.searchsorted(quotes, cut) % 2:
            lines = np.flatnonzero(letters == _LF)
            whole = lines[np.searchsorted(quotes, lines) % 2 == 0]
            cut = int(whole[-1]) + 1 if len(whole) else 0
        quotes = quotes[: np.searchsorted(quotes, cut)]
    mended = _blanked(text, cut, quotes, blank_of(delimiter))
    ends = (*delimiter.encode(), _LF, _CR)
    clean = not len(quotes) or _clean(np.frombuffer(mended, dtype=np.uint8), quotes, ends, at_start)
    return (cut, mended) if clean else (0, text)


def _blanked(text: bytes, cut: int, quotes: NDArray[np.int64], blank: bytes) -> bytes:
    """Return the text with blanks for each CR before ``cut`` outside of quotes that no LF follows."""
    if text.find(b"\r", 0, cut) < 0:
        return text
    letters = np.frombuffer(text, dtype=np.uint8)
    found = letters[:cut] == _CR
    found[:-1] &= letters[1:cut] != _LF  # the last letter before the cut is an LF
    if not found.any():
        return text
    lone, letters = np.flatnonzero(found), letters.copy()
    letters[lone[np.searchsorted(quotes, lone) % 2 == 0]] = blank[0]
    return letters.tobytes()


def _clean(letters: NDArray[np.uint8], quotes: NDArray[np.int64], ends: tuple[int, ...], at_start: int | None) -> bool:
    """Return whether the quotes open a cell, are doubled or end a cell, by turns."""
    before, behind = letters[quotes[::2] - 1], letters[quotes[1::2] + 1]  # a line end is behind the last one
    doubled = np.zeros(len(quotes) // 2 + 1, dtype=bool)
    doubled[1:-1] = quotes[2::2] == quotes[1:-1:2] + 1
    opens = np.isin(before, ends) | doubled[:-1]
    if quotes[0] == 0 or quotes[0] == at_start:
        opens[0] = quotes[0] == at_start
    return bool(np.all(opens) and np.all(np.isin(behind, ends) | doubled[1:]))


class OpenQuotes:
    """Takes the blocks of a file in order, whatever its quotes are, and gives whole rows.

    Parameters
    ----------
    delimiter : str
        Separator of the cells.
    longest : int, optional
        Bytes of the longest row, with its line end.

    Guarantee: where a row ends, and whether it is too long, depends on its own bytes and not on where blocks end.
    Cost: nothing for blocks without a quote, a count where all quotes are clean, else a regular expression over the
    block.
    """

    def __init__(self, delimiter: str, longest: int | None = None) -> None:
        self._delimiter, self._blank = delimiter, blank_of(delimiter)
        self._longest = longest
        ends = b"[" + re.escape(delimiter.encode()) + b"\n]"
        self._cell = re.compile(ends + rb"\"([^\"]*+(?:\"\"[^\"]*+)*+)(?:(\")|\Z)")
        self._cell_end = re.compile(ends + rb"|\r\n")
        self._kept = b"\n"
        """What is left of the blocks before: it begins outside of quotes, and with no quote."""
        self._held = b""
        """A CR at the end of the last block."""
        self._row = b""
        """The beginning of a row that ends in a later block."""

    def rows(self, block: bytes) -> bytes:
        """Return the rows that end in the next bytes of the file, with a blank for each CR of a cell.

        Raises ``OSError`` if the bytes end a cell of several lines in another cell, ``LongRow`` if a row is too long.
        """
        block = self._held + block
        whole = len(block) - block.endswith(b"\r")  # the next block may begin with the LF of this CR
        self._held = block[whole:]
        return self._ended(block[:whole])

    def _ended(self, block: bytes) -> bytes:
        if not block:
            return b""
        text, ends = self._mended(block)
        self._measure(ends, len(block))
        cut = int(ends[-1]) + 1 if len(ends) else 0
        whole = self._row + text[:cut] if cut else b""
        self._row = text[cut:] if cut else self._row + text
        return whole

    def rest(self) -> bytes:
        """Return the last row of the file, if no line end is behind it.

        Raises ``OSError`` if the file ends inside of quotes: Arrow would make one cell of all rows behind them.
        """
        self._ended(self._held)
        found = self._cell.match(self._kept)
        if found is not None and not found[2]:
            raise OSError("A quoted cell does not end.")
        return self._row

    def _mended(self, block: bytes) -> tuple[bytes, NDArray[np.int64]]:
        """Return the block with blanks for each CR of a cell, and its line ends that end a row."""
        text, start = self._kept + block, len(self._kept)
        if b'"' not in text:
            block = _LONE.sub(self._blank, block)
            self._kept = text[-1:]
            return block, np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == _LF)
        other = np.array([found.start() for found in _LONE.finditer(text)], dtype=np.int64)
        first = 0 if len(other) else max(0, clean_rows(text, self._delimiter)[0] - 1)
        spans = self._quoted(text, first)
        ends = self._row_ends(text, start, first, spans) - start
        if len(other):
            place = np.searchsorted(spans[:, 0], other, side="right")
            inside = other < np.append(0, spans[:, 1])[place]
            letters = np.frombuffer(text, dtype=np.uint8).copy()
            letters[other[~inside]] = self._blank[0]
            text = letters.tobytes()
        if len(spans) and spans[-1, 1] == len(text):
            self._kept = text[spans[-1, 0] :]  # the next block may go on with it
        else:
            self._kept = text[-1:] if text[-1] != _QUOTE else b"x"  # a quote in the middle of a cell is a letter
        return text[start:], ends

    def _row_ends(self, text: bytes, start: int, first: int, spans: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the line ends from ``start`` on that end a row; quotes before ``first`` are clean."""
        letters = np.frombuffer(text, dtype=np.uint8)
        ends = start + np.flatnonzero(letters[start:] == _LF)
        quotes = np.flatnonzero(letters[:first] == _QUOTE)
        clean = np.searchsorted(quotes, ends) % 2 == 0
        place = np.searchsorted(spans[:, 0], ends)  # the letter before a quoted cell may end a row
        outside = ends >= np.append(0, spans[:, 1])[place]
        return ends[np.where(ends < first, clean, outside)]

    def _measure(self, ends: NDArray[np.int64], size: int) -> None:
        """Raise ``LongRow`` if a row is too long that ends at one of the places, or that goes on behind the block."""
        edges = np.concatenate([[-1 - len(self._row)], ends, [size - 1]])
        if self._longest is not None and np.any(np.diff(edges) > self._longest):
            raise LongRow

    def _quoted(self, text: bytes, first: int) -> NDArray[np.int64]:
        """Return where quoted cells begin, with the letter before, and where they end."""
        spans = []
        for found in self._cell.finditer(text, first):
            spans.append(found.span())
            if found.end() < len(text) and b"\n" in found[1] and not self._cell_end.match(text, found.end()):
                raise OSError("A quoted cell of several lines ends in the middle of another cell.")
        return np.array(spans, dtype=np.int64).reshape(-1, 2)
