"""libsvm text, ``label index:value index:value ...`` a line, indices from 1, as CSR chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.rows.readers.source import MatrixSource, damaged
from dpsco.rows.readers.stamps import Stamps

__all__ = ["LibsvmSource"]

BLOCK_BYTES = 1 << 20
LONGEST_TOKEN = 64

_GARBLED = (
    "has lines that are not 'label index:value index:value ...': it is damaged or cut short. Repair it, or write it "
    "again."
)


class LibsvmSource(MatrixSource):
    """Sparse rows. Comments are not supported.

    A row counts as a zero row if an index lies beyond the declared width or is not whole, or if a label, an index or a
    value is no number. So does a line of blanks: no row can leave itself out and move the rows behind it. A line that
    is not ``label index:value ...`` is refused: a file that was cut ends in one.
    """

    width = None
    sparse = True

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths, self._stamps = tuple(paths), Stamps(paths)

    def count(self) -> int:
        """Return the number of rows."""
        return sum(len(_lines(block)) for _, block in self._blocks())

    def read(self, width: int) -> Iterator[tuple[Any, Any]]:
        """Yield the rows, chunk by chunk."""
        for path, block in self._blocks():
            try:
                chunk = _parse(block, width)
            except (ValueError, OverflowError):
                damaged(path, _GARBLED)
            if len(chunk[1]):
                yield chunk

    def _blocks(self) -> Iterator[tuple[Path, bytes]]:
        """Whole lines, about a megabyte at a time."""
        for path in self._paths:
            try:
                with path.open("rb") as file:
                    while lines := file.readlines(BLOCK_BYTES):
                        self._stamps.check(path)
                        yield path, b"".join(lines)
            except OSError:
                damaged(path, "cannot be read. Check the path.")


def _lines(block: bytes) -> list[bytes]:
    """Return the lines of a block: one per row."""
    return block.removesuffix(b"\n").split(b"\n")


def _parse(block: bytes, width: int) -> tuple[Any, Any]:
    from scipy.sparse import csr_matrix

    lines = [line if line.strip() else b"nan" for line in _lines(block)]
    entries = np.array([line.count(b":") for line in lines], dtype=np.int64)
    by_line = [line.replace(b":", b" ").split() for line in lines]
    tokens = [token for line in by_line for token in line]
    edges = np.concatenate([[0], np.cumsum(2 * entries + 1)])
    if (
        any(line.lstrip()[:1] in b":#" or b"#" in line for line in lines)
        or [len(line) for line in by_line] != (2 * entries + 1).tolist()
    ):  # line by line: a token too many may not become the next row's label
        raise ValueError
    values = _values(tokens)
    is_label = np.zeros(len(values), dtype=bool)
    is_label[edges[:-1]] = True
    labels, pairs = values[is_label], values[~is_label].reshape(-1, 2)
    index = pairs[:, 0]
    row = np.repeat(np.arange(len(lines)), entries)
    inside = (index >= 1) & (index <= width) & (index == np.floor(index))
    labels[row[~inside]] = np.nan
    counts = np.bincount(row[inside], minlength=len(lines))
    place = (np.concatenate([[0], np.cumsum(counts)]), (index[inside] - 1).astype(np.int32), pairs[inside, 1])
    matrix = csr_matrix((place[2], place[1], place[0]), shape=(len(lines), width))
    return matrix, labels


def _values(tokens: list[bytes]) -> NDArray[np.float64]:
    """Return each token as a number, NaN where it is none; one that is none changes no other."""
    short = [token if len(token) <= LONGEST_TOKEN else b"nan" for token in tokens]  # all take the room of the longest
    with np.errstate(all="ignore"):  # a warning that depends on a row is an output
        try:
            return np.array(short, dtype="S").astype(np.float64)
        except ValueError:
            return np.array([_value(token) for token in short])


def _value(token: bytes) -> float:
    try:
        return float(np.array([token], dtype="S").astype(np.float64)[0])
    except ValueError:
        return float("nan")
