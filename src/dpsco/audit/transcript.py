"""White-box audit: whether the noise that leaves ``release`` is the noise that was paid for.

On a worst-case pair, whose sums differ by ``difference`` in the round with the longest column of the strategy, the
log-likelihood ratio of a whole transcript is N(mu^2/2, mu^2) on one data set and N(-mu^2/2, mu^2) on the other. Noise
is independent from coordinate to coordinate, so each coordinate of a run is one transcript of that experiment. With
Sigma = sigma^2 W W', W the differences of the decoder's rows, and L its Cholesky factor:

    whitened  u = L^-1 (released - sum)                        i.i.d. N(0, 1) over rounds and coordinates
    ratio     s' Sigma^-1 (released - sum) -+ s' Sigma^-1 s / 2,    s = difference in the worst round

The rounds behind a survey are planned anew in each run: each run is whitened by the law of its own rounds, and its
log-likelihood ratio is taken in units of its own mu. The survey is a stage of one round.

Guarantee: a run whose noise is as declared fails with probability at most alpha. Half the noise divides the energy of n
whitened numbers by 4, so the test of the energy finds it with probability P[chi^2_n < 4 q], q its lower quantile. Where
that power is below 1/2 a check without a finding is "not tested". Short of time the check makes up to 16 runs to avoid
that: with 80 numbers the power is 0.99.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpsco.audit.audit_report import Check
from dpsco.audit.clock import Clock
from dpsco.audit.coordinates import shared_noise
from dpsco.audit.recording import observe
from dpsco.audit.subject import Subject, schedules
from dpsco.errors import DataError
from dpsco.methods.schedule import Schedule
from dpsco.query import Array

__all__ = ["judged", "transcript_check"]

_TRANSCRIPTS, _NUMBERS = 2_000, 20_000
"""At least so many coordinates, and numbers over all rounds: 10 % too little noise is then far beyond chance."""
_ALIKE = 500
_LEAST_POWER, _GOOD_POWER = 0.5, 0.99
"""The check has passed only if half the noise would have been caught at least so often; runs are made for so often."""
_TESTS = 5
"""Size, centre and spread of the noise, rounds that share it, and coordinates that do."""
_RUNS = 16
"""Runs that are made whatever the time, where fewer could not tell half the noise."""


def transcript_check(
    subject: Subject, features: Array, labels: Array, alpha: float, clock: Clock | None = None
) -> Check:
    """Run until there are enough transcripts or the time is up, then test the law of their noise."""
    plan, clock = subject.plan, clock or Clock()
    wanted = max(_TRANSCRIPTS, _NUMBERS // plan.rounds)
    ids, size = np.arange(len(labels)), 0
    parts: list[tuple[Schedule, Array]] = []
    runs = numbers = 0
    while size < wanted and not (clock.over and (runs >= _RUNS or _power(numbers, alpha) >= _GOOD_POWER)):
        clock.say(f"noise: {size:,} of {wanted:,} transcripts")
        seen = observe(lambda: subject.run(features, labels, ids, False))
        stages = schedules(plan, seen.released)
        if seen.error is not None or not stages:
            raise DataError(f"{seen.ending} Mend it before its noise is audited.")
        first, runs = 0, runs + 1
        for schedule in stages:
            parts.append((schedule, seen.noise(first, first + schedule.rounds)))
            first += schedule.rounds
            numbers += parts[-1][1].size
        size += parts[-1][1].shape[1]
    return judged(plan.budget.mu_per_record, parts, runs, alpha)


def judged(declared: float, parts: Sequence[tuple[Schedule, Array]], runs: int, alpha: float) -> Check:
    """Return the tests on noise of shape (rounds, transcripts), each with its schedule, at ``alpha`` in all."""
    from scipy.special import ndtri
    from scipy.stats import chi2

    white: dict[int, list[Array]] = {}
    by_width: dict[int, list[Array]] = {}
    ratios, mu = [], 0.0
    for schedule, noise in parts:
        u, ratio, cost = _whitened(schedule, noise)
        white.setdefault(schedule.rounds, []).append(u)
        by_width.setdefault(u.shape[1], []).append(u)
        ratios.append(ratio)
        mu = max(mu, cost)
    alike = {rounds: np.concatenate(found, axis=1) for rounds, found in white.items()}
    ratio = np.concatenate(ratios)
    each, size = alpha / _TESTS, len(ratio)
    deviation = -float(ndtri(each / 2))
    energy, total = sum(float(np.sum(u * u)) for u in alike.values()), sum(u.size for u in alike.values())
    spread = ratio.var(ddof=0)
    noise_found = math.sqrt(energy / total)
    # Few transcripts of one number of rounds have no normal correlations.
    compared = {rounds: u for rounds, u in alike.items() if rounds > 1 and (u.shape[1] >= _ALIKE or len(alike) == 1)}
    pairs = max(1, sum(rounds * (rounds - 1) // 2 for rounds in compared))
    apart = -float(ndtri(each / (2 * pairs))) * 1.05
    power = _power(total, alpha)
    findings = []
    if mu > declared * (1 + 1e-9):
        findings.append(f"sigma is calibrated for mu = {mu:.5g}, but mu = {declared:.5g} was declared.")
    if not chi2.ppf(each / 2, total) <= energy <= chi2.isf(each / 2, total):
        amount = "less" if noise_found < 1 else "more"
        findings.append(f"the noise is {noise_found:.4f} times as large as declared: {amount} than was paid for.")
    if abs(float(ratio.mean())) > deviation / math.sqrt(size):
        findings.append("the noise is not centred: the log-likelihood ratio's mean is not mu^2/2 and -mu^2/2.")
    if not chi2.ppf(each / 2, size) <= spread * size <= chi2.isf(each / 2, size):
        findings.append(f"the log-likelihood ratio has {spread:.4f} times the variance mu^2 that was declared.")
    largest, needed = max(((_correlation(u), apart / math.sqrt(u.shape[1])) for u in compared.values()), default=(0, 1))
    if largest > needed:
        findings.append(f"whitened noise of two rounds has correlation {largest:.3f}: noise is shared between rounds.")
    shared = (shared_noise(found, each / len(by_width)) for found in by_width.values())
    findings += [text for text in shared if text is not None]
    passed = not findings
    blind = passed and power < _LEAST_POWER
    if blind:
        findings.append(f"{total:,} numbers are too few to tell half the noise from the declared: allow more seconds.")
    return Check(
        "noise",
        "is the noise that leaves as large, and as independent, as the guarantee needs?",
        passed,
        f"noise {noise_found:.4f} of the declared; on the worst pair mu = {mu:.5g} of {declared:.5g} declared, "
        f"log-likelihood ratio with mean {ratio.mean() + mu / 2:+.4f} mu (expected {mu / 2:+.4f}) and variance "
        f"{spread:.4f} mu^2",
        f"alpha = {alpha:g} over five tests; {size:,} transcripts of {_listed(sorted(alike))} rounds from {runs} runs; "
        f"half the noise would be caught with probability {power:.2f}",
        tuple(findings),
        tested=not blind,
    )


def _power(numbers: int, alpha: float) -> float:
    """Return how often the energy of so many numbers tells half the noise, at the share of ``alpha`` of its side."""
    from scipy.stats import chi2

    return float(chi2.cdf(4.0 * chi2.ppf(alpha / (2 * _TESTS), numbers), numbers)) if numbers else 0.0


def _whitened(schedule: Schedule, noise: Array) -> tuple[Array, Array, float]:
    """Return the whitened noise, the noise of the worst pair's log-likelihood ratio in units of mu, and that mu."""
    claimed = schedule.most_noise
    w = np.diff(schedule.mechanism.decoder(), axis=0, prepend=0.0)
    factor = np.linalg.cholesky(claimed.sigma**2 * (w @ w.T))
    inverse = np.linalg.solve(factor, np.eye(schedule.rounds))
    costs = claimed.difference * np.linalg.norm(inverse, axis=0)
    worst = int(np.argmax(costs))
    u = inverse @ noise
    mu = float(costs[worst])
    return u, (claimed.difference * inverse[:, worst] / mu) @ u, mu


def _correlation(u: Array) -> float:
    share = (u @ u.T) / u.shape[1]
    return float(np.max(np.abs(share - np.diag(np.diag(share))), initial=0.0))


def _listed(rounds: list[int]) -> str:
    return ", ".join(map(str, rounds))
