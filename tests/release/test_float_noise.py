"""Float64 noise is as Gaussian as the proof in float_noise.py says, on the finest grids that plans may have."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dpsco import Budget, InvalidArgument, mechanism
from dpsco.accounting.poisson import epsilon_of_sampled
from dpsco.query import SUMMATION_SLACK
from dpsco.release.calibration import calibrate, calibrate_round
from dpsco.release.float_noise import COUPLING, GDP_COST, LARGEST_LOSS, smoothing
from dpsco.release.noise import EDGE, NOISE_SUPPORT, Normals, new_key, normals

Book = Callable[[float], float]
LATTICE = 1 << 52


class Ziggurat:
    """numpy's sampler, asked with words of our choice: its tables as it uses them, and not as a source prints them."""

    def __init__(self) -> None:
        randomgen = pytest.importorskip("randomgen")
        self._words: list[int] = []
        self._generator = np.random.Generator(randomgen.UserBitGenerator(lambda _: self._words.pop(0), 64))
        self.step = [self._of(layer, 1, 0)[0] for layer in range(256)]
        self.inside = [self._first_refused(layer) for layer in range(256)]

    def _of(self, layer: int, place: int, uniform: int) -> tuple[float, int]:
        """(value, words used) for this layer, place in it and 53-bit uniform."""
        self._words[:] = [layer | place << 9, uniform << 11] + [2 | 5 << 9] * 6
        value = self._generator.standard_normal()
        return value, 8 - len(self._words)

    def _first_refused(self, layer: int) -> int:
        """The first place that is not accepted at once."""
        low, high = 0, LATTICE
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._of(layer, middle, (1 << 53) - 1)[1] == 1 else (low, middle)
        return low

    def accepted(self, layer: int, place: int) -> mp.mpf:
        """Share of uniforms with which this place is accepted."""
        if place < self.inside[layer]:
            return mp.mpf(1)
        low, high = 0, 1 << 53 if layer else 0
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._of(layer, place, middle)[1] <= 2 else (low, middle)
        return mp.mpf(low) / (1 << 53)

    def density(self, x: float) -> mp.mpf:
        """Probability per unit length around x, lattices smoothed, of one attempt."""
        places = ((layer, int(x / step)) for layer, step in enumerate(self.step))
        parts = (self.accepted(layer, k) / mp.mpf(self.step[layer]) for layer, k in places if k < LATTICE)
        return mp.fsum(parts) / 256 / LATTICE

    def mass(self, first: float, last: float) -> mp.mpf:
        """Exact probability of [first, last) in one attempt; the interval is short."""
        total = mp.mpf(0)
        for layer, step in enumerate(self.step):
            low, high = _ceil(first, step), _ceil(last, step)
            if low < LATTICE:
                total += (min(high, LATTICE) - low) * self.accepted(layer, (low + min(high, LATTICE)) // 2)
        return total / 256 / LATTICE


def _ceil(x: float, step: float) -> int:
    """The first place whose float64 value is at least x."""
    place = max(0, int(x / step) - 2)
    while place * step < x:
        place += 1
    return place


@cache
def ziggurat() -> Ziggurat:
    return Ziggurat()


def test_a_normal_is_within_the_coupling_of_the_exact_one() -> None:
    """Relative error of the density times Mills' ratio, of the tail times that at the edge, and a lattice step."""
    sampler, rng = ziggurat(), np.random.default_rng(0)
    with mp.workdps(40):
        points = [*rng.uniform(0, EDGE, 200).tolist(), 1e-9, 3.6, 3.65, 3.654]
        scaled = [sampler.density(x) * mp.exp(mp.mpf(x) ** 2 / 2) for x in points]
        one = mp.fsum(scaled) / len(scaled)
        density = max(abs(value / one - 1) for value in scaled)
        beyond = mp.sqrt(mp.pi / 2) * mp.erfc(mp.mpf(EDGE) / mp.sqrt(2))
        tail = abs((1 - mp.mpf(sampler.inside[0]) / LATTICE) / 256 / one / beyond - 1)
        mills = beyond * mp.exp(mp.mpf(EDGE) ** 2 / 2)
        assert sampler.inside[0] * sampler.step[0] == pytest.approx(EDGE, rel=1e-15)
        assert 2 * density * mp.sqrt(mp.pi / 2) + tail * mills + max(sampler.step) < COUPLING


def _lumps(width: float) -> list[float]:
    """log of the exact mass of some cells over their Gaussian mass, up to the constant that all share."""
    sampler, rng, found = ziggurat(), np.random.default_rng(1), []
    with mp.workdps(40):
        one = sampler.density(0.01) * mp.exp(mp.mpf(0.01) ** 2 / 2)
        for x in rng.uniform(0.1, 3.5, 16).tolist():
            first = math.ceil(x / width) * width
            middle = mp.mpf(first) + mp.mpf(width) / 2
            gauss = one * mp.exp(-(middle**2) / 2) * width * (1 + (middle**2 - 1) * mp.mpf(width) ** 2 / 24)
            found.append(float(mp.log(sampler.mass(first, first + width) / gauss)))
    return found


@pytest.mark.parametrize("exponent", [-20, -24, -28, -32, -36])
def test_the_mass_of_a_window_is_gaussian_up_to_the_coupling_over_its_width(exponent: int) -> None:
    """Exact masses from the sampler's tables, against step 3 of the proof for one draw."""
    width = 2.0**exponent
    assert max(map(abs, _lumps(width))) <= 2.05 * COUPLING / width


def test_a_fine_grid_without_a_dither_would_reveal_more_than_mu_and_with_it_a_thousandth() -> None:
    """p = 1e6 coordinates on a grid of 2^-40 sigma at epsilon = 1e-4: the standard deviation of the summed lumps."""
    p, budget = 10**6, Budget(1e-4, 1e-6)
    assert math.sqrt(p) * np.std(_lumps(2.0**-40)) > 10 * budget.mu
    found = smoothing(mu=budget.mu, log_loss=budget.log_float_loss, sigma=1.0, grid=2.0**-40, dimension=p, rounds=1)
    assert math.sqrt(p) * 2.05 * COUPLING / found.window < found.loss < 1e-3 * budget.mu


@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.3, 2.0, 6.0])
def test_a_law_within_kappa_costs_no_more_than_the_declared_share_of_mu(mu: float) -> None:
    """Step 5 of the proof: type I and type II errors move by at most (e^k - 1) min(error, 1 - error)."""
    for kappa in (1e-6 * mu, 1e-3 * mu, min(LARGEST_LOSS, 0.1 * mu / GDP_COST)):
        with mp.workdps(30):
            for quantile in np.linspace(-9, 9, 37).tolist():
                alpha = mp.ncdf(-mp.mpf(quantile))
                first = min(mp.exp(kappa) * alpha, 1 - mp.exp(-kappa) * (1 - alpha))
                beta = mp.ncdf(-_quantile(first) - (mp.mpf(mu) - GDP_COST * mp.mpf(kappa)))
                second = max(mp.exp(-kappa) * beta, 1 - mp.exp(kappa) * (1 - beta))
                assert second >= mp.ncdf(quantile - mp.mpf(mu))


