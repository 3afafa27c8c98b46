"""Release: the distribution of its outputs, the grid, the horizon, and one noise value per release."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from tests.release.small_releaser import BUDGET, calibrated, channel, query, total

from dpsco import (
    DataError,
    HorizonError,
    LedgerError,
    Mechanism,
    mechanism,
)
from dpsco.query import Clipped
from dpsco.release import releaser
from dpsco.release.calibration import Calibration
from dpsco.release.ledger import MemoryLedger
from dpsco.release.noise import new_key
from dpsco.release.releaser import Releaser

Book = Callable[[float], float]


def releases(noise: Calibration, strategy: Mechanism, sums: list[float], runs: int) -> np.ndarray:
    """Released increments of ``runs`` independent one-dimensional runs, shape (rounds, runs)."""
    source = Releaser(noise, strategy, runs, MemoryLedger(new_key()))
    return np.stack([source.release(query(t, noise, dimension=runs), total(s, runs)).value for t, s in enumerate(sums)])


def increments_of(name: str, horizon: int) -> np.ndarray:
    """Differences of B's rows, from the definitions: the noise on increments is this times Z."""
    decoder = np.zeros((horizon, horizon))
    coefficient = [1.0]
    for k in range(1, horizon):
        coefficient.append(coefficient[-1] * (2 * k - 1) / (2 * k))
    for t in range(horizon):
        if name == "sqrt":
            decoder[t, : t + 1] = coefficient[t::-1]
        elif name == "independent":
            decoder[t, : t + 1] = 1.0
        else:  # tree: one node for every bit of t + 1, drawn in the round that closes it
            end = t + 1
            while end:
                decoder[t, end - 1] = 1.0
                end -= end & -end
    return np.diff(decoder, axis=0, prepend=0.0)


# --- the law ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sqrt", "tree", "independent"])
def test_variance_of_every_round_and_every_covariance_are_those_of_the_mechanism(
    name: str, false_alarms: Book, mark_figure: Callable[[int, str], None]
) -> None:
    """T = 64, N = 1e5 runs: 2,080 entries of the covariance within 6 standard errors (2e-9 each)."""
    horizon, runs = 64, 100_000
    false_alarms(2080 * 2 * stats.norm.sf(6))
    strategy, noise = calibrated(name, horizon, 1)
    w = releases(noise, strategy, [0.0] * horizon, runs)
    b = increments_of(name, horizon)
    expected = noise.sigma**2 * (b @ b.T)
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / runs)
    deviation = np.abs(w @ w.T / runs - expected) / error
    assert np.max(deviation) < 6
    mark_figure(4, f"{name} within {np.max(deviation):.1f} standard errors")
    prefix = np.cumsum(w, axis=0).std(axis=1)
    assert np.max(prefix) == pytest.approx(strategy.max_error * noise.difference / BUDGET.mu, rel=0.03)


def audit(name: str, claimed: Calibration, real: Calibration, false_alarms: Book, *, moved_round: int = 0) -> float:
    """Log-likelihood ratios of full transcripts on D' (one round changed) against D, under the claimed distribution.

    Their mean and variance are mu^2/2 and mu^2 if noise and sensitivity are as claimed. Returns the larger
    deviation in standard errors of N = 1e5 runs.
    """
    horizon, runs = 16, 100_000
    false_alarms(4 * stats.norm.sf(6))
    strategy = mechanism(name, horizon=horizon)
    shift = math.floor(claimed.difference / claimed.grid) * claimed.grid
    moved = np.zeros(horizon)
    moved[moved_round] = shift
    outputs = releases(real, strategy, moved.tolist(), runs)
    b = increments_of(name, horizon)
    precision = np.linalg.inv(claimed.sigma**2 * (b @ b.T))
    ratio = outputs.T @ precision @ moved - 0.5 * moved @ precision @ moved
    mu = math.sqrt(moved @ precision @ moved)
    if moved_round == 0:  # the longest column of C: the worst case, and it is what was promised
        assert mu == pytest.approx(BUDGET.mu, rel=1e-3)
    assert mu <= BUDGET.mu
    mean = abs(ratio.mean() - mu**2 / 2) / (mu / math.sqrt(runs))
    variance = abs(ratio.var() / mu**2 - 1) / math.sqrt(2 / runs)
    return float(max(mean, variance))


@pytest.mark.parametrize("name", ["sqrt", "tree", "independent"])
def test_white_box_audit_of_the_whole_transcript_finds_exactly_mu(name: str, false_alarms: Book) -> None:
    noise = calibrated(name, 16, 1)[1]
    assert audit(name, noise, noise, false_alarms) < 6


def test_rounds_other_than_the_worst_reveal_no_more(false_alarms: Book) -> None:
    noise = calibrated("sqrt", 16, 1)[1]
    for moved_round in (5, 15):
        assert audit("sqrt", noise, noise, false_alarms, moved_round=moved_round) < 6


@pytest.mark.parametrize("factor", [2.0, 1.1, 1.03])
def test_white_box_audit_catches_too_little_noise(factor: float, false_alarms: Book) -> None:
    noise = calibrated("sqrt", 16, 1)[1]
    weak = dataclasses.replace(noise, sigma=noise.sigma / factor)
    assert audit("sqrt", noise, weak, false_alarms) > 6


def test_precision_attack_finds_no_output_off_the_grid_for_either_neighbour(
    mark_figure: Callable[[int, str], None],
) -> None:
    """4e6 releases per neighbour, including sums off the grid: none distinguishes the neighbours."""
    strategy, noise = calibrated("sqrt", 4, 1)
    for value in (0.0, 1.0, 1 / 3):
        outputs = releases(noise, strategy, [value] * 4, 1_000_000)
        assert np.all(np.mod(outputs / noise.grid, 1.0) == 0.0)
    mark_figure(6, "0 of 12e6 releases off the grid")


