"""Gaussian noise as a pure function of (key, row): AES counter mode, float64, no global state.

    run key  = KDF(master key, digest of the run)        256 bits; each plan has its own noise
    segment  = AES-128-CTR under KDF(run key, segment number), 2^16 coordinates each
    row      = the counter's upper 64 bits: 2^64 blocks apart; bits 62 and 63 are set for dither and tails

numpy's ziggurat draws the normals up to ``EDGE``, where its density is right to a few units of the last digit. Beyond,
its 53-bit uniforms leave gaps that grow to tenths of a standard deviation. Tails are therefore drawn again here from
106-bit uniforms: x = -log(u) / EDGE until -2 log(v) > x^2 (Marsaglia 1964).

Guarantee: ``normals(key, row, size)`` is the same in every process, for any number of threads and any partition into
pieces. numpy's global state is neither read nor written. A normal is within ``float_noise.COUPLING`` of the exact
normal with the same quantile.
Cost: a normal takes about as long as with PCG64. There is one cipher per 65,536 coordinates. ``Normals`` reuses ciphers
between rows, because creating one takes as long as thousands of normals.
"""

from __future__ import annotations

import hmac
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import InvalidArgument, LedgerError
from dpsco.fork_safety import forget_in_children
from dpsco.parallel import for_each
from dpsco.query import Array

__all__ = [
    "EDGE",
    "KEY_BYTES",
    "NOISE_SUPPORT",
    "SEGMENT",
    "Normals",
    "begin",
    "bernoulli",
    "check_key",
    "derive",
    "end",
    "new_key",
    "normals",
    "positions",
]

KEY_BYTES = 32
SEGMENT = 1 << 16

EDGE = 3.6541528853610088
"""The point where numpy's ziggurat ends and its tail begins."""

NOISE_SUPPORT = 12.75
"""Number of standard deviations up to which the normals are within ``float_noise.COUPLING`` of exact ones."""

_DITHER, _TAIL = 1 << 62, 1 << 63


