"""The noise source: AES in counter mode, a pure function of (key, row), and Gaussian far into the tails."""

from __future__ import annotations

import functools
import hashlib
import hmac
import itertools
import math
import operator
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from dpsco import InvalidArgument
from dpsco.release.noise import NOISE_SUPPORT, SEGMENT, check_key, derive, new_key, normals

Book = Callable[[float], float]
Note = Callable[[int, str], None]


# --- determinism ------------------------------------------------------------------------------


def test_a_row_is_the_same_however_it_is_cut_into_pieces() -> None:
    key, size = new_key(), SEGMENT + 5000
    whole = normals(key, 3, size)
    rng = np.random.default_rng(0)
    edges = [0, *sorted(rng.integers(0, size, 12).tolist()), SEGMENT - 1, SEGMENT, SEGMENT + 1, size]
    edges.sort()
    pieces = [normals(key, 3, stop - start, start=start) for start, stop in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(pieces), whole)


def test_a_row_is_the_same_in_another_process_with_other_threads_and_another_global_seed() -> None:
    key, size = bytes(range(32)), SEGMENT + 100
    program = (
        "import numpy as np, hashlib; np.random.seed(7); np.random.standard_normal(3)\n"
        "from dpsco.release.noise import normals\n"
        f"print(hashlib.sha256(normals(bytes(range(32)), 5, {size}).tobytes()).hexdigest())"
    )
    expected = hashlib.sha256(normals(key, 5, size).tobytes()).hexdigest()
    for threads in ("1", "2"):
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        output = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, check=True
        ).stdout
        assert output.decode().strip() == expected


def test_numpys_global_state_is_neither_read_nor_written() -> None:
    key = new_key()
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = normals(key, 0, 1000)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    assert np.array_equal(normals(key, 0, 1000), first)


def test_keys_are_256_fresh_bits() -> None:
    keys = {new_key() for _ in range(1000)}
    assert len(keys) == 1000
    assert {len(key) for key in keys} == {32}
    numbers = [int.from_bytes(key, "little") for key in keys]
    ever_set, always_set = functools.reduce(operator.or_, numbers), functools.reduce(operator.and_, numbers)
    assert (ever_set, always_set) == (2**256 - 1, 0)  # every bit is tossed: by chance this fails with 256 2^-999


@pytest.mark.parametrize("key", [b"", bytes(16), bytes(33), "0" * 32, 0, None, [0] * 32])
def test_a_short_or_odd_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidArgument, match="key"):
        check_key(key)


def test_key_row_and_segment_all_change_the_noise() -> None:
    """No two of 3 keys x 40 rows x 2 segments share their first numbers; a repeated stream would share them."""
    starts = [
        normals(key, row, 4, start=segment * SEGMENT).tobytes()
        for key in (bytes(32), bytes(31) + b"\x01", b"\x01" + bytes(31))
        for row in range(40)
        for segment in range(2)
    ]
    assert len(set(starts)) == len(starts)


def test_derived_keys_separate_their_contexts() -> None:
    """Length prefixes: no two ways of cutting the same bytes into parts give the same key."""
    contexts: list[tuple[bytes | str | int, ...]] = [("a", "bc"), ("ab", "c"), ("abc",), ("abc", ""), ("", "abc")]
    assert len({derive(bytes(32), *context) for context in contexts}) == len(contexts)
    mac = hmac.new(bytes(32), digestmod=hashlib.sha256)
    mac.update((1).to_bytes(8, "little") + b"a" + (8).to_bytes(8, "little") + (5).to_bytes(8, "little"))
    assert derive(bytes(32), "a", 5) == mac.digest()


# --- AES, transcribed from FIPS 197 -----------------------------------------------------------


def _double(a: int) -> int:
    return ((a << 1) ^ (0x1B if a & 0x80 else 0)) & 0xFF


def _sbox() -> list[int]:
    box, p, q = [0x63] * 256, 1, 1
    while True:
        p ^= _double(p)
        for shift in (1, 2, 4):
            q ^= (q << shift) & 0xFF
        q ^= 0x09 if q & 0x80 else 0
        box[p] = 0x63
        for turn in range(5):
            box[p] ^= ((q << turn) | (q >> (8 - turn))) & 0xFF
        if p == 1:
            return box


