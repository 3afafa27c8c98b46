"""Every mechanism has B C = A, its stated sensitivity and errors, and streaming that equals the matrices."""

from __future__ import annotations

import json
import tracemalloc
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.errors import HorizonError, InvalidArgument
from dpsco.release.mechanisms import LARGEST_FIT, MECHANISMS, Mechanism, mechanism
from dpsco.release.mechanisms.toeplitz import SquareRoot

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "tree": ("tree", {}),
    "honaker": ("honaker", {}),
    "smooth": ("smooth", {}),
    "sqrt": ("sqrt", {}),
    "normalised-sqrt": ("normalised-sqrt", {}),
    "blt": ("blt", {}),
    "independent": ("independent", {}),
    "dense-max": ("dense", {"objective": "max"}),
    "dense-mean": ("dense", {"objective": "mean"}),
    "workload-halved": ("workload", {"z_step": "halved"}),
    "workload-listed": ("workload", {"z_step": "listed"}),
    "workload-buffered": ("workload", {"buffers": 2}),
    "workload-three-buffers": ("workload", {"buffers": 3, "z_step": "listed"}),
}

HORIZONS = (*range(1, 65), 100, 256)
LONG_HORIZONS = (1000, 4096)


@lru_cache(maxsize=512)
def built(case: str, horizon: int) -> Mechanism:
    name, options = CASES[case]
    return mechanism(name, horizon=horizon, **options)


def long_cases() -> list[tuple[str, int]]:
    """Cases at 512 (all of them) and beyond (all but those fitted as dense matrices)."""
    dense = ("dense-max", "dense-mean", "workload-halved", "workload-listed")
    return [(case, LARGEST_FIT) for case in CASES] + [
        (case, horizon) for case in CASES if case not in dense for horizon in LONG_HORIZONS
    ]


def check(made: Mechanism) -> None:
    horizon = made.horizon
    b, c = made.decoder(), made.strategy()
    assert b.shape == (horizon, made.rows)
    assert c.shape == (made.rows, horizon)
    assert np.max(np.abs(b @ c - np.tri(horizon))) < 1e-12
    longest = np.sqrt(max(sum(x * x for x in column) for column in c.T.tolist()))
    assert made.sensitivity == pytest.approx(longest, rel=1e-12)
    assert made.errors == pytest.approx(longest * np.linalg.norm(b, axis=1), rel=1e-9)
    assert made.max_error == pytest.approx(np.max(made.errors))
    assert made.mean_error == pytest.approx(np.sqrt(np.mean(made.errors**2)))


@pytest.mark.parametrize("case", CASES)
def test_the_matrices_factor_the_prefix_sums_with_the_sensitivity_and_errors_claimed(case: str) -> None:
    for horizon in HORIZONS:
        check(built(case, horizon))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "horizon"), long_cases())
def test_the_matrices_factor_the_prefix_sums_at_long_horizons(case: str, horizon: int) -> None:
    check(built(case, horizon))


@pytest.mark.parametrize("case", CASES)
def test_streaming_applies_the_decoder(case: str) -> None:
    for horizon in (*range(1, 34), 63, 64, 100):
        made = built(case, horizon)
        assert np.max(np.abs(made.streamed() - made.decoder())) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(("case", "horizon"), [case for case in long_cases() if case[1] <= 1000])
def test_streaming_applies_the_decoder_at_long_horizons(case: str, horizon: int) -> None:
    made = built(case, horizon)
    assert np.max(np.abs(made.streamed() - made.decoder())) < 1e-12


@pytest.mark.parametrize("case", CASES)
def test_no_noise_exists_outside_the_horizon(case: str) -> None:
    made = built(case, 5)
    for step in (-1, 5, 6):
        with pytest.raises(HorizonError, match="covers rounds 0 to 4"):
            made.increment(made.start(), step, lambda row: np.zeros(3))


@pytest.mark.parametrize("case", CASES)
def test_memory_is_what_streaming_keeps_and_each_draw_is_asked_for_once(case: str) -> None:
    for horizon in (1, 2, 7, 64, 100):
        made = built(case, horizon)
        asked: list[int] = []

        def draw(row: int, asked: list[int] = asked) -> np.ndarray:
            asked.append(row)
            return np.ones(2)

        buffers, most = made.start(), 0
        for step in range(horizon):
            _, buffers = made.increment(buffers, step, draw)
            most = max(most, len(buffers))
        assert asked == list(range(made.rows))
        assert most <= made.memory


@pytest.mark.parametrize("case", CASES)
def test_a_round_leaves_its_buffers_alone_so_that_resuming_repeats_it_bit_for_bit(case: str) -> None:
    made = built(case, 21)
    rows = np.random.default_rng(3).standard_normal((made.rows, 20_000))  # longer than one block
    buffers = made.start()
    for step in range(made.horizon):
        before = tuple(buffer.copy() for buffer in buffers)
        noise, after = made.increment(buffers, step, lambda row: rows[row].copy())
        noise += 1.0  # what the caller does with the noise must not reach the buffers
        again, _ = made.increment(before, step, lambda row: rows[row].copy())
        assert all(np.array_equal(kept, copy) for kept, copy in zip(buffers, before, strict=True))
        assert np.array_equal(noise, again + 1.0)
        buffers = after


@pytest.mark.parametrize("size", [1, 2, 3, 8, 1000, 1024, 1025, 5000])
def test_increments_are_summed_term_after_term_whatever_their_length(size: int) -> None:
    sqrt, draws = SquareRoot(40), np.random.default_rng(size).normal(size=(40, size))
    c, buffers = sqrt.coefficients, sqrt.start()
    for step in range(40):
        noise, buffers = sqrt.increment(buffers, step, lambda i: draws[i].copy())
        expected = np.zeros(size)
        for s in range(step + 1):
            expected = expected + (c[step - s] - (c[step - s - 1] if s < step else 0.0)) * draws[s]
        assert np.array_equal(noise, expected)  # the same bits: a resumed run repeats them


@pytest.mark.parametrize("name", [*MECHANISMS, "auto"])
def test_a_horizon_that_is_too_long_is_refused_before_anything_is_allocated(name: str) -> None:
    """A plan in a file states any number: reading it neither fills the memory nor goes on for ever."""
    for horizon in (60_000_000, 10**30):
        tracemalloc.start()
        with pytest.raises(InvalidArgument, match=f"horizon={horizon} <= .*Use fewer rounds"):
            mechanism(name, horizon=horizon)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1 << 20
    longest = MECHANISMS["workload" if name == "auto" else name].most_rounds  # type: ignore[attr-defined]
    assert LARGEST_FIT <= longest <= 1 << 25


def test_a_plan_in_a_file_with_too_many_rounds_is_refused() -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 3)
    budget = dpsco.Budget(1.0, 1e-6)
    made = dpsco.Plan(problem, 10**12, budget, dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0, mechanism="tree"))
    for name, rounds in (("dense", 20_000), ("auto", 60_000_000), ("tree", 60_000_000), ("independent", 60_000_000)):
        data = made.to_dict()
        data["method"].update(mechanism=name, rounds=rounds)
        with pytest.raises(InvalidArgument, match="fewer rounds"):
            dpsco.Plan.from_json(json.dumps(data))
