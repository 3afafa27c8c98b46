"""sigma covers clip, mechanism, grid and floating point in exact arithmetic; plans beyond float64 are refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.method_plans import algorithm_1_plan

from dpsco import Budget, InvalidArgument, L2Ball, Logistic, Plan, Problem, Softmax, mechanism
from dpsco.query import SUMMATION_SLACK, to_grid
from dpsco.release.calibration import Calibration, calibrate


def calibrated(budget: Budget, *, clip: float = 1.0, dimension: int = 50, name: str = "sqrt") -> Calibration:
    return calibrate(budget, mechanism(name, horizon=16), clip=clip, dimension=dimension, rows=10_000)


CASES = [
    (adjacency, records, clip, dimension, name)
    for adjacency in ("zero-out", "add-remove", "replace")
    for records in (1, 3)
    for clip, dimension in ((1.0, 1), (0.1, 50), (7.3, 12_345), (1e-90, 3), (1e90, 1000))
    for name in ("sqrt", "tree", "independent")
]


def exact_sensitivity_squared(name: str, horizon: int) -> Fraction:
    """Largest squared column norm of C, from the definitions in rational arithmetic."""
    if name == "independent":
        return Fraction(1)
    if name == "tree":  # round 0 lies in one node of every level
        return Fraction(horizon.bit_length())
    c, total = Fraction(1), Fraction(0)
    for k in range(horizon):
        total += c * c
        c *= Fraction(2 * k + 1, 2 * k + 2)
    return total


@pytest.mark.parametrize(("adjacency", "records", "clip", "dimension", "name"), CASES)
def test_sigma_is_never_below_what_exact_arithmetic_asks_for(
    adjacency: str, records: int, clip: float, dimension: int, name: str
) -> None:
    """sigma^2 mu^2 >= sens^2 (S C + sqrt(p) grid + summation C)^2, every term a Fraction; sigma is not much larger."""
    budget = Budget(1.0, 1e-6, adjacency, records)
    noise = calibrated(budget, clip=clip, dimension=dimension, name=name)
    root = Fraction(math.isqrt(dimension * 10**40) + 1, 10**20)  # sqrt(p), rounded up
    apart = 2 if adjacency == "replace" else 1
    difference = apart * Fraction(clip) + root * Fraction(noise.grid) + Fraction(SUMMATION_SLACK) * Fraction(clip)
    needed = exact_sensitivity_squared(name, 16) * (difference * records) ** 2
    given = (Fraction(noise.sigma) * Fraction(budget.mu)) ** 2
    assert needed <= given <= needed * Fraction(1001, 1000)
    assert Fraction(noise.difference) >= difference


@pytest.mark.parametrize("clip", [1e-100, 3e-7, 1.0, 1.5, 2.0, 1e100])
@pytest.mark.parametrize("dimension", [1, 4, 50, 10**6])
def test_the_grid_is_a_power_of_two_and_its_slack_stays_below_one_percent(clip: float, dimension: int) -> None:
    noise = calibrated(Budget(1.0, 1e-6), clip=clip, dimension=dimension)
    assert math.frexp(noise.grid)[0] == 0.5
    assert 0 < noise.slack <= 0.01 * clip


def test_rounding_to_the_grid_is_exact_and_idempotent() -> None:
    rng = np.random.default_rng(0)
    for grid in (2.0**-30, 2.0**-3, 4.0, 2.0**-340):
        values = rng.normal(size=5000) * grid * 10.0 ** rng.integers(-3, 12, 5000)
        rounded = to_grid(values, grid)
        for value, result in zip(values.tolist(), rounded.tolist(), strict=True):
            steps = Fraction(result) / Fraction(grid)
            assert steps.denominator == 1
            assert abs(Fraction(value) - Fraction(result)) <= Fraction(grid) / 2
        assert np.array_equal(to_grid(rounded, grid), rounded)


def test_sums_on_the_grid_are_exact_in_any_order() -> None:
    rng = np.random.default_rng(1)
    values = to_grid(rng.normal(size=4096) * 10.0 ** rng.integers(-4, 3, 4096), 2.0**-20)
    totals = {float(np.sum(values[rng.permutation(4096)])) for _ in range(20)}
    assert totals == {float(sum(Fraction(v) for v in values.tolist()))}


def test_no_noise_means_no_grid() -> None:
    noise = calibrated(Budget(math.inf, 1e-6), clip=math.inf)
    assert (noise.sigma, noise.grid, noise.slack) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("clip", [1e-101, 1e-170, 5e-324, 1e101, 1e300])
def test_a_clip_at_the_ends_of_float64_is_refused(clip: float) -> None:
    with pytest.raises(InvalidArgument, match=r"clip=.*Scale"):
        calibrated(Budget(1.0, 1e-6), clip=clip)


def test_an_unclipped_private_plan_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="clip"):
        calibrated(Budget(1.0, 1e-6), clip=math.inf)


@pytest.mark.parametrize("records", [1, 2, 4, 20])
def test_a_shift_that_bounded_noise_cannot_hide_is_refused_for_groups_too(records: int) -> None:
    """mu = 6.36: a group's shift leaves 1e-8 of the noise's support uncovered, above delta = 1e-10."""
    with pytest.raises(InvalidArgument, match="delta"):
        calibrated(Budget(60.0, 1e-10, records=records))


@pytest.mark.parametrize("budget", [Budget(1e6, 1e-6), Budget(700.0, 1e-6), Budget(1.0, 1e-40)])
def test_promises_beyond_the_support_of_float64_noise_are_refused(budget: Budget) -> None:
    with pytest.raises(InvalidArgument):
        calibrated(budget)


def test_sums_beyond_the_exact_range_of_the_grid_are_refused() -> None:
    strategy = mechanism("sqrt", horizon=16)
    with pytest.raises(InvalidArgument, match="grid"):
        calibrate(Budget(1.0, 1e-6), strategy, clip=1.0, dimension=50, rows=2**50)
    with pytest.raises(InvalidArgument, match="grid"):
        calibrated(Budget(1e-13, 1e-13))


def test_the_grid_is_never_finer_than_the_noise_can_fill() -> None:
    """A float64 normal has 53 bits: below 2^-44 of sigma a grid cell holds too few of them to look Gaussian."""
    for exponent in range(1, 14):
        try:
            noise = calibrated(Budget(10.0**-exponent, 10.0**-exponent / 10))
        except InvalidArgument:
            continue
        assert noise.sigma <= 2.0**44 * noise.grid


# --- plans ------------------------------------------------------------------------------------


def _plan(**changes: object) -> Plan:
    arguments: dict[str, object] = {
        "problem": Problem(Logistic(), L2Ball(10.0), 5),
        "n": 1000,
        "budget": Budget(1.0, 1e-6),
        "rounds": 10,
        "beta": 0.25,
        "clip": 1.0,
    }
    return algorithm_1_plan(**{**arguments, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clip", 0.0),
        ("clip", -1.0),
        ("clip", math.nan),
        ("clip", math.inf),
        ("clip", "1"),
        ("clip", True),
        ("rounds", 0),
        ("rounds", 1001),
        ("rounds", 2.5),
        ("n", 0),
        ("n", math.inf),
        ("n", 10**400),
        ("batch_size", 101),
        ("batch_size", -1),
        ("beta", 0.0),
        ("beta", math.nan),
        ("mechanism", "gaussian"),
        ("mechanism", None),
        ("z_step", "doubled"),
        ("budget", 1.0),
        ("problem", None),
    ],
)
def test_a_plan_refuses_what_it_cannot_mean_and_names_the_argument(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=name):
        _plan(**{name: value})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("budget", "epsilon"), True),
        (("budget", "epsilon"), "nan"),
        (("budget", "epsilon"), "one"),
        (("budget", "epsilon"), None),
        (("budget", "delta"), "1e-6"),
        (("budget", "extra"), 1),
        (("method", "clip"), True),
        (("method", "clip"), "wide"),
        (("method", "clip"), None),
        (("n",), "1000"),
        (("method", "rounds"), True),
        (("format",), 3),
        (("rule",), ["by hand"]),
        (("prediction",), {"optimisation": "a", "noise": 1, "sampling": 2}),
        (("prediction",), [1]),
        (("problem", "loss"), "logistic"),
        (("problem", "loss"), {"kind": "logistic", "extra": 1}),
        (("problem", "domain", "radius"), "10"),
    ],
)
def test_a_plan_file_with_odd_types_is_refused(path: tuple[str, ...], value: object) -> None:
    data = _plan().to_dict()
    inner = data
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(InvalidArgument):
        Plan.from_dict(data)


def test_equal_plans_have_equal_digests() -> None:
    """Otherwise a resumed run is refused, and one master key gives two noise streams for one plan."""
    whole, real = (
        _plan(problem=Problem(Logistic(), L2Ball(10), 5)),
        _plan(problem=Problem(Logistic(), L2Ball(10.0), 5.0)),
    )  # type: ignore[arg-type]
    assert whole == real
    assert whole.digest() == real.digest()
    for loss in (Softmax(classes=3), Softmax(classes=np.int64(3)), Softmax(classes=3.0)):  # type: ignore[arg-type]
        plan = _plan(problem=Problem(loss, L2Ball(10.0), 5))
        assert plan.digest() == _plan(problem=Problem(Softmax(classes=3), L2Ball(10.0), 5)).digest()
        assert Plan.from_json(plan.to_json()) == plan


def test_every_field_of_a_plan_changes_its_digest() -> None:
    """The noise key is derived from the digest: two different plans under one key have unrelated noise."""
    changes: list[dict[str, object]] = [
        {},
        {"n": 1001},
        {"rounds": 9},
        {"beta": 0.26},
        {"clip": 1.1},
        {"z_step": "listed"},
        {"mechanism": "tree"},
        {"batch_size": 50},
        {"budget": Budget(1.0, 1e-7)},
        {"budget": Budget(1.0, 1e-6, "replace")},
        {"budget": Budget(1.0, 1e-6, records=2)},
        {"problem": Problem(Logistic(), L2Ball(11.0), 5)},
        {"problem": Problem(Logistic(), L2Ball(10.0), 6)},
    ]
    assert len({_plan(**change).digest() for change in changes}) == len(changes)
