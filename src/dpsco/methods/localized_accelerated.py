"""Localised accelerated minibatch SGD (after Gao et al. 2024), one silo: AC-SA in phases, each near the last one's end.

    w_0 = x_0;  for i = 1 .. k, on n_i = n / 2^i rows of its own, lam = lam_1 8^(i-1), W_i the domain within 2 L / lam
    of w_{i-1}:
      w = ag = w_{i-1};  for r = 1 .. R_i,  a = 2/(r+1), e = 4 v/(r(r+1)), v = 2 b, b = M + lam, den = e + (1-a^2) lam
        md = ((1-a)(lam+e) ag + a((1-a) lam + e) w) / den
        g  = 1/(q n_i) [sum over a Poisson(q) sample of clip(grad f(md, d), C) + noise] + lam (md - w_{i-1})
        w  = Proj_{W_i}((a lam md + ((1-a) lam + e) w - a g) / (lam + e)),    ag = a w + (1-a) ag
      w_i = ag
    output w_k

Guarantee: R_i Poisson-sampled Gaussian rounds compose to (epsilon, delta) by dp_accounting's privacy-loss
distributions, for any loss (clipping alone); phases share no rows, so each spends the whole budget. Samples are drawn
from the run's key; the denominator q n_i is public. The promise holds at the budget's delta alone.
Cost: about n^(9/8) gradients and n^(1/4) steps up to logarithms; rows in memory.
The paper's code was not at hand. From its structure: localisation, AC-SA (Ghadimi, Lan 2012; without its multi-stage
restarts), lam_1 = (L / (D_0 n)) max(sqrt(n), sqrt(p)/mu), the exponent 3 for one silo. The library's own: R_i =
ceil(c sqrt(b / lam)) with c = 4, k = ceil(log2(n) / 2), q the smallest rate whose noise is within 1.25 of a full
batch's by the Gaussian limit (the noise itself is the accountant's).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpsco.accounting.poisson import multiplier_by_limit
from dpsco.errors import InvalidArgument, positive
from dpsco.methods.method import GAUSSIAN, Algorithm, Schedule, bound, fresh, reach
from dpsco.methods.sampled import check_sampled, sampled_noise
from dpsco.planning.plan import Plan
from dpsco.problem import Domain
from dpsco.query import Array, Portion, Query, Released
from dpsco.release.calibration import Uneven
from dpsco.release.mechanisms import Independent

__all__ = ["LocalPhase", "LocalizedAccelerated", "State", "near"]

_NOISE_SHARE = 1.25
_PROJECTIONS = 50


@dataclass(frozen=True)
class LocalPhase:
    """The public numbers of one phase."""

    rows: int
    lam: float
    radius: float
    rounds: int
    rate: float


@dataclass(frozen=True, eq=False)
class State:
    """The phase's centre, its two iterates, the point asked about next and the last noisy gradient."""

    step: int
    x: Array
    """md."""
    centre: Array
    w: Array
    ag: Array
    nabla: Array


