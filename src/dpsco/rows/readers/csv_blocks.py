"""CSV text in blocks of whole rows, which threads may parse side by side.

    1,"Lyon",0 LF 2,"two LF lines",1 LF 3,"Ni       cut behind the last line end that is not inside quotes

Lines end in LF, also behind a CR. A block with quotes that are not clean (csv_quotes.py) is not cut here: the rest of
the file then goes to a reader that parses it from one end to the other.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from dpsco.rows.readers.csv_quotes import LongRow, clean_rows

__all__ = ["WholeRows"]


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

    Guarantee: joined, the blocks and ``rest`` are the bytes that were read, but that a CR outside of quotes that no LF
    follows is a blank in the blocks. Every block but the first begins with a line end that is not in the file: Arrow
    drops a mark of byte order at the start of its input, and such letters at the start of a row are part of its first
    cell.
    """

    def __init__(self, raw: BinaryIO, delimiter: str, size: int) -> None:
        self._raw, self._delimiter, self._size = raw, delimiter, size
        self.rest = b""
        """Bytes that were read and not handed out; to be followed by those that ``raw`` has left."""
        self.begun = False
        """Whether a block was handed out: ``rest`` then begins with a line end that is not in the file."""

    def __iter__(self) -> Iterator[memoryview]:
        while block := self._raw.read(self._size):
            text = self.rest + block
            start = 3 if text.startswith(BOM_UTF8) else 0
            cut, mended = clean_rows(text, self._delimiter, at_start=start)
            if cut and len(text) > self._size:
                self._check_first(text)
            if cut <= self.begun:
                self.rest = text
                return
            self.rest, self.begun = b"\n" + text[cut:], True
            yield memoryview(mended)[:cut]
        if self.begun and self.rest == b"\n":
            self.rest = b""

    def _check_first(self, text: bytes) -> None:
        """Raise ``LongRow`` if the row that began in an earlier block is longer than one."""
        end = text.find(b"\n", 1)
        if end >= 0 and text.count(b'"', 0, end) % 2:  # a cell of several lines
            letters = np.frombuffer(text, dtype=np.uint8)
            ends, quotes = (np.flatnonzero(letters == ord(letter)) for letter in '\n"')
            outside = ends[np.searchsorted(quotes, ends) % 2 == 0]
            end = int(outside[1]) if len(outside) > 1 else -1  # the first one is not in the file
        if end < 0 and b'"' not in text:
            end = len(text) - 1
        if end > self._size:
            raise LongRow
