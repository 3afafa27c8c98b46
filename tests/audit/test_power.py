"""Mark 17: sound builds stay at or below their claim, builds with too little noise are caught.

Canaries: PrivateLinearSVC(epsilon=4, delta=1e-5, rounds=3) on the 1,797 handwritten digits of scikit-learn (real data,
zeros to fours against the rest), about 500 canaries in one run, confidence 1 - 1e-6. Noise: alpha = 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest

import dpsco
from dpsco.audit.canaries import estimator_guesses, judged_guesses
from dpsco.audit.canary_bounds import wanted_canaries
from dpsco.audit.subject import estimator_subject, plan_subject
from dpsco.audit.transcript import transcript_check
from dpsco.release.releaser import Releaser

ALPHA, SEEDS = 1e-6, 200


def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    return features / 64.0, (labels >= 5).astype(float)


def less_noise(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    draw = Releaser._draw
    monkeypatch.setattr(Releaser, "_draw", lambda self, *rows: draw(self, *rows) / factor)


def canary_audits(seeds: int) -> tuple[int, int, float]:
    """Passed audits, canaries of each, and the largest lower bound on epsilon as a share of the claim."""
    features, labels = digits()
    model = dpsco.PrivateLinearSVC(epsilon=4.0, delta=1e-5, classes=[0, 1], fit_intercept=False, rounds=3)
    plan = estimator_subject(model, features, labels).plan
    wanted = wanted_canaries(plan.budget.mu_per_record, ALPHA)
    passed, largest = 0, 0.0
    for seed in range(seeds):
        found = estimator_guesses(model, features, labels, wanted, np.random.default_rng(seed))
        assert found.runs == 1
        check = judged_guesses(plan, found, ALPHA)
        passed += check.passed
        largest = max(largest, float(check.measured.split("epsilon >= ")[1].split(" ")[0]))
    return passed, wanted, largest / plan.budget.epsilon


def noise_audits(runs: int) -> int:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 500)
    subject = plan_subject(
        dpsco.Plan(problem, 2000, dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=8, beta=1.0, clip=1.0))
    )
    rows = np.zeros((8, 500)), np.zeros(8)
    return sum(transcript_check(subject, *rows, ALPHA).passed for _ in range(runs))


@pytest.mark.slow
def test_200_of_200_canary_audits_are_at_or_below_the_claim(false_alarms, mark_figure) -> None:
    false_alarms(SEEDS * ALPHA / 10)  # a canary is a little weaker than the claim: each fails far below alpha
    passed, canaries, largest = canary_audits(SEEDS)
    assert passed == SEEDS
    mark_figure(17, f"{passed} of {SEEDS} at or below epsilon = 4 ({canaries} canaries, largest {largest:.2f} of it)")


@pytest.mark.slow
def test_half_the_noise_is_caught_by_canaries(monkeypatch, mark_figure) -> None:
    less_noise(monkeypatch, 2.0)
    passed, _, _ = canary_audits(SEEDS)
    assert passed <= 0.05 * SEEDS
    mark_figure(17, f"sigma/2 caught by canaries in {SEEDS - passed} of {SEEDS}")


@pytest.mark.slow
def test_ten_percent_too_little_noise_is_caught_in_the_transcript(monkeypatch, false_alarms, mark_figure) -> None:
    false_alarms(20 * ALPHA)
    assert noise_audits(20) == 20
    less_noise(monkeypatch, 1.1)
    passed = noise_audits(SEEDS)
    assert passed <= 0.05 * SEEDS
    mark_figure(17, f"sigma/1.1 caught in the transcript in {SEEDS - passed} of {SEEDS}")
