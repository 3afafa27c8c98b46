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
from the run's key; the denominator q n_i is public. The guarantee holds at the budget's delta alone.
Cost: about n^(9/8) gradients and n^(1/4) steps up to logarithms; rows in memory.
The paper's code was not at hand. From its structure: localisation, AC-SA (Ghadimi, Lan 2012; without its multi-stage
restarts), lam_1 = (L / (D_0 n)) max(sqrt(n), sqrt(p)/mu), the exponent 3 for one silo. The library's own: R_i =
ceil(c sqrt(b / lam)) with c = 4, k = ceil(log2(n) / 2), q the smallest rate whose noise is within 1.25 of a full
batch's by the Gaussian limit (the noise itself is the accountant's).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.accounting.composition import EXACT_GAUSSIAN, Composition
from dpsco.accounting.poisson import multiplier_by_limit
from dpsco.errors import InvalidArgument, positive
from dpsco.methods.method import Method, gradient_bound, mean_of, reach
from dpsco.methods.sampled import check_sampled, sampled_noise
from dpsco.methods.schedule import Schedule, fresh_portions
from dpsco.problem import Domain, Problem
from dpsco.query import Array, Portion, Query, Released
from dpsco.release.calibration import Uneven
from dpsco.release.mechanisms import Independent

__all__ = ["LocalPhase", "LocalizedAccelerated", "LocalizedSchedule", "LocalizedState", "near"]

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
class LocalizedState:
    """The phase's centre, its two iterates, the point asked about next and the last noisy gradient."""

    step: int
    x: Array
    """md."""
    centre: Array
    w: Array
    ag: Array
    nabla: Array


