"""Phased-SGD (Feldman, Koren, Talwar 2020, Algorithm 2): SGD in phases, noise on the result of each.

    w_0 = x_0;  for i = 1 .. k, on n_i = n / 2^i fresh rows, eta_i = step / 4^i:
        v = w_{i-1};  for each row d:  acc += v;  v = Proj(v - eta_i grad f(v, d))
        w_i = Proj(acc / n_i + N(0, sigma_i^2 I)),     sigma_i = S L eta_i / mu
    output w_k

Guarantee, for convex, L-Lipschitz, M-smooth losses and eta_i <= 2/M: a gradient step is non-expansive, so one changed
row moves every later iterate, hence their average, by at most S L eta_i. Phases share no rows, so each spends the whole
mu and the phase outputs together are mu-GDP. What happens inside a phase is not released.
``constants="paper"`` has the paper's noise 4 L eta_i / rho with rho = mu, twice what replace-one needs, and its step
(D_0/L) min(4/sqrt(n), mu/sqrt(p)). ``"tight"`` has the noise above and the step that minimises the bound (phases.py).
Cost: one gradient a row; n steps.
At most ten phases (the library's own): the paper's ceil(log2 n) would go below what float64 resolves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsco.errors import one_of
from dpsco.methods.method import Convex, RowAccess, Schedule, fresh, reach, told
from dpsco.methods.phases import phase_rows, rounding, step_formula
from dpsco.methods.unaccelerated_srgd import CONSTANTS
from dpsco.planning.plan import Plan
from dpsco.query import Array, Batch, Clipped, Query, Released
from dpsco.release.calibration import Uneven, calibrate_output
from dpsco.release.mechanisms import Independent

__all__ = ["PhasedSGD", "State"]


@dataclass(frozen=True, eq=False)
class State:
    """The output of the last phase."""

    step: int
    x: Array
    nabla: None = None


@dataclass(frozen=True)
class PhasedSGD(Convex):
    """SGD in phases; ``step`` is eta, of which phase i takes eta / 4^i."""

    step: float | None = None
    constants: str = "tight"

    name = "phased-sgd"
    knobs = ("step",)
    releases = "phase outputs"
    reason = "SGD on convex, smooth losses is stable, and Gaussian noise hides what one row does to a phase's output."

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("constants", self.constants, CONSTANTS)

    def _formulas(self, plan: Plan) -> dict[str, float]:
        L, rows = self._lipschitz(plan), phase_rows(plan.n)
        if self.constants == "paper":
            mu = plan.budget.mu_per_record
            step = reach(plan) / L * min(4 / math.sqrt(plan.n), mu / math.sqrt(plan.problem.parameters))
        else:
            step = step_formula(plan, L, rows)
        return {"step": min(step, 4.0 * self._largest_step(plan))}

    def check(self, plan: Plan, *, own_oracle: bool) -> None:
        super().check(plan, own_oracle=own_oracle)
        self._non_expansive(plan, self._knob(plan, "step"), 4.0 * self._largest_step(plan))

    def _eta(self, plan: Plan, phase: int) -> float:
        """eta_i of phase i = ``phase`` + 1."""
        return self._knob(plan, "step") / 4.0 ** (phase + 1)

    def _schedule(self, plan: Plan) -> Schedule:
        rows, L, p = phase_rows(plan.n), self._lipschitz(plan), plan.problem.parameters
        more = 4.0 / plan.budget.clips_apart if self.constants == "paper" else 1.0
        paid = []
        for i, n_i in enumerate(rows):
            moved = L * self._eta(plan, i)
            error = rounding(plan, n_i, moved)
            paid.append(
                calibrate_output(
                    plan.budget,
                    sensitivity=more * moved,
                    error=error,
                    dimension=p,
                    largest=plan.problem.radius,
                    rounds=len(rows),
                )
            )
        words = f"phases of {rows[0]:,} down to {rows[-1]:,} fresh ones, one pass"
        return Schedule(Uneven(tuple(paid)), Independent(len(rows)), fresh(rows), words)

    def start(self, plan: Plan, x0: Array) -> State:
        return State(0, x0)

    def ask(self, plan: Plan, state: State) -> Query:
        """Run the next phase from w."""
        return self._query(plan, state.step, (state.x,))

    def answer(self, plan: Plan, query: Query, batch: Batch, rows: RowAccess) -> Clipped:
        """The average iterate of the phase: SENSITIVE until it is released."""
        phase = rows.phase(batch, query.size, self._lipschitz(plan))
        eta, project = self._eta(plan, query.step), plan.problem.domain.project
        v = query.points[0]
        total = 0.0 * v
        for row in range(phase.rows):
            total += v
            v = project(v - eta * phase.row_gradient(row, v)[0])
        return Clipped(total / phase.rows, phase.rows)

    def tell(self, plan: Plan, state: State, released: Released) -> State:
        return State(state.step + 1, plan.problem.domain.project(told(state, released)))

    def output(self, state: State) -> Array:
        return state.x
