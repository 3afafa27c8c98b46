"""Algorithm 1, Accelerated-DP-SRGD: Nesterov acceleration on stochastic recursive gradients.

    for t = 0 .. T-1, on a fresh batch of B rows                                     line of Algorithm 1
        Delta_t = 1/B sum_d [eta_t grad f(x_t, d) - eta_{t-1} grad f(x_{t-1}, d)]    4   ask / answer / release
        nabla_t = (sum_{i<=t} Delta_i) / eta_t                                       5
        z_{t+1} = Proj(z_t - (eta_t / beta) nabla_t)        halved: eta_t/(2 beta)   6
        y_{t+1} = Proj(x_t - (1 / beta) nabla_t)                                     7
        x_{t+1} = (1 - tau_{t+1}) y_{t+1} + tau_{t+1} z_{t+1}                        8
    output y_T

with eta_t = t + 1, eta_{-1} = 0 and tau_t = eta_t / eta_{0:t}. The paper's b_t = -N_t/(B beta), N_t the noise
on the prefix sum, is inside nabla_t here: the sum is noised once and used in both steps. An adaptive plan lets beta
follow the curvature that released values show (methods/adaptive_beta.py): post-processing, at no privacy cost.

Guarantee: every row enters one clipped difference, so the run is one Gaussian mechanism for any loss.
Cost: two gradients a row (one in round 0), a few p-vectors of state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsco.methods.adaptive_beta import adapted_beta
from dpsco.methods.method import Algorithm, Schedule, told
from dpsco.planning.plan import Plan
from dpsco.query import Array, Query, Released

__all__ = ["AcceleratedSRGD", "State", "eta", "tau"]


def eta(t: int) -> float:
    """eta_t = t + 1; eta_{-1} = 0."""
    return t + 1.0


def tau(t: int) -> float:
    """tau_t = eta_t / eta_{0:t} = 2 / (t + 2)."""
    return 2.0 / (t + 2.0)


def _less(point: Array, step: Array) -> Array:
    """point - step, in the memory of ``step``: for long vectors new memory costs more than the arithmetic."""
    return np.subtract(point, step, out=step)


@dataclass(frozen=True, eq=False)
class State:
    """Iterates and the released prefix sum: all of it private by post-processing, and publishable."""

    step: int
    x: Array
    x_before: Array
    y: Array
    z: Array
    total: Array
    """B sum_{i<t} Delta_i, as released."""
    nabla: Array
    """nabla_{t-1}; 0 before round 0."""
    beta: float
    """The scaling in force: the plan's, or what an adaptive plan has made of it."""


@dataclass(frozen=True)
class AcceleratedSRGD(Algorithm):
    """``start``, ``ask``, ``tell``: pure functions of a plan and an explicit state."""

    beta: float | None = None
    """The plan's unless given; a given one stays as it is in an adaptive plan too."""

    name = "accelerated-srgd"
    knobs = ("beta",)
    gradients_per_example = 2
    reason = "each row enters one clipped difference, and one Gaussian mechanism covers the whole run."

    def _formulas(self, plan: Plan) -> dict[str, float]:
        return {"beta": plan.beta}

    def schedule(self, plan: Plan) -> Schedule:
        """The plan's own rows and noise; nothing to remember."""
        return self._schedule(plan)

    def _schedule(self, plan: Plan) -> Schedule:
        return Schedule(plan.calibration, plan.noise_mechanism)

    def start(self, plan: Plan, x0: Array) -> State:
        """Lines 1-2: x_0 = z_0 = the start, nothing summed yet."""
        zero, beta = np.zeros_like(x0), self._knob(plan, "beta")
        return State(step=0, x=x0, x_before=x0, y=x0, z=x0, total=zero, nabla=zero, beta=beta)

    def ask(self, plan: Plan, state: State) -> Query:
        """Line 4: the weighted difference that round t asks of every fresh row."""
        t = state.step
        both = t > 0
        return self._query(
            plan,
            step=t,
            points=(state.x, state.x_before) if both else (state.x,),
            weights=(eta(t), -eta(t - 1)) if both else (eta(t),),
        )

    def tell(self, plan: Plan, state: State, released: Released) -> State:
        """Lines 5-8, from the released increment."""
        t, project = state.step, plan.problem.domain.project
        total = state.total + told(state, released)
        nabla = total / (plan.batch_size * eta(t))
        beta = state.beta
        if plan.adaptive and self.beta is None and t > 0:
            iterates = {"x": state.x, "x_before": state.x_before, "nabla": nabla, "nabla_before": state.nabla}
            beta = adapted_beta(plan, t, beta, **iterates)
        halves = 1 if plan.z_step == "listed" else 2
        z = project(_less(state.z, (eta(t) / (halves * beta)) * nabla))
        y = project(_less(state.x, nabla / beta))
        x = (1 - tau(t + 1)) * y + tau(t + 1) * z
        return State(step=t + 1, x=x, x_before=state.x, y=y, z=z, total=total, nabla=nabla, beta=beta)

    def output(self, state: State) -> Array:
        """y_T."""
        return state.y
