"""Mark 7: one number for (key, step, place), whoever draws it, in however many pieces, threads and processes."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dpsco.release.noise import KEY_BYTES, SEGMENT, Normals, new_key, normals

pytestmark = pytest.mark.slow

STEPS, SIZE = (0, 1, 7, 63, 4095), 3 * SEGMENT + 1234

_PROGRAM = """
import hashlib, os, sys
import numpy as np
key, (size, seed, processors, *steps) = bytes.fromhex(sys.argv[1]), map(int, sys.argv[2:])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])
np.random.seed(seed)
from dpsco.release.noise import normals
for step in steps:
    print(hashlib.sha256(normals(key, step, size).tobytes()).hexdigest())
"""


def test_draws_are_a_function_of_key_and_step(mark_figure: Callable[[int, str], None]) -> None:
    key, compared = new_key(), 0
    whole = {step: normals(key, step, SIZE) for step in STEPS}
    digests = [hashlib.sha256(whole[step].tobytes()).hexdigest() for step in STEPS]

    processors = sorted({1, min(2, len(os.sched_getaffinity(0))), len(os.sched_getaffinity(0))})
    for count, seed in itertools.product(processors, (0, 7)):
        arguments = [key.hex(), *map(str, (SIZE, seed, count, *STEPS))]
        done = subprocess.run([sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, text=True, check=True)
        assert done.stdout.split() == digests
        compared += SIZE * len(STEPS)

    rng, before = np.random.default_rng(7), np.random.get_state()[1].copy()  # noqa: NPY002
    pieces = 0
    with ThreadPoolExecutor(8) as pool:  # eight threads at a time, each with a piece of its own
        for step, cuts in itertools.product(STEPS, (1, 13, 200)):
            edges = sorted({0, SIZE, SEGMENT, *rng.integers(0, SIZE, cuts).tolist()})
            spans = list(itertools.pairwise(edges))
            drawn = pool.map(lambda ab, step=step: normals(key, step, ab[1] - ab[0], start=ab[0]), spans)
            assert np.array_equal(np.concatenate(list(drawn)), whole[step])
            compared, pieces = compared + SIZE, pieces + len(spans)
    kept = Normals(key)  # its ciphers serve row after row, in any order
    for step in (*reversed(STEPS), *STEPS):
        assert np.array_equal(kept(step, SIZE), whole[step])
        assert np.array_equal(kept(step, 100, start=SEGMENT - 50), whole[step][SEGMENT - 50 : SEGMENT + 50])
        compared += SIZE
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert len({*digests}) == len(STEPS)
    mark_figure(
        7,
        f"{compared:,} draws equal over {2 * len(processors)} processes, 1 to {processors[-1]} processors and "
        f"{pieces:,} pieces in 8 threads; keys of {8 * KEY_BYTES} bits",
    )