def _quantile(probability: mp.mpf) -> mp.mpf:
    """z with ncdf(z) = probability, by Newton's method from scipy's answer."""
    z = mp.mpf(
        float(stats.norm.ppf(float(probability)) if probability < 0.5 else -stats.norm.ppf(float(1 - probability)))
    )
    for _ in range(3):
        z -= (mp.ncdf(z) - probability) / mp.npdf(z)
    return z


@pytest.mark.parametrize(("p", "epsilon", "rounds"), [(10**6, 1e-3, 8), (10**6, 1e-2, 64), (50, 0.1, 1000)])
def test_long_models_and_small_budgets_are_smoothed_and_sigma_pays_for_the_rest(
    p: int, epsilon: float, rounds: int
) -> None:
    budget, strategy = Budget(epsilon, 1e-6), mechanism("sqrt", horizon=rounds)
    paid = calibrate(budget, strategy, clip=1.0, dimension=p, rows=100)
    assert paid.window > paid.grid
    assert paid.window % paid.grid == 0
    assert strategy.sensitivity * paid.difference / paid.sigma <= budget.mu
    share = paid.difference / (1 + math.sqrt(p) * paid.grid + SUMMATION_SLACK) - 1
    assert 0 < share < 0.01
    assert rounds * (paid.window / paid.sigma) ** 2 / 24 < 0.01


def test_usual_plans_pay_nothing_that_shows() -> None:
    budget, strategy = Budget(1.0, 1e-6), mechanism("sqrt", horizon=16)
    paid = calibrate(budget, strategy, clip=1.0, dimension=50, rows=1000)
    alone = calibrate_round(budget, clip=1.0, dimension=50, rows=1000, multiplier=3.0, rounds=100)
    for noise in (paid, alone):
        assert noise.difference / (1 + math.sqrt(50) * noise.grid + SUMMATION_SLACK) - 1 < 1e-5


@pytest.mark.parametrize("records", [1, 3, 10])
def test_every_record_of_a_group_pays_for_the_float_noise(records: int) -> None:
    """One record's exact noise is m-GDP and m + 2.6 kappa <= mu / records, so the group is mu-GDP either way."""
    budget, strategy, p = Budget(0.1, 1e-6, records=records), mechanism("sqrt", horizon=64), 10**6
    paid = calibrate(budget, strategy, clip=1.0, dimension=p, rows=100)
    base = 1 + math.sqrt(p) * paid.grid + SUMMATION_SLACK
    kappa = smoothing(
        mu=budget.mu_per_record,
        log_loss=budget.log_float_loss,
        sigma=paid.sigma * base / paid.difference,
        grid=paid.grid,
        dimension=p,
        rounds=64,
        sensitivity=strategy.sensitivity,
        increments=strategy.increments,
    ).loss
    exact = strategy.sensitivity * base / paid.sigma
    assert exact < exact + GDP_COST * kappa <= budget.mu_per_record * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 20.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