@dataclass(frozen=True)
class LocalizedAccelerated(Algorithm):
    """AC-SA in localised phases; ``regularisation`` is lam_1, ``factor`` the c of its numbers of rounds."""

    regularisation: float | None = None
    factor: float = 4.0

    name = "localized-accelerated"
    knobs = ("regularisation",)
    single_epoch: ClassVar[bool] = False
    reason = "every round adds Gaussian noise to the clipped sum of a secret sample, an accountant composes a phase's."

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("factor", self.factor, "It scales the number of rounds of a phase.")

    def check(self, plan: Plan, *, own_oracle: bool) -> None:
        check_sampled(self.name, plan)
        if plan.n < 2:
            raise InvalidArgument(
                f"Expected n={plan.n} >= 2 for algorithm={self.name!r}: its first phase has n/2 rows."
            )

    def gradients_each(self, plan: Plan) -> int:
        return max(math.ceil(phase.rate * phase.rounds) for phase in _phases(self, plan))

    def _formulas(self, plan: Plan) -> dict[str, float]:
        noise = math.sqrt(plan.problem.parameters) / plan.budget.mu
        return {"regularisation": bound(plan) / (reach(plan) * plan.n) * max(math.sqrt(plan.n), noise)}

    def _schedule(self, plan: Plan) -> Schedule:
        phases = _phases(self, plan)
        total = sum(phase.rounds for phase in phases)
        portions, paid, accounts = [], [], set()
        for phase, rows in zip(phases, fresh([phase.rows for phase in phases]), strict=True):
            noise, account = sampled_noise(plan, rows=phase.rows, rate=phase.rate, rounds=phase.rounds, total=total)
            portions += [Portion(rows.first, rows.last, phase.rate)] * phase.rounds
            paid += [noise] * phase.rounds
            accounts.add(account)
        rates = sorted({phase.rate for phase in phases})
        words = f"Poisson samples of {len(phases)} disjoint phases at rates {rates[0]:.3g} to {rates[-1]:.3g}"
        exact = accounts == {GAUSSIAN}
        accounting = GAUSSIAN if exact else max(accounts - {GAUSSIAN}) + ", each phase on rows of its own"
        together = max(phase.rounds for phase in phases) if exact else 1
        return Schedule(Uneven(tuple(paid)), Independent(total), portions, words, accounting, participations=together)

    def start(self, plan: Plan, x0: Array) -> State:
        return State(0, x0, x0, x0, x0, np.zeros_like(x0))

    def ask(self, plan: Plan, state: State) -> Query:
        return self._query(plan, state.step, (state.x,))

    def tell(self, plan: Plan, state: State, released: Released) -> State:
        phase, r = _place(self, plan, state.step)
        lam, centre, md = phase.lam, state.centre, state.x
        nabla = self._mean(plan, state, released)
        g = nabla + lam * (md - centre)
        a, e = _coefficients(plan, phase, r)
        moved = (a * lam * md + ((1 - a) * lam + e) * state.w - a * g) / (lam + e)
        w = near(plan.problem.domain, centre, phase.radius, moved)
        ag = a * w + (1 - a) * state.ag
        if r == phase.rounds:  # the next phase starts where this one ends
            return State(state.step + 1, ag, ag, ag, ag, nabla)
        a, e = _coefficients(plan, phase, r + 1)
        md = ((1 - a) * (lam + e) * ag + a * ((1 - a) * lam + e) * w) / (e + (1 - a * a) * lam)
        return State(state.step + 1, md, centre, w, ag, nabla)

    def output(self, state: State) -> Array:
        return state.ag


def _coefficients(plan: Plan, phase: LocalPhase, r: int) -> tuple[float, float]:
    """a and e of round r = 1 .. R."""
    return 2.0 / (r + 1), 8.0 * (plan.problem.smoothness + phase.lam) / (r * (r + 1))


@lru_cache(maxsize=32)
def _phases(algorithm: LocalizedAccelerated, plan: Plan) -> tuple[LocalPhase, ...]:
    n, M, L = plan.n, plan.problem.smoothness, bound(plan)
    lam, phases = algorithm._knob(plan, "regularisation"), []
    for i in range(1, max(1, math.ceil(math.log2(n) / 2)) + 1):
        rows = n >> i
        if not rows:
            break
        rounds = math.ceil(algorithm.factor * math.sqrt((M + lam) / lam))
        phases.append(LocalPhase(rows, lam, 2 * L / lam, rounds, _rate(plan, rows, rounds)))
        lam *= 8.0
    return tuple(phases)


def _rate(plan: Plan, rows: int, rounds: int) -> float:
    """Smallest rate, by the Gaussian limit, whose noise on the mean is within 1.25 of a full batch's."""
    if not plan.budget.private:
        return 1.0
    mu, full = plan.budget.mu, multiplier_by_limit(plan.budget.mu, 1.0, rounds)
    low, high = 1.0 / rows, 1.0
    for _ in range(40):
        rate = math.sqrt(low * high)
        fits = multiplier_by_limit(mu, rate, rounds) / rate <= _NOISE_SHARE * full
        low, high = (low, rate) if fits else (rate, high)
    return high


def _place(algorithm: LocalizedAccelerated, plan: Plan, step: int) -> tuple[LocalPhase, int]:
    """The phase of round ``step`` and its number r = 1 .. R in it."""
    for phase in _phases(algorithm, plan):
        if step < phase.rounds:
            return phase, step + 1
        step -= phase.rounds
    raise IndexError(step)


def near(domain: Domain, centre: Array, radius: float, x: Array) -> Array:
    """The point of the domain within ``radius`` of ``centre`` that is nearest to ``x`` (Dykstra's alternation)."""
    inside = domain.project(x)
    if float(np.linalg.norm(inside - centre)) <= radius:
        return inside
    p, q = np.zeros_like(x), np.zeros_like(x)
    for _ in range(_PROJECTIONS):
        y = _into_ball(x + p, centre, radius)
        p = x + p - y
        x = domain.project(y + q)
        q = y + q - x
    return x


def _into_ball(x: Array, centre: Array, radius: float) -> Array:
    distance = float(np.linalg.norm(x - centre))
    return x if distance <= radius else centre + (x - centre) * (radius / distance)
