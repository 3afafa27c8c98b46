"""Phased-ERM with a solver of your choice (Zhang et al. 2022 on Feldman, Koren, Talwar 2020): noise on each minimiser.

    w_0 = x_0;  for i = 1 .. k, on n_i = n / 2^i fresh rows, eta_i = step_size / 4^i, lam = 2 / (eta_i n_i):
        F_i(v) = mean of f(v, d) + lam/2 |v - w_{i-1}|^2
        v      = a point with |v - argmin F_i| <= tau_i, certified
        w_i    = Proj(v + N(0, sigma_i^2 I)),     sigma_i = (S L / (lam n_i) + 2 tau_i) / mu
    output w_k

Guarantee, for convex, L-Lipschitz losses: F_i is lam-strongly convex, so one changed row moves its minimiser by at most
S L / (lam n_i), and the computed point by 2 tau_i more. Phases share no rows: each spends the whole mu, and the phase
outputs together are mu-GDP. The certificate is Nesterov's gradient-mapping inequality, with b = M + lam,

    v+ = Proj(v - grad F_i(v) / b),      |v+ - argmin F_i| <= (b / lam) |v - v+|,

so that no solver, randomised or not, adds to delta.
Solvers
    "svrg"          m = ceil(4 b / lam) single-row steps of 1/(4 b) about a snapshot, a fixed number of times
    "accelerated"   gradient descent with momentum on the whole phase, a fixed number of steps
The number of steps is public: for "accelerated" what its rate needs in the worst case, for "svrg" one that halves the
distance each time. A solver that is not certified then goes on until it is, "svrg" with "accelerated" if it has to,
whose rate holds for all rows: that a phase ends says nothing about them. How long it takes depends on the rows, so
these steps are not counted. A plan is refused where rounding could keep the certificate from coming true.
Cost: about n polylog gradients and sqrt(n) polylog steps with "svrg"; rows in memory, a phase at a time.
The paper's own constants were not at hand: tau_i = L eta_i / 40 (a tenth more noise under zero-out), the step size
(phases.py), the numbers of steps and the limit of ten phases are the library's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsco.accounting.budget import Budget
from dpsco.errors import DataError, InvalidArgument, one_of
from dpsco.methods.method import Phase, RowAccess
from dpsco.methods.phases import PhasedMethod, phase_rows, phased_schedule, rounding, step_formula, summation
from dpsco.methods.schedule import Schedule
from dpsco.problem import Problem
from dpsco.query import Array, Batch, Clipped, Query

__all__ = ["PhasedERM", "Subproblem"]

SOLVERS = ("svrg", "accelerated")
_TOLERANCE = 1 / 40
_EXTRA = 20
"""Snapshots more that "svrg" may take before "accelerated" takes over."""
_MOST = 10
"""Times as many steps as the rate of "accelerated" needs: room for rounding."""
_REACHED = 1 / 8
"""Share of tau that rounding may be in a certificate."""


@dataclass(frozen=True)
class Subproblem:
    """The public numbers of one phase."""

    rows: int
    eta: float
    lam: float
    smoothness: float
    """b = M + lam."""
    tau: float
    gap: float
    """How far the minimiser can be from the start of the phase: min(diameter, L / lam)."""
    inner: int
    """Single-row steps between two snapshots of "svrg"."""
    rounds: int
    """Public number of rounds: snapshots of "svrg", steps of "accelerated"."""
    worst: int
    """Steps of "accelerated" that are enough for all rows, by its rate."""


@dataclass(frozen=True, kw_only=True)
class PhasedERM(PhasedMethod):
    """Regularised minimisers in phases with noise on each.

    Parameters
    ----------
    clip : float
        Bound on one row's gradient.
    step_size : float, optional
        eta, of which phase i takes eta / 4^i; by formula unless given.
    solver : {"svrg", "accelerated"}
    """

    solver: str = "svrg"

    name: ClassVar[str] = "phased-erm"
    single_epoch: ClassVar[bool] = False
    reason: ClassVar[str] = (
        "minimisers of convex, regularised losses are stable, and Gaussian noise hides what one row does to them."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("solver", self.solver, SOLVERS)

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return the gradients of the first phase per row, rounded up."""
        first = self.subproblem(schedule.problem, schedule.n, schedule.settings["step_size"], 0)
        per_row = 1 + 2 * first.inner / first.rows if self.solver == "svrg" else 1
        return math.ceil(first.rounds * per_row)

    def subproblem(self, problem: Problem, n: int, step_size: float, phase: int) -> Subproblem:
        """Return the numbers of phase i = ``phase`` + 1."""
        L, n_i = self._lipschitz(problem), phase_rows(n)[phase]
        eta = step_size / 4.0 ** (phase + 1)
        lam = 2.0 / (eta * n_i)
        b, tau = problem.smoothness + lam, _TOLERANCE * L * eta
        gap = min(problem.diameter, L / lam)
        wanted = (tau * lam) ** 2 / (2 * b)  # F(v) - F* up to here is enough for the certificate
        worst = math.ceil(math.sqrt(b / lam) * math.log(max(math.e, (L * gap + lam * gap**2) / wanted)))
        halvings = math.ceil(math.log2(max(2.0, (b / lam) * gap / tau)))
        rounds = halvings if self.solver == "svrg" else worst
        return Subproblem(n_i, eta, lam, b, tau, gap, inner=math.ceil(4 * b / lam), rounds=rounds, worst=worst)

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Halve the rows from phase to phase; calibrate noise to the stability of each minimiser."""
        self._check_convex(problem, budget)
        rows, L = phase_rows(n), self._lipschitz(problem)
        settings = self._setting("step_size", step_formula(problem, n, budget, L, rows))
        moved = []
        for i, n_i in enumerate(rows):
            at = self.subproblem(problem, n, settings["step_size"], i)
            certificate = rounding(problem, 1, L / at.smoothness) * at.smoothness / at.lam
            if budget.private and certificate > _REACHED * at.tau:
                raise InvalidArgument(
                    f"Phase {i + 1} of method={self.name!r} is too fine for float64: its solver must come within "
                    f"{at.tau:.3g} of a minimiser, and rounding could be {certificate:.3g}. Use a larger step_size."
                )
            certificate += summation(n_i, L) / at.lam
            moved.append((L / (at.lam * n_i), at.tau + certificate))
        return phased_schedule(problem, n, budget, settings, rows, moved, "rows, several passes over each")

    def answer(self, schedule: Schedule, query: Query, batch: Batch, rows: RowAccess) -> Clipped:
        """Return the certified minimiser of the phase: SENSITIVE until it is released."""
        problem = schedule.problem
        phase = rows.phase(batch, query.size, self._lipschitz(problem))
        at = self.subproblem(problem, schedule.n, schedule.settings["step_size"], query.step)
        work = _Solver(problem, at, phase, query.points[0], rows, query.step)
        return Clipped(work.svrg() if self.solver == "svrg" else work.accelerated(), phase.rows)


class _Solver:
    """SENSITIVE: one phase being solved."""

    def __init__(
        self, problem: Problem, at: Subproblem, phase: Phase, centre: Array, rows: RowAccess, step: int
    ) -> None:
        self._project = problem.domain.project
        self._at, self._phase, self._centre, self._rows, self._step = at, phase, centre, rows, step

    def svrg(self) -> Array:
        """Stochastic variance-reduced gradient steps about one snapshot after another."""
        at, phase, v = self._at, self._phase, self._centre
        lam, move = at.lam, 1.0 / (4.0 * at.smoothness)
        for part in range(at.rounds + _EXTRA):
            full = phase.mean_gradient(v)
            end = self._certified(v, full)
            if part >= at.rounds:
                if end is not None:
                    return end
                phase.uncounted()
            x = v
            for row in self._rows.indices(self._step, part, phase.rows, at.inner).tolist():
                now, then = phase.row_gradient(row, x, v)
                x = self._project(x - move * (now - then + full + lam * (x - self._centre)))
            v = x
        return self.accelerated()

    def accelerated(self) -> Array:
        """Nesterov's constant momentum for strongly convex functions; its rate holds for all rows."""
        at, phase = self._at, self._phase
        root = math.sqrt(at.smoothness / at.lam)
        momentum = (root - 1.0) / (root + 1.0)
        v = y = self._centre
        for step in range(_MOST * at.worst):
            gradient = phase.mean_gradient(y)
            end = self._certified(y, gradient)
            if step >= at.rounds:
                if end is not None:
                    return end
                phase.uncounted()
            after = self._project(y - (gradient + at.lam * (y - self._centre)) / at.smoothness)
            v, y = after, after + momentum * (after - v)
        raise _not_certified()

    def _certified(self, v: Array, gradient: Array) -> Array | None:
        """v+ if it is within tau of the minimiser for certain."""
        at = self._at
        after = self._project(v - (gradient + at.lam * (v - self._centre)) / at.smoothness)
        distance = float((v - after) @ (v - after)) ** 0.5
        return after if (at.smoothness / at.lam) * distance <= at.tau else None


def _not_certified() -> DataError:
    """Not where noise is paid for: there the schedule has refused numbers for which a rate that holds could fail."""
    return DataError(
        "The solver of a phase could not certify its minimiser, so nothing was released. Use a larger step_size."
    )
