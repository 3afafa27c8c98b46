"""Sums and hashes of long vectors: the same bits on every code path."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest

from dpsco.release.long_vectors import combined, digests


@pytest.mark.parametrize("size", [1, 2, 1024, 1025, 40_000, 100_003])
@pytest.mark.parametrize("terms", [1, 2, 3, 4, 5, 8, 11])
def test_terms_are_added_in_their_order(size: int, terms: int) -> None:
    import numba  # noqa: F401  compiled loops are used where the compiler is loaded

    rng = np.random.default_rng(size + terms)
    weights, vectors = rng.normal(size=terms), tuple(rng.normal(size=size) for _ in range(terms))
    expected = weights[0] * vectors[0]
    for weight, vector in zip(weights[1:], vectors[1:], strict=True):
        expected = expected + weight * vector
    found = combined(weights, vectors)
    assert np.array_equal(found, expected) if size > 1 else np.allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize("size", [2_000, 70_000])
def test_compiled_or_not_the_bits_are_the_same(size: int) -> None:
    program = (
        "import sys, hashlib, numpy as np\n"
        "if sys.argv[1] == 'compiled': import numba\n"
        "from dpsco.release.long_vectors import combined\n"
        "rng = np.random.default_rng(0)\n"
        f"z = tuple(rng.normal(size={size}) for _ in range(11))\n"
        "print(hashlib.sha256(combined(rng.normal(size=11), z).tobytes()).hexdigest(), 'numba' in sys.modules)\n"
    )
    found = [
        subprocess.run([sys.executable, "-c", program, way], capture_output=True, text=True, check=True).stdout.split()
        for way in ("compiled", "plain")
    ]
    assert [loaded for _, loaded in found] == ["True", "False"]
    assert found[0][0] == found[1][0]


@pytest.mark.parametrize("size", [0, 3, 50_000])
def test_digests_are_those_of_the_bytes(size: int) -> None:
    vectors = [np.arange(size) + k for k in range(3)] + [np.arange(2.0 * size)[::2]]
    assert digests(*vectors) == [sha256(vector.tobytes()).digest() for vector in vectors]
