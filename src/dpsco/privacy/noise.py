"""Gaussian noise as a pure function of (key, row): AES counter mode, float64, nothing shared, nothing global.

    run key  = KDF(master key, digest of the run)        256 bits; another plan, another noise
    segment  = AES-128-CTR under KDF(run key, row, segment number), 2^16 coordinates each

Guarantee: ``normals(key, row, size)`` is the same in every process, for any number of threads and in
whatever pieces it is drawn; numpy's global state is neither read nor written.
Cost: one normal costs about what PCG64 asks for it; a key derivation per 65,536 coordinates.
"""

from __future__ import annotations

import hmac
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import numpy as np

from dpsco.errors import InvalidArgument
from dpsco.values import Array

__all__ = ["KEY_BYTES", "NOISE_SUPPORT", "SEGMENT", "check_key", "derive", "new_key", "normals"]

KEY_BYTES = 32
SEGMENT = 1 << 16

NOISE_SUPPORT = 12.0
"""Standard deviations that float64 ziggurat normals reach: their tail draws stop at 12.2."""


def new_key() -> bytes:
    """256 fresh bits from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def check_key(key: object) -> bytes:
    """``key`` if it is 32 bytes."""
    if not isinstance(key, (bytes, bytearray)) or len(key) != KEY_BYTES:
        raise InvalidArgument(
            f"Expected key to be {KEY_BYTES} bytes. A fixed key repeats the noise for research and the report then "
            "says "
            "'not private'; leave it out for a fresh one from the operating system."
        )
    return bytes(key)


def derive(key: bytes, *context: bytes | str | int) -> bytes:
    """A 256-bit key for one purpose: HMAC-SHA256(key, context), each part of the context length-prefixed."""
    mac = hmac.new(key, digestmod=sha256)
    for part in context:
        data = part.to_bytes(8, "little") if isinstance(part, int) else part.encode() if isinstance(part, str) else part
        mac.update(len(data).to_bytes(8, "little"))
        mac.update(data)
    return mac.digest()


def normals(key: bytes, row: int, size: int, *, start: int = 0) -> Array:
    """Coordinates ``start .. start + size`` of the standard normal vector number ``row`` under ``key``."""
    out = np.empty(size)

    def fill(segment: int) -> None:
        first, last = max(start, segment * SEGMENT), min(start + size, (segment + 1) * SEGMENT)
        # Ziggurat uses a varying number of random words per normal, so a piece is drawn from its segment's start.
        drawn = _generator(key, row, segment).standard_normal(last - segment * SEGMENT)
        out[first - start : last - start] = drawn[first - segment * SEGMENT :]

    segments = range(start // SEGMENT, -(-(start + size) // SEGMENT))
    if len(segments) < 2:
        for segment in segments:
            fill(segment)
    else:  # drawing leaves the interpreter lock alone, and each segment is a function of its number
        with ThreadPoolExecutor(min(len(segments), os.cpu_count() or 1)) as pool:
            list(pool.map(fill, segments))
    return out


def _generator(key: bytes, row: int, segment: int) -> np.random.Generator:
    from randomgen import AESCounter

    aes_key = int.from_bytes(derive(key, "normals", row, segment)[:16], "little")
    return np.random.Generator(AESCounter(key=aes_key))