def test_released_is_the_rounded_sum_plus_noise_that_does_not_depend_on_the_sum() -> None:
    """With one key, outputs on two sums differ by exactly the difference of the sums: noise added after rounding."""
    first, second = channel(key=bytes(32)), channel(key=bytes(32))
    grid = calibrated("sqrt", 4, 3)[1].grid
    for t in range(4):
        difference = second.release(query(t), total(17 * grid)).value - first.release(query(t), total(5 * grid)).value
        assert np.array_equal(difference, np.full(3, 12 * grid))


# --- the rule: one noise value, one release ---------------------------------------------------


def test_a_round_past_the_horizon_is_refused() -> None:
    """By release itself, before the ledger or the mechanism (which has its own guard) is called."""
    strategy, noise = calibrated("sqrt", 4, 3)
    ledger = MemoryLedger(new_key())
    source = Releaser(noise, strategy, 3, ledger)
    for t in range(4):
        source.release(query(t), total(0.0))
    for t in (4, 5, -1):
        with pytest.raises(HorizonError):
            source.release(query(t), total(0.0))
    assert ledger.fingerprint(4) is None
    with pytest.raises(HorizonError):
        strategy.increment(strategy.start(), 4, lambda row: np.zeros(3))


def test_a_repeated_round_returns_what_was_stored_and_never_recomputes(monkeypatch: pytest.MonkeyPatch) -> None:
    source = channel()
    first = source.release(query(0), total(0.5)).value
    monkeypatch.setattr(Releaser, "_noise", None)  # a second draw would raise
    assert np.array_equal(source.release(query(0), total(0.5)).value, first)


def test_another_sum_for_a_released_round_is_refused() -> None:
    source = channel()
    source.release(query(0), total(0.5))
    with pytest.raises(LedgerError):
        source.release(query(0), total(0.5 + 2.0**-11))


def test_another_query_for_a_released_round_is_refused() -> None:
    source = channel()
    source.release(query(0), total(0.5))
    with pytest.raises(LedgerError):
        source.release(query(0, point=1e-300), total(0.5))


def test_rounds_are_released_in_order() -> None:
    source = channel()
    source.release(query(0), total(0.0))
    with pytest.raises(LedgerError):
        source.release(query(2), total(0.0))
    source.release(query(1), total(0.0))


def test_a_query_the_noise_was_not_paid_for_is_refused() -> None:
    source, noise = channel(), calibrated("sqrt", 4, 3)[1]
    for change in ({"clip": 2.0}, {"grid": noise.grid / 2}, {"rowwise": True}):
        with pytest.raises(LedgerError):
            source.release(dataclasses.replace(query(0), **change), total(0.5))


@pytest.mark.parametrize("bad", [np.full(3, np.nan), np.array([0.0, np.inf, 0.0]), np.zeros(2), np.zeros((3, 1))])
def test_a_sum_that_is_not_finite_or_of_another_length_spends_nothing(bad: np.ndarray) -> None:
    source = channel()
    with pytest.raises(DataError):
        source.release(query(0), Clipped(bad, 1))
    source.release(query(0), total(0.0))  # still free


def test_nothing_leaves_after_the_key_is_erased() -> None:
    source = channel(horizon=4)
    for t in range(4):
        source.release(query(t), total(0.0))
    source.close()
    with pytest.raises(LedgerError):
        source.release(query(0), total(0.0))


@pytest.mark.parametrize("name", ["sqrt", "tree", "blt", "independent"])
def test_noise_does_not_depend_on_how_many_rounds_are_drawn_together(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = calibrated(name, 9, 3)[1]
    found = []
    for together in (1, 2, 4, 32):
        monkeypatch.setattr(releaser, "_TOGETHER", together)
        one = channel(name, 9, key=bytes(32))
        found.append([one.release(query(t, noise), total(0.5)).value for t in range(9)])
    for other in found[1:]:
        assert np.array_equal(other, found[0])


# --- ahead of the sum -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sqrt", "tree", "independent"])
def test_a_round_that_was_prepared_is_released_as_one_that_was_not(name: str) -> None:
    noise = calibrated(name, 8, 3)[1]
    calm, ahead = (channel(name, 8, key=bytes(32)) for _ in range(2))
    for step in range(8):
        asked, again = query(step, noise), query(step, noise)
        for _ in range(step % 3):
            ahead.prepare(asked)
        value = calm.release(asked, total(1.0)).value
        assert np.array_equal(ahead.release(asked, total(1.0)).value, value)
        assert np.array_equal(ahead.release(again, total(1.0)).value, value)


def test_nothing_is_prepared_while_a_release_is_under_way() -> None:
    source = channel()
    with source._one_at_a_time:
        helper = threading.Thread(target=source.prepare, args=(query(0),), daemon=True)
        helper.start()
        helper.join(60)
        assert not helper.is_alive()
    assert not source._begun


def test_another_query_than_the_prepared_one_is_told_apart() -> None:
    """The prepared hash belongs to one query: the answer to another one would get the noise of this round, too."""
    source, asked, other = channel(), query(0), query(0, point=1.0)
    source.prepare(asked)
    source.release(other, total(0.0))
    with pytest.raises(LedgerError, match="another query"):
        source.release(asked, total(0.0))
    source.prepare(query(7))  # beyond the horizon: release says so
    with pytest.raises(HorizonError):
        source.release(query(7), total(0.0))
