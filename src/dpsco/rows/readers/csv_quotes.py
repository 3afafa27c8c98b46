"""Where rows of CSV text end: at the line end of its header, outside of quotes, and nowhere else.

    x,note,y LF            the lines of this file end in LF (or CR LF)
    1,a CR b,0 LF          a CR that no LF follows is a letter of its cell: not every writer quotes it
    7,"oops,1 LF           a quote opens a cell here,
    8,fine,0 LF
    9,"x, y",1 LF          which ends at the quote before x: one row, and those behind it move up

Arrow ends a row at each of CR, LF and CR LF. So line ends of the other kind, outside of quotes, become blanks before it
reads the text: no cell makes rows. In a file whose header ends in CR this holds for each LF.

A quoted cell of several lines must end where a cell ends. No writer that escapes quotes makes another one. A cell that
ends there by chance cannot be told from text of several lines.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["LineEnd", "LongRow", "OpenQuotes", "blank_of", "clean_rows"]

LineEnd = Literal[b"\n", b"\r"]
_QUOTE, _LF, _CR = b'"\n\r'


class LongRow(OSError):
    """A row is longer than a block."""


def blank_of(delimiter: str) -> bytes:
    """Return the letter that stands for a line end inside a cell: a blank, and one that hardly any text has.

    Two ids that differ in it stay two ids.
    """
    return b"\v" if delimiter != "\v" else b"\f"


def clean_rows(text: bytes, delimiter: str, end: LineEnd, *, at_start: int | None = None) -> tuple[int, bytes]:
    """Return the place behind the last row that ends in ``text``, and the text with blanks for other line ends so far.

    A line end lies inside quotes if an odd number of quotes stands before it. That holds where quotes are clean: each
    opens at the start of a cell, is doubled inside of one, or ends one. The place is 0 if no row ends or some quote of
    these rows is not clean. ``text`` begins outside of quotes; a quote at the place ``at_start`` begins a cell.
    """
    cut = text.rfind(end) + 1
    quotes = np.empty(0, dtype=np.int64)
    if b'"' in text:
        letters = np.frombuffer(text, dtype=np.uint8)
        quotes = np.flatnonzero(letters == _QUOTE)
        if np.searchsorted(quotes, cut) % 2:
            lines = np.flatnonzero(letters == end[0])
            whole = lines[np.searchsorted(quotes, lines) % 2 == 0]
            cut = int(whole[-1]) + 1 if len(whole) else 0
        quotes = quotes[: np.searchsorted(quotes, cut)]
    mended = _blanked(text, cut, quotes, end, blank_of(delimiter))
    ends = (*delimiter.encode(), *end, _CR)
    clean = not len(quotes) or _clean(np.frombuffer(mended, dtype=np.uint8), quotes, ends, at_start)
    return (cut, mended) if clean else (0, text)


def _blanked(text: bytes, cut: int, quotes: NDArray[np.int64], end: LineEnd, blank: bytes) -> bytes:
    """Return the text with blanks for line ends of the other kind before ``cut`` that lie outside of quotes."""
    other = b"\r" if end == b"\n" else b"\n"
    if text.find(other, 0, cut) < 0:
        return text
    letters = np.frombuffer(text, dtype=np.uint8)
    found = letters[:cut] == other[0]
    if end == b"\n":
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
    """Takes the blocks of a file in order, whatever its quotes are.

    Parameters
    ----------
    delimiter : str
        Separator of the cells.
    end : bytes
        What ends a line: LF (also behind a CR), or CR.
    longest : int, optional
        Bytes of the longest row, with its line end.

    Guarantee: whether a row is too long depends on its own bytes, and not on where blocks end.
    Cost: nothing for blocks without a quote, a count where all quotes are clean, else a regular expression over the
    block.
    """

    def __init__(self, delimiter: str, end: LineEnd = b"\n", longest: int | None = None) -> None:
        self._delimiter, self._end, self._blank = delimiter, end, blank_of(delimiter)
        self._longest, self._open = longest, 0
        ends = b"[" + re.escape(delimiter.encode()) + end + b"]"
        self._cell = re.compile(ends + rb"\"([^\"]*+(?:\"\"[^\"]*+)*+)(?:(\")|\Z)")
        self._cell_end = re.compile(ends + rb"|\r\n" if end == b"\n" else ends)
        self._other = re.compile(rb"\r(?!\n)" if end == b"\n" else rb"\n")
        self._kept: bytes = end
        """What is left of the blocks before: it begins outside of quotes, and with no quote."""

    def mended(self, block: bytes) -> bytes:
        """Return the next bytes of the file with blanks for other line ends outside of quotes.

        Raises ``OSError`` if the bytes end a cell of several lines in another cell, ``LongRow`` if a row is too long. A
        block ends between CR and LF only at the end of the file.
        """
        text, start = self._kept + block, len(self._kept)
        if b'"' not in text:
            text = text[:start] + self._other.sub(self._blank, block)
            self._kept = text[-1:]
            self._measure(np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == self._end[0]), len(block))
            return text[start:]
        other = np.array([found.start() for found in self._other.finditer(text)], dtype=np.int64)
        first = 0 if len(other) else max(0, clean_rows(text, self._delimiter, self._end)[0] - 1)
        spans = self._quoted(text, first)
        self._measure(self._row_ends(text, start, first, spans) - start, len(block))
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
        return text[start:]

    def finish(self) -> None:
        """Raise ``OSError`` if the file ends inside of quotes: Arrow would make one cell of all rows behind them."""
        found = self._cell.match(self._kept)
        if found is not None and not found[2]:
            raise OSError("A quoted cell does not end.")

    def _row_ends(self, text: bytes, start: int, first: int, spans: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the line ends from ``start`` on that end a row; quotes before ``first`` are clean."""
        letters = np.frombuffer(text, dtype=np.uint8)
        ends = start + np.flatnonzero(letters[start:] == self._end[0])
        quotes = np.flatnonzero(letters[:first] == _QUOTE)
        clean = np.searchsorted(quotes, ends) % 2 == 0
        place = np.searchsorted(spans[:, 0], ends)  # the letter before a quoted cell may end a row
        outside = ends >= np.append(0, spans[:, 1])[place]
        return ends[np.where(ends < first, clean, outside)]

    def _measure(self, ends: NDArray[np.int64], size: int) -> None:
        """Raise ``LongRow`` if a row is too long that ends at one of the places, or that goes on behind the block."""
        edges = np.concatenate([[-1 - self._open], ends, [size - 1]])
        if self._longest is not None and np.any(np.diff(edges) > self._longest):
            raise LongRow
        self._open = int(size - 1 - edges[-2])

    def _quoted(self, text: bytes, first: int) -> NDArray[np.int64]:
        """Return where quoted cells begin, with the letter before, and where they end."""
        spans = []
        for found in self._cell.finditer(text, first):
            spans.append(found.span())
            if found.end() < len(text) and self._end in found[1] and not self._cell_end.match(text, found.end()):
                raise OSError("A quoted cell of several lines ends in the middle of another cell.")
        return np.array(spans, dtype=np.int64).reshape(-1, 2)