def test_gaussian_noise_and_what_float64_loses_together_stay_within_delta(epsilon: float, delta: float) -> None:
    """delta(epsilon) of mu, plus l for either neighbour, in 40 digits."""
    budget = Budget(epsilon, delta)
    with mp.workdps(40):
        mu, lost = mp.mpf(budget.mu), mp.exp(budget.log_float_loss)
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        exact = mp.ncdf(-a) - mp.exp(epsilon) * mp.ncdf(-b)
        assert exact + (1 + mp.exp(epsilon)) * lost < delta
        assert exact + 16_000 * (1 + mp.exp(epsilon)) * lost < delta  # so many runs fit into one account
        assert exact > 0.999999999 * delta


def test_the_tail_is_within_the_coupling_up_to_the_declared_support() -> None:
    """x = -log(u) / EDGE is accepted with probability e^(-x^2/2), both from uniforms with 106 bits and half a step off.

    Errors: of either probability 2^-107, of the logarithms 2^-52 of their values. The error of a tail's probability,
    over its density, is the distance of quantiles.
    """
    with mp.workdps(60):
        edge, x0 = mp.mpf(EDGE), mp.mpf(NOISE_SUPPORT) - mp.mpf(EDGE)

        def wrong(x: mp.mpf) -> mp.mpf:
            of_u, of_v = mp.mpf(2) ** -107 * mp.exp(edge * x), mp.mpf(2) ** -107 * mp.exp(x * x / 2)
            return mp.npdf(edge + x) * (of_u + of_v + x * x * mp.mpf(2) ** -52)

        distance = mp.quad(wrong, [x0, x0 + 1, x0 + 2, x0 + 4]) / mp.npdf(NOISE_SUPPORT)
        assert distance + x0 * mp.mpf(2) ** -52 < COUPLING / 2


@pytest.mark.parametrize(("rate", "rounds"), [(0.001, 1000), (0.01, 100), (0.1, 50), (0.5, 10)])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_more_noise_lowers_the_epsilon_of_sampled_rounds_by_a_quarter_of_its_share(
    rate: float, rounds: int, adjacency: str
) -> None:
    """What calibration._smooth_alone assumes of the accountant."""
    pytest.importorskip("dp_accounting")
    for z in (0.7, 2.0, 8.0):
        before, after = (
            epsilon_of_sampled(scale * z, delta=1e-6, rate=rate, rounds=rounds, adjacency=adjacency)
            for scale in (1.0, 1.1)
        )
        assert after <= before * (1 - 0.25 * 0.1)


def test_a_plan_that_no_window_makes_private_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Gaussian"):
        smoothing(mu=1e-9, log_loss=math.log(1e-18), sigma=1.0, grid=2.0**-40, dimension=10**9, rounds=64)


# --- the draws --------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 7, 16, 17, 32, 40])
def test_the_dither_is_uniform_and_a_function_of_key_and_row(bits: int, false_alarms: Book) -> None:
    """N = 70,000 a case over two segments, mean and variance within 6 standard errors: 12 * 2e-9."""
    false_alarms(12 * 2e-9)
    key, n, half = new_key(), 70_000, 2.0 ** (bits - 1)
    drawn = Normals(key).dither(3, n, bits)
    assert np.array_equal(drawn, Normals(key).dither(3, n, bits))
    assert not np.array_equal(drawn, Normals(key).dither(4, n, bits))
    assert drawn.min() >= -half
    assert drawn.max() < half
    spread = math.sqrt((4 * half * half - 1) / 12)
    assert abs(drawn.mean() + 0.5) < 6 * spread / math.sqrt(n)
    assert abs(np.mean((drawn + 0.5) ** 2) / spread**2 - 1) < 6 * math.sqrt(4 / 5 / n) + 1e-12


def test_no_bits_no_dither() -> None:
    assert not Normals(new_key()).dither(0, 100, 0).any()


def test_tails_follow_the_normal_law_beyond_the_edge(false_alarms: Book) -> None:
    """N = about 780 tails of 3e6 draws; their conditional distribution at alpha = 1e-6."""
    false_alarms(1e-6)
    key = new_key()
    z = np.concatenate([normals(key, row, 1_000_000) for row in range(3)])
    tails = np.abs(z[np.abs(z) > EDGE])
    assert stats.kstest(stats.norm.sf(tails) / stats.norm.sf(EDGE), "uniform").pvalue > 1e-6, key.hex()
