"""Operations on long p-vectors, in threads: weighted sums and hashes.

Guarantee: bits do not depend on the number of threads or on whether the loop is compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from dpsco.parallel import available_threads, for_each
from dpsco.query import Array

__all__ = ["combined", "digests"]

_SHORT = 1 << 10
_LONG = 1 << 15
_BLOCK = 1 << 15
"""Entries that stay in the cache while terms are added."""


def combined(weights: Array, vectors: Sequence[Array]) -> Array:
    """Compute sum_i weights[i] vectors[i], adding one term after the other.

    Vectors that are not short use a compiled loop that adds four terms at a time, if numba is already loaded.
    """
    # Short vectors in one call: np.add.reduce adds rows in order too, except for a single column.
    if 1 < vectors[0].size <= _SHORT:
        terms = np.array(vectors)
        terms *= weights[:, None]
        return np.asarray(np.add.reduce(terms, axis=0))
    out = np.empty_like(vectors[0])
    fours = len(vectors) // 4 * 4 if len(out) > _SHORT and "numba" in sys.modules else 0
    parts = _parts(len(out), whole=bool(fours))
    if len(parts) == 1:
        _combine(weights, vectors, fours, out)
    else:
        for_each(lambda part: _combine(weights, [z[part] for z in vectors], fours, out[part]), parts)
    return out


def _parts(size: int, *, whole: bool) -> list[slice]:
    """Return blocks that fit into the cache; for the compiled loop all of a vector, or one part per thread if long."""
    threads = available_threads() if size >= _LONG else 1
    block = -(-size // threads) if whole else _BLOCK
    return [slice(start, min(start + block, size)) for start in range(0, size, block)]


def _combine(weights: Array, vectors: Sequence[Array], fours: int, out: Array) -> None:
    """Write the sum to ``out``: its last ``fours`` terms in the compiled loop."""
    few = len(vectors) - fours
    if few:
        np.multiply(weights[0], vectors[0], out=out)
        term = np.empty_like(out) if few > 1 else out
        for weight, z in zip(weights[1:few], vectors[1:few], strict=True):
            out += np.multiply(weight, z, out=term)
    if fours:
        from dpsco.release.long_vectors_compiled import add_four

        for k in range(few, len(vectors), 4):
            add_four(weights[k : k + 4], *vectors[k : k + 4], k == 0, out)


def digests(*vectors: Array) -> list[bytes]:
    """Return the SHA-256 of each vector's bytes."""
    if max(map(len, vectors)) < _LONG:
        return list(map(_digest, vectors))
    found = [b""] * len(vectors)

    def find(k: int) -> None:
        found[k] = _digest(vectors[k])

    for_each(find, range(len(vectors)))  # hashing releases the interpreter lock
    return found


def _digest(vector: Array) -> bytes:
    return sha256(np.ascontiguousarray(vector).data).digest()