def _aes_128(key: bytes, block: bytes) -> bytes:
    box = _sbox()
    words, constant = [list(key[4 * i : 4 * i + 4]) for i in range(4)], 1
    for i in range(4, 44):
        word = list(words[i - 1])
        if i % 4 == 0:
            word = [box[b] for b in (*word[1:], word[0])]
            word[0] ^= constant
            constant = _double(constant)
        words.append([a ^ b for a, b in zip(words[i - 4], word, strict=True)])
    keys = [functools.reduce(operator.iadd, words[4 * r : 4 * r + 4], []) for r in range(11)]
    state = [a ^ b for a, b in zip(block, keys[0], strict=True)]
    for r in range(1, 11):
        state = [box[b] for b in state]
        state = [state[(i + 4 * (i % 4)) % 16] for i in range(16)]
        if r < 10:
            columns = [state[4 * c : 4 * c + 4] for c in range(4)]
            state = [
                _double(c[i]) ^ _double(c[(i + 1) % 4]) ^ c[(i + 1) % 4] ^ c[(i + 2) % 4] ^ c[(i + 3) % 4]
                for c in columns
                for i in range(4)
            ]
        state = [a ^ b for a, b in zip(state, keys[r], strict=True)]
    return bytes(state)


def test_the_generator_is_aes_128_in_counter_mode_under_the_derived_key() -> None:
    """The words behind the normals, against a transcription of the standard (itself checked on its test vector)."""
    from dpsco.release.noise import Normals

    vector = _aes_128(bytes(range(16)), bytes.fromhex("00112233445566778899aabbccddeeff"))
    assert vector.hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"
    key, row, segment = new_key(), 6, 2
    aes_key = derive(key, "normals", segment)[:16]
    source = Normals(key)
    source(9, 1000, start=segment * SEGMENT)  # a row before, so that the cipher is a used one
    words = source._cipher(segment).at(row).bit_generator.random_raw(16)
    counters = [(row << 64) + count for count in range(8)]
    assert words.tobytes() == b"".join(_aes_128(aes_key, counter.to_bytes(16, "little")) for counter in counters)


def test_two_threads_may_draw_from_one_source() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from dpsco.release.noise import Normals

    key, rows = new_key(), [0, 1] * 20
    source = Normals(key)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda row: source(row, 60_000), rows))
    expected = [normals(key, row, 60_000) for row in (0, 1)]
    assert all(np.array_equal(vector, expected[row]) for row, vector in zip(rows, found, strict=True))


# --- distribution -----------------------------------------------------------------------------