@dataclass(frozen=True, kw_only=True)
class LocalizedAccelerated(Method):
    """AC-SA in localised phases.

    Parameters
    ----------
    clip : float
        Bound on one row's gradient.
    regularisation : float, optional
        lam_1; by formula unless given.
    factor : float
        The c of the numbers of rounds.
    """

    regularisation: float | None = None
    factor: float = 4.0

    name: ClassVar[str] = "localized-accelerated"
    tunable: ClassVar[tuple[str, ...]] = ("regularisation",)
    single_epoch: ClassVar[bool] = False
    reason: ClassVar[str] = (
        "every round adds Gaussian noise to the clipped sum of a secret sample; an accountant composes a phase's."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "factor", positive("factor", self.factor, "It scales the rounds of a phase."))

    def phases(self, problem: Problem, n: int, budget: Budget, regularisation: float) -> tuple[LocalPhase, ...]:
        """Return the public numbers of every phase."""
        M, L = problem.smoothness, gradient_bound(problem, self.clip)
        lam, phases = regularisation, []
        for i in range(1, max(1, math.ceil(math.log2(n) / 2)) + 1):
            rows = n >> i
            if not rows:
                break
            rounds = math.ceil(min(self.factor * math.sqrt((M + lam) / lam), Independent.most_rounds + 1))
            Independent(rounds)  # refuses too many, before an accountant composes them
            phases.append(LocalPhase(rows, lam, 2 * L / lam, rounds, _rate(budget, rows, rounds)))
            lam *= 8.0
        return tuple(phases)

    def schedule(self, problem: Problem, n: int, budget: Budget) -> LocalizedSchedule:
        """Give each phase rows of its own, and each of its rounds a Poisson sample of them."""
        check_sampled(self.name, budget)
        if n < 2:
            raise InvalidArgument(f"Expected n={n} >= 2 for method={self.name!r}: its first phase has n/2 rows.")
        noise = math.sqrt(problem.parameters) / budget.mu
        formula = gradient_bound(problem, self.clip) / (reach(problem) * n) * max(math.sqrt(n), noise)
        settings = self._setting("regularisation", formula)
        phases = self.phases(problem, n, budget, settings["regularisation"])
        total = sum(phase.rounds for phase in phases)
        portions, calibrations, accounts = [], [], set()
        for phase, rows in zip(phases, fresh_portions([phase.rows for phase in phases]), strict=True):
            calibration, account = sampled_noise(
                budget,
                clip=self.clip,
                dimension=problem.parameters,
                rows=phase.rows,
                rate=phase.rate,
                rounds=phase.rounds,
                total=total,
            )
            portions += [Portion(rows.first, rows.last, phase.rate)] * phase.rounds
            calibrations += [calibration] * phase.rounds
            accounts.add(account)
        rates = sorted({phase.rate for phase in phases})
        sampled = [account.text for account in accounts if not account.gaussian]
        return LocalizedSchedule(
            problem=problem,
            n=n,
            budget=budget,
            settings=settings,
            calibration=Uneven(tuple(calibrations)),
            mechanism=Independent(total),
            portions=portions,
            sampling=f"Poisson samples of {len(phases)} disjoint phases at rates {rates[0]:.3g} to {rates[-1]:.3g}",
            accounting=Composition(max(sampled) + ", each phase on rows of its own", gaussian=False)
            if sampled
            else EXACT_GAUSSIAN,
            participations=1 if sampled else max(phase.rounds for phase in phases),
            phases=phases,
        )

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return the largest expected number of samples that one row is in."""
        return max(math.ceil(phase.rate * phase.rounds) for phase in _phases(schedule))

    def start(self, schedule: Schedule, x0: Array) -> LocalizedState:
        """Set the centre of the first phase to the start."""
        return LocalizedState(0, x0, x0, x0, x0, np.zeros_like(x0))

    def ask(self, schedule: Schedule, state: LocalizedState) -> Query:
        """Ask for the gradient at the middle point."""
        return self._query(schedule, state.step, (state.x,))

    def tell(self, schedule: Schedule, state: LocalizedState, released: Released) -> LocalizedState:
        """Take one step of AC-SA; a finished phase is the centre of the next."""
        problem = schedule.problem
        phase, r = _place(_phases(schedule), state.step)
        lam, centre, md = phase.lam, state.centre, state.x
        nabla = mean_of(schedule, state, released)
        g = nabla + lam * (md - centre)
        a, e = _coefficients(problem, phase, r)
        moved = (a * lam * md + ((1 - a) * lam + e) * state.w - a * g) / (lam + e)
        w = near(problem.domain, centre, phase.radius, moved)
        ag = a * w + (1 - a) * state.ag
        if r == phase.rounds:  # the next phase starts where this one ends
            return LocalizedState(state.step + 1, ag, ag, ag, ag, nabla)
        a, e = _coefficients(problem, phase, r + 1)
        md = ((1 - a) * (lam + e) * ag + a * ((1 - a) * lam + e) * w) / (e + (1 - a * a) * lam)
        return LocalizedState(state.step + 1, md, centre, w, ag, nabla)

    def output(self, state: LocalizedState) -> Array:
        """Return the aggregated iterate."""
        return state.ag


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalizedSchedule(Schedule):
    """A schedule with the public numbers of its phases."""

    phases: tuple[LocalPhase, ...]


def _phases(schedule: Schedule) -> tuple[LocalPhase, ...]:
    if not isinstance(schedule, LocalizedSchedule):
        raise InvalidArgument("Expected the schedule that LocalizedAccelerated.schedule makes.")
    return schedule.phases


def _coefficients(problem: Problem, phase: LocalPhase, r: int) -> tuple[float, float]:
    """Return a and e of round r = 1 .. R."""
    return 2.0 / (r + 1), 8.0 * (problem.smoothness + phase.lam) / (r * (r + 1))


def _rate(budget: Budget, rows: int, rounds: int) -> float:
    """Smallest rate, by the Gaussian limit, whose noise on the mean is within 1.25 of a full batch's."""
    if not budget.private:
        return 1.0
    mu, full = budget.mu, multiplier_by_limit(budget.mu, 1.0, rounds)
    low, high = 1.0 / rows, 1.0
    for _ in range(40):
        rate = math.sqrt(low * high)
        fits = multiplier_by_limit(mu, rate, rounds) / rate <= _NOISE_SHARE * full
        low, high = (low, rate) if fits else (rate, high)
    return high


def _place(phases: tuple[LocalPhase, ...], step: int) -> tuple[LocalPhase, int]:
    """Return the phase of round ``step`` and its number r = 1 .. R in it."""
    for phase in phases:
        if step < phase.rounds:
            return phase, step + 1
        step -= phase.rounds
    raise IndexError(step)


def near(domain: Domain, centre: Array, radius: float, x: Array) -> Array:
    """Return the point of the domain within ``radius`` of ``centre`` that is nearest to ``x`` (Dykstra)."""
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
