"""Budget: what it takes, what it refuses, and the mu it stands for."""

from __future__ import annotations

import math

import pytest

import dpsco
from dpsco import Budget, InvalidArgument


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, -math.inf, True, "1", None, [1.0]])
def test_epsilon_must_be_a_positive_number(epsilon: object) -> None:
    with pytest.raises(InvalidArgument, match="epsilon"):
        Budget(epsilon=epsilon, delta=1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [0.0, -1e-9, 1.0, 1.5, math.nan, math.inf, True, "1e-6", None])
def test_delta_must_be_a_probability_above_zero(delta: object) -> None:
    with pytest.raises(InvalidArgument, match="delta"):
        Budget(epsilon=1.0, delta=delta)  # type: ignore[arg-type]


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-301), (1.0, 5e-324), (1e101, 1e-6), (1e308, 1e-9)])
def test_a_guarantee_beyond_float64_is_refused_before_anything_is_computed(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidArgument, match="float64"):
        Budget(epsilon, delta)


@pytest.mark.parametrize("adjacency", ["replace-one", "", None, 1, ["zero-out"]])
def test_unknown_adjacency_is_refused_and_the_choices_are_named(adjacency: object) -> None:
    with pytest.raises(InvalidArgument, match="zero-out"):
        Budget(epsilon=1.0, delta=1e-6, adjacency=adjacency)  # type: ignore[arg-type]


@pytest.mark.parametrize("records", [0, -1, 1.5, math.inf, True, "2", None])
def test_records_must_be_a_whole_number(records: object) -> None:
    with pytest.raises(InvalidArgument, match="records"):
        Budget(epsilon=1.0, delta=1e-6, records=records)  # type: ignore[arg-type]


def test_a_group_pays_for_each_of_its_records() -> None:
    whole, shared = Budget(1.0, 1e-6), Budget(1.0, 1e-6, records=5)
    assert shared.mu == whole.mu
    assert shared.mu_per_record == pytest.approx(whole.mu / 5, rel=1e-15)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (12.0, 1e-5)])
def test_mu_is_that_of_the_exact_curve(epsilon: float, delta: float) -> None:
    """delta(epsilon) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), in 40 digits."""
    import mpmath

    with mpmath.workdps(40):
        mu = mpmath.mpf(Budget(epsilon, delta).mu)
        reached = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        assert delta * (1 - mpmath.mpf(10) ** -9) <= reached <= delta


def test_replace_moves_a_sum_twice_as_far() -> None:
    assert [Budget(1.0, 1e-6, a).clips_apart for a in ("zero-out", "add-remove", "replace")] == [1.0, 1.0, 2.0]


def test_an_infinite_epsilon_is_not_private() -> None:
    assert not Budget(math.inf, 1e-6).private
    assert Budget(1e3, 1e-6).private


def test_an_accountant_that_is_too_old_is_refused_in_our_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dp_accounting")
    from dpsco.accounting import poisson

    monkeypatch.setattr(poisson, "version", lambda name: "0.4.4")
    with pytest.raises(dpsco.ExtraMissing, match=r"dp-accounting 0\.5 or newer; 0\.4\.4"):
        poisson.epsilon_of_sampled(1.2345, delta=1e-6, rate=0.1, rounds=3, adjacency="zero-out")
