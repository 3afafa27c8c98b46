"""Phased-SGD (Feldman, Koren, Talwar 2020, Algorithm 2): SGD in phases, noise on the result of each.

    w_0 = x_0;  for i = 1 .. k, on n_i = n / 2^i fresh rows, eta_i = step_size / 4^i:
        v = w_{i-1};  for each row d:  acc += v;  v = Proj(v - eta_i grad f(v, d))
        w_i = Proj(acc / n_i + N(0, sigma_i^2 I)),     sigma_i = S L eta_i / mu
    output w_k

Guarantee, for convex, L-Lipschitz, M-smooth losses and eta_i <= 2/M: a gradient step is non-expansive, so one changed
row moves every later iterate, hence their average, by at most S L eta_i. Phases share no rows, so each spends the whole
mu and the phase outputs together are mu-GDP. What happens inside a phase is not released.
``constants="paper"`` has the paper's noise 4 L eta_i / rho with rho = mu, twice what replace-one needs, and its step
size (D_0/L) min(4/sqrt(n), mu/sqrt(p)). ``"tight"`` has the noise above and the step size that minimises the bound
(phases.py).
Cost: one gradient per row; n steps.
At most ten phases (the library's own): the paper's ceil(log2 n) would go below what float64 resolves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsco.accounting.budget import Budget
from dpsco.errors import one_of
from dpsco.methods.method import RowAccess, reach
from dpsco.methods.phases import PhasedMethod, phase_rows, phased_schedule, rounding, step_formula
from dpsco.methods.schedule import Schedule
from dpsco.methods.unaccelerated_srgd import CONSTANTS
from dpsco.problem import Problem
from dpsco.query import Batch, Clipped, Query

__all__ = ["PhasedSGD"]


@dataclass(frozen=True, kw_only=True)
class PhasedSGD(PhasedMethod):
    """SGD in phases with noise on the output of each.

    Parameters
    ----------
    clip : float
        Bound on one row's gradient.
    step_size : float, optional
        eta, of which phase i takes eta / 4^i; by formula unless given.
    constants : {"tight", "paper"}
        Noise and formula as proved here, or as the paper has them.
    """

    constants: str = "tight"

    name: ClassVar[str] = "phased-sgd"
    reason: ClassVar[str] = (
        "SGD on convex, smooth losses is stable, and Gaussian noise hides what one row does to a phase's output."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("constants", self.constants, CONSTANTS)

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Halve the rows from phase to phase; calibrate noise to the stability of SGD."""
        self._check_convex(problem, budget)
        rows, L, largest = phase_rows(n), self._lipschitz(problem), 4.0 * self._largest_step(problem)
        if self.constants == "paper":
            mu = budget.mu_per_record
            formula = reach(problem) / L * min(4 / math.sqrt(n), mu / math.sqrt(problem.parameters))
        else:
            formula = step_formula(problem, n, budget, L, rows)
        settings = self._setting("step_size", min(formula, largest))
        self._check_non_expansive(settings["step_size"], largest)
        more = 4.0 / budget.clips_apart if self.constants == "paper" else 1.0
        steps = [L * _eta(settings["step_size"], i) for i in range(len(rows))]
        moved = [(more * step, rounding(problem, n_i, step)) for step, n_i in zip(steps, rows, strict=True)]
        return phased_schedule(problem, n, budget, settings, rows, moved, "fresh rows, one pass")

    def answer(self, schedule: Schedule, query: Query, batch: Batch, rows: RowAccess) -> Clipped:
        """Return the average iterate of the phase: SENSITIVE until it is released."""
        phase = rows.phase(batch, query.size, self._lipschitz(schedule.problem))
        eta, project = _eta(schedule.settings["step_size"], query.step), schedule.problem.domain.project
        v = query.points[0]
        total = 0.0 * v
        for row in range(phase.rows):
            total += v
            v = project(v - eta * phase.row_gradient(row, v)[0])
        return Clipped(total / phase.rows, phase.rows)


def _eta(step_size: float, phase: int) -> float:
    """eta_i of phase i = ``phase`` + 1."""
    return float(step_size / 4.0 ** (phase + 1))