def new_key() -> bytes:
    """Return 256 fresh bits from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def check_key(key: object) -> bytes:
    """Return ``key`` if it is 32 bytes, else raise InvalidArgument."""
    if not isinstance(key, (bytes, bytearray)) or len(key) != KEY_BYTES:
        raise InvalidArgument(
            f"Expected key to be {KEY_BYTES} bytes. A fixed key repeats the noise for research, and the report then "
            "says 'not private'; omit it for a fresh key from the operating system."
        )
    return bytes(key)


def derive(key: bytes, *context: bytes | str | int) -> bytes:
    """Derive a 256-bit key for one purpose: HMAC-SHA256(key, context), with length-prefixed parts of the context."""
    return hmac.digest(key, _prefixed(context), "sha256")


def begin(key: bytes, *context: bytes | str | int) -> hmac.HMAC:
    """SECRET: begin ``derive(key, *context, last)``; ``end`` does the rest, in less time than all of it takes."""
    return hmac.new(key, _prefixed(context), "sha256")


def end(begun: hmac.HMAC, last: bytes) -> bytes:
    """Return ``derive(key, *context, last)``, once: it uses ``begun`` up."""
    begun.update(_prefixed((last,)))
    return begun.digest()


def _prefixed(context: Iterable[bytes | str | int]) -> bytes:
    message = b""
    for part in context:
        data = part.to_bytes(8, "little") if isinstance(part, int) else part.encode() if isinstance(part, str) else part
        message += len(data).to_bytes(8, "little") + data
    return message


class Normals:
    """SECRET: standard normal vectors under one key, by row number.

    A draw changes the counter of its cipher, so it takes the cipher out of the pool. Other threads, and the handler of
    a signal that draws inside a draw, use other ciphers. A lock could stay locked after an interrupt.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._unused: dict[int, deque[_Cipher]] = {}  # by segment
        forget_in_children(self)

    def forget(self) -> None:
        """Drop the key in a forked child, so that it draws nothing."""
        self._key = b""
        self._unused = {}

    def __call__(self, row: int, size: int, *, start: int = 0) -> Array:
        """Return coordinates ``start .. start + size`` of vector number ``row``."""
        return self.rows(row, 1, size, start=start)[0]

    def rows(self, first: int, count: int, size: int, *, start: int = 0) -> Array:
        """Return vectors ``first .. first + count``, of shape (count, size): the same as one by one, in less time."""
        out = np.empty((count, size))

        def fill(segment: int) -> None:
            begin, last = max(start, segment * SEGMENT), min(start + size, (segment + 1) * SEGMENT)
            cipher, own = self._cipher(segment), out[:, begin - start : last - start]
            # Ziggurat uses a varying number of random words per normal, so every draw begins at the segment's start.
            before = np.empty((count, begin - segment * SEGMENT))
            for i in range(count):
                generator = cipher.at(first + i)
                if before.size:
                    generator.standard_normal(out=before[i])
                generator.standard_normal(out=own[i])
            _redraw_tails(before, own, cipher, first)
            self._give_back(segment, cipher)

        _each(fill, range(start // SEGMENT, -(-(start + size) // SEGMENT)))
        return out

    def dither(self, row: int, size: int, bits: int) -> NDArray[np.int64]:
        """Return ``size`` independent integers, uniform from -2^(bits-1) to 2^(bits-1) - 1; 0 if ``bits`` is 0."""
        return self.dithers(row, 1, size, bits)[0]

    def dithers(self, first: int, count: int, size: int, bits: int) -> NDArray[np.int64]:
        """Return the dithers of rows ``first .. first + count``, of shape (count, size)."""
        out = np.zeros((count, size), dtype=np.int64)
        kind = np.dtype("<u2" if bits <= 16 else "<u4" if bits <= 32 else "<u8")

        def fill(segment: int) -> None:
            own = out[:, segment * SEGMENT : (segment + 1) * SEGMENT]
            words = np.empty((count, -(-own.shape[1] * kind.itemsize // 8)), "<u8")
            cipher = self._cipher(segment)
            for i in range(count):
                words[i] = cipher.at((first + i) | _DITHER).bit_generator.random_raw(words.shape[1])
            self._give_back(segment, cipher)
            drawn = words.view(kind)[:, : own.shape[1]]
            drawn >>= kind.type(8 * kind.itemsize - bits)
            own[:] = drawn
            own -= 1 << (bits - 1)

        if bits:
            _each(fill, range(-(-size // SEGMENT)))
        return out

    def _cipher(self, segment: int) -> _Cipher:
        """Take a cipher, which nobody else has until it is given back; after an error it is dropped."""
        try:
            return self._unused[segment].pop()
        except (KeyError, IndexError):
            if not self._key:
                raise LedgerError(
                    "This process is a fork of the process that holds the noise key; it draws no noise."
                ) from None
            return _Cipher(derive(self._key, "normals", segment))

    def _give_back(self, segment: int, cipher: _Cipher) -> None:
        self._unused.setdefault(segment, deque()).append(cipher)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("Normals hold the noise key and cannot be pickled or copied.")

    def __repr__(self) -> str:
        return "Normals(<secret>)"


def _each(fill: Callable[[int], None], segments: range) -> None:
    if len(segments) < 2:
        for segment in segments:
            fill(segment)
    else:  # drawing releases the interpreter lock
        for_each(fill, segments)


def _redraw_tails(before: Array, own: Array, cipher: _Cipher, first: int) -> None:
    """Replace the entries of ``own`` beyond ``EDGE``; ``before`` precedes them in the segment and has its own tails."""
    width = own.shape[1]
    far = np.flatnonzero((own > EDGE) | (own < -EDGE)).tolist()
    for i in dict.fromkeys(place // width for place in far):
        magnitudes = _beyond(cipher.at((first + i) | _TAIL))
        for _ in range(int(np.count_nonzero(np.abs(before[i]) > EDGE)) if before.size else 0):
            next(magnitudes)
        for j in (place - i * width for place in far if place // width == i):
            own[i, j] = math.copysign(next(magnitudes), own[i, j])


def _beyond(generator: np.random.Generator) -> Iterator[float]:
    """Yield normals that exceed ``EDGE``."""
    words = _words(generator)
    while True:
        x = _exponential(words) / EDGE
        if 2.0 * _exponential(words) > x * x:
            yield EDGE + x


def _exponential(words: Iterator[int]) -> float:
    """Return -log(u), u a uniform with 106 bits: its relative precision is that of float64 down to 2^-53."""
    high, low = next(words) >> 11, next(words) >> 11
    return -math.log((high + (low + 0.5) * 2.0**-53) * 2.0**-53)


def _words(generator: np.random.Generator) -> Iterator[int]:
    while True:
        yield from generator.bit_generator.random_raw(64).tolist()


class _Cipher:
    """AES in counter mode whose counter can be set to the beginning of any row."""

    def __init__(self, key: bytes) -> None:
        self._generator = _aes(key)
        self._state = self._generator.bit_generator.state

    def at(self, row: int) -> np.random.Generator:
        self._state["s"]["counter"][1::2] = row  # four blocks at a time: four counters, lower word first
        self._generator.bit_generator.state = self._state
        return self._generator


def normals(key: bytes, row: int, size: int, *, start: int = 0) -> Array:
    """Return coordinates ``start .. start + size`` of the standard normal vector number ``row`` under ``key``."""
    return Normals(key)(row, size, start=start)


def bernoulli(key: bytes, row: int, size: int, rate: float) -> NDArray[np.int64]:
    """Return the positions below ``size`` of Poisson sample number ``row`` under ``key``, in order.

    Guarantee: positions are independent, each with a probability of at most ``rate`` and at least ``rate - 2^-53``.
    """
    return np.flatnonzero(_aes(derive(key, "sample", row)).integers(1 << 53, size=size) < int(rate * 2.0**53))


def positions(key: bytes, row: int, part: int, below: int, size: int) -> NDArray[np.int64]:
    """Return ``size`` uniform positions below ``below`` for a randomised solver, a function of (key, row, part)."""
    return _aes(derive(key, "positions", row, part)).integers(below, size=size)


def _aes(key: bytes) -> np.random.Generator:
    from randomgen import AESCounter

    return np.random.Generator(AESCounter(key=int.from_bytes(key[:16], "little")))
