"""Free knowledge: beta from the curvature that released values show.

With few rounds a beta much above the population's smoothness leaves the run far from its end, and one below it blows
up; public numbers do not tell which. Released values do, at no privacy cost (post-processing): for s = x_t - x_{t-1},

    rho_t = <s, nabla_t - nabla_{t-1}> / ||s||^2

is the curvature along the last move, and moves follow gradients, which point where curvature is large. So an
adaptive plan takes its first step with the plan's beta and then

    beta_1 = 1.2 rho_1,    beta_t = max(beta_{t-1}, 1.2 rho_t),        within [beta/64, beta] of the plan,

rho_1 raised by two standard deviations of the privacy noise in it and by the share of s that is noise, later rho_t
lowered by as much: if noise hides the curvature, beta stays what the plan says, and no later noise moves it. T, B,
clip, sigma and mechanism are fixed before all this.
"""

from __future__ import annotations

import math

from dpsco.planning.plan import Plan
from dpsco.query import Array

__all__ = ["adapted_beta"]

_ABOVE = 1.2
"""beta over the curvature seen: gradients do not point exactly along the largest one."""
_LOWEST = 1 / 64
_LEAST_SIGNAL = 0.05


def adapted_beta(
    plan: Plan, step: int, beta: float, *, x: Array, x_before: Array, nabla: Array, nabla_before: Array
) -> float:
    """beta for the moves of round ``step`` >= 1, from released values alone; ``beta`` is the last round's."""
    move = x - x_before
    length = float(move @ move)
    if length == 0.0:
        return beta
    now, last = _noise_in_gradient(plan, step), _noise_in_gradient(plan, step - 1)
    energy = float(nabla_before @ nabla_before)
    signal = max(_LEAST_SIGNAL, 1 - nabla.size * last**2 / energy) if energy > 0 else _LEAST_SIGNAL
    doubt = 2 * math.hypot(now, last) * math.sqrt(length)
    along = float(move @ (nabla - nabla_before))
    if step == 1:
        return min(plan.beta, max(_ABOVE * (along + doubt) / (length * signal), _LOWEST * plan.beta))
    return min(plan.beta, max(beta, _ABOVE * (along - doubt) / length))


def _noise_in_gradient(plan: Plan, step: int) -> float:
    """Standard deviation of a coordinate of the privacy noise in nabla_t."""
    if not plan.budget.private:
        return 0.0
    prefix = float(plan.noise_mechanism.errors[step]) * plan.calibration.difference / plan.budget.mu_per_record
    return prefix / (plan.batch_size * (step + 1))