def test_pooled_chi_square_on_1e7_draws_is_within_0_2_percent(false_alarms: Book, mark_figure: Note) -> None:
    """N = 1e7; the mean of z^2 has standard error sqrt(2/N) = 0.045 %, so 0.2 % is 4.47 of them."""
    n = 10_000_000
    false_alarms(2 * stats.norm.sf(0.002 / math.sqrt(2 / n)))
    key = new_key()
    total = math.fsum(float(np.sum(normals(key, row, n // 10) ** 2)) for row in range(10))
    assert abs(total / n - 1) < 0.002, key.hex()
    mark_figure(4, f"chi-square of 1e7 draws off by {100 * abs(total / n - 1):.3f} %")


def test_a_million_draws_look_normal_at_alpha_1e_6(false_alarms: Book) -> None:
    """N = 1e6, five tests of alpha = 1e-6: Kolmogorov-Smirnov, chi-square on 200 cells, mean, skewness, kurtosis."""
    n, alpha = 1_000_000, 1e-6
    false_alarms(5 * alpha)
    key = new_key()
    z = normals(key, 0, n)
    assert stats.kstest(z, "norm").pvalue > alpha, key.hex()
    cells = np.bincount((stats.norm.cdf(z) * 200).astype(int).clip(0, 199), minlength=200)
    assert stats.chisquare(cells).pvalue > alpha, key.hex()
    bound = stats.norm.isf(alpha / 2)
    assert abs(z.mean()) < bound / math.sqrt(n), key.hex()
    assert abs(np.mean(z**3)) < bound * math.sqrt(15 / n), key.hex()
    assert abs(np.mean(z**4) - 3) < bound * math.sqrt(96 / n), key.hex()


def test_rows_segments_and_neighbours_are_uncorrelated(false_alarms: Book) -> None:
    """N = 65,536 per pair; 190 pairs of rows, 1 of segments, 20 lags, each at 6 standard errors: 211 * 2e-9."""
    false_alarms(211 * 2e-9)
    key = new_key()
    rows = np.stack([normals(key, row, 2 * SEGMENT) for row in range(20)])
    first, second = rows[:, :SEGMENT], rows[:, SEGMENT:]
    correlation = (first @ first.T / SEGMENT)[np.triu_indices(20, 1)] * math.sqrt(SEGMENT)
    assert np.max(np.abs(correlation)) < 6
    assert abs(np.mean(first[0] * second[0])) * math.sqrt(SEGMENT) < 6
    lags = [np.mean(rows[0, :-lag] * rows[0, lag:]) * math.sqrt(2 * SEGMENT - lag) for lag in range(1, 21)]
    assert np.max(np.abs(lags)) < 6


def _tail_counts(draws: int) -> dict[float, int]:
    key, counts, size = new_key(), dict.fromkeys((4.0, 5.0, 5.42), 0), 1_000_000
    for row in range(draws // size):
        z = np.abs(normals(key, row, size))
        for bound in counts:
            counts[bound] += int(np.sum(z > bound))
    return counts


def _check_tails(draws: int, alpha: float) -> dict[float, int]:
    counts = _tail_counts(draws)
    for bound, count in counts.items():
        expected = draws * 2 * stats.norm.sf(bound)
        low, high = stats.poisson.ppf(alpha / 2, expected), stats.poisson.isf(alpha / 2, expected)
        assert low <= count <= high, (bound, count, expected)
    return counts


def test_tails_of_1e7_draws_have_their_poisson_counts(false_alarms: Book) -> None:
    """N = 1e7, three bands of alpha = 1e-6. A 24-bit generator stops near 5.4 sigma; that shows at 1e8 (slow)."""
    false_alarms(3e-6)
    _check_tails(10_000_000, 1e-6)


@pytest.mark.slow
def test_tails_of_1e8_draws_have_their_poisson_counts(false_alarms: Book, mark_figure: Note) -> None:
    """N = 1e8, three bands of alpha = 1e-6: 6,334 beyond 4 sigma, 57 beyond 5, 6 beyond 5.42 expected."""
    false_alarms(3e-6)
    found = ", ".join(f"{count:,} beyond {bound:g}" for bound, count in _check_tails(100_000_000, 1e-6).items())
    mark_figure(5, f"of 1e8 draws {found} sigma; 6,334, 57 and 6 expected")


def test_declared_support_is_inside_what_the_tails_can_reach() -> None:
    """Tail draw: r + x with x^2 < 2 y, y = -log(u) and u a 106-bit uniform, so at most r + sqrt(2 * 107 log 2)."""
    reach = 3.6541528853610088 + math.sqrt(2 * 107 * math.log(2))
    assert 12.0 <= NOISE_SUPPORT <= reach


@pytest.mark.parametrize("other", [6, 7])
def test_a_draw_inside_a_draw_changes_neither(other: int) -> None:
    """The handler of a signal draws between two lines of a draw: noise stays a function of (key, row)."""
    from dpsco.release import noise as module
    from dpsco.release.noise import Normals

    key, size = new_key(), 2000  # 2,000 normals have a tail with probability 0.4, so both paths are taken
    expected = {row: normals(key, row, size) for row in (6, other)}
    dithered = Normals(key).dither(6, size, 12)
    for strike in range(1, 500):
        source, lines, inside = Normals(key), [0], []
        source(1, size)  # there is a used cipher

        def trace(
            frame: object,
            event: str,
            _: object,
            lines: list[int] = lines,
            strike: int = strike,
            inside: list[bool] = inside,
            source: Normals = source,
        ) -> object:
            if event == "line" and frame.f_code.co_filename == module.__file__:  # type: ignore[attr-defined]
                lines[0] += 1
                if lines[0] == strike:
                    sys.settrace(None)
                    inside.append(np.array_equal(source(other, size), expected[other]))
                    sys.settrace(trace)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            drawn, dither = source(6, size), source.dither(6, size, 12)
        finally:
            sys.settrace(before)
        assert all(inside), strike
        assert np.array_equal(drawn, expected[6]), strike
        assert np.array_equal(dither, dithered), strike
        if not inside:
            return
    pytest.fail("a draw has more lines than this test strikes")
