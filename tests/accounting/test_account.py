"""Account: what a run costs, which runs it takes, and when they are charged."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import dpsco
from dpsco import Account, AccountError, Budget, InvalidArgument
from dpsco.accounting import gaussian

LIMIT = Budget(epsilon=3.0, delta=1e-6)


def test_an_account_is_exact_on_equal_runs(account: Account) -> None:
    """k equal runs compose to sqrt(k) mu; the first run beyond the limit is refused."""
    run = Budget(epsilon=0.7, delta=1e-6)
    affordable = math.floor((LIMIT.mu / run.mu) ** 2)
    for k in range(affordable):
        account.charge(f"run {k}", run)
    assert account.mu == pytest.approx(math.sqrt(affordable) * run.mu, rel=1e-12)
    with pytest.raises(AccountError):
        account.charge("one too many", run)
    assert len(account.runs) == affordable


def test_a_run_is_charged_once_under_its_name(account: Account) -> None:
    account.charge("week 1", Budget(1.0, 1e-6))
    before = account.mu
    account.charge("week 1", Budget(1.0, 1e-6))
    assert account.mu == before


def test_another_budget_under_a_known_name_is_not_free(account: Account) -> None:
    account.charge("week 1", Budget(0.1, 1e-6))
    with pytest.raises(AccountError):
        account.charge("week 1", Budget(2.0, 1e-6))


def test_what_remains_can_be_spent_whole_and_then_nothing(account: Account) -> None:
    account.charge("first", Budget(1.0, 1e-6))
    account.charge("rest", account.remaining())
    assert account.epsilon == pytest.approx(LIMIT.epsilon, rel=1e-9)
    with pytest.raises(AccountError):
        account.charge("more", Budget(0.01, 1e-6))


@pytest.mark.parametrize(
    ("limit", "run"),
    [
        (Budget(30.0, 1e-6), Budget(1.0, 1e-6)),
        (Budget(22.0, 1e-6), Budget(1.0, 1e-6)),
        (Budget(3.0, 1e-12), Budget(0.5, 1e-2)),
        (Budget(10.0, 1e-25), Budget(1.0, 1e-3)),
    ],
)
def test_what_float64_noise_loses_is_paid_at_the_epsilon_of_the_limit(
    tmp_path: Path, limit: Budget, run: Budget
) -> None:
    """Every run may change either law by l: Gaussian delta + (1 + e^epsilon) sum l <= delta at the limit's epsilon."""
    account, loss = Account.create(tmp_path / "people.json", limit), math.exp(run.log_float_loss)
    with suppress(AccountError):
        for k in range(20):
            account.charge(f"run {k}", run)
        account.charge("rest", account.remaining())
    lost = (1 + math.exp(limit.epsilon)) * len([entry for entry in account.runs if entry["id"] != "rest"]) * loss
    assert lost <= limit.delta
    if account.runs:
        assert gaussian.delta_of(account.mu, limit.epsilon) + lost <= limit.delta * (1 + 1e-9)
        assert account.epsilon <= limit.epsilon * (1 + 1e-9)


def test_what_remains_pays_for_its_own_loss(tmp_path: Path) -> None:
    account = Account.create(tmp_path / "people.json", Budget(24.0, 1e-6))
    account.charge("small", Budget(1.0, 1e-6))
    account.charge("most", Budget(23.5, 1e-6))
    account.charge("rest", account.remaining())
    assert account.epsilon <= 24.0 * (1 + 1e-12)


@pytest.mark.parametrize("other", [Budget(1.0, 1e-6, "replace"), Budget(1.0, 1e-6, records=2), Budget(math.inf, 1e-6)])
def test_runs_with_another_meaning_are_refused(account: Account, other: Budget) -> None:
    with pytest.raises(AccountError):
        account.charge("odd", other)
    assert account.runs == []


def test_an_account_without_a_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises((AccountError, InvalidArgument)):
        Account.create(tmp_path / "a.json", limit=Budget(math.inf, 1e-6)).charge("x", Budget(1.0, 1e-6))


def test_reopening_with_another_limit_is_refused(account: Account) -> None:
    account.charge("week 1", Budget(1.0, 1e-6))
    with pytest.raises(AccountError):
        Account(account.path, limit=Budget(30.0, 1e-6))


def test_a_deleted_account_does_not_start_anew(account: Account) -> None:
    account.charge("one", Budget(2.5, 1e-6))
    account.path.unlink()
    for again in (lambda: Account(account.path, limit=LIMIT), lambda: account.charge("two", Budget(2.5, 1e-6))):
        with pytest.raises(AccountError, match=r"no account.*restore"):
            again()
    assert not account.path.exists()


def test_an_account_is_created_once(account: Account) -> None:
    account.charge("one", Budget(1.0, 1e-6))
    with pytest.raises(AccountError, match="already"):
        Account.create(account.path, limit=LIMIT)
    assert len(account.runs) == 1


def test_an_account_opens_with_the_limit_it_was_created_with(account: Account) -> None:
    assert Account(account.path).limit == LIMIT


def test_training_is_charged_before_the_first_release_and_refused_when_the_account_is_empty(account: Account) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(64, 3)), rng.integers(0, 2, 64)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), 3)
    plan = dpsco.Plan(problem=problem, n=64, budget=LIMIT, method=dpsco.AcceleratedSRGD(rounds=4, beta=0.25, clip=1.0))
    charged: list[int] = []
    dpsco.train(plan, dpsco.stream(X, y), account=account, on_round=lambda _: charged.append(len(account.runs)))
    assert charged == [1, 1, 1, 1]
    with pytest.raises(AccountError):
        dpsco.train(plan, dpsco.stream(X, y), account=account, on_round=lambda _: charged.append(-1))
    assert -1 not in charged


def test_a_seeded_run_cannot_be_charged(account: Account) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), 3)
    plan = dpsco.Plan(problem=problem, n=64, budget=LIMIT, method=dpsco.AcceleratedSRGD(rounds=4, beta=0.25, clip=1.0))
    with pytest.raises(AccountError):
        dpsco.train(plan, dpsco.stream(np.zeros((64, 3)), np.zeros(64)), account=account, key=bytes(32))
    assert account.runs == []
