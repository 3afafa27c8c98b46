"""Adapt beta using released values only: beta follows the curvature that they show.

With few rounds a beta much above the population's smoothness leaves the run far from its end, and one below it blows
up; public numbers do not tell which. Released values do, at no privacy cost (post-processing): for s = x_t - x_{t-1},

    rho_t = <s, nabla_t - nabla_{t-1}> / ||s||^2

is the curvature along the last move, and moves follow gradients, which point where curvature is large. So an
adaptive run takes its first step with the scheduled beta and then

    beta_1 = 1.2 rho_1,    beta_t = max(beta_{t-1}, 1.2 rho_t),        within [beta/64, beta] of the schedule,

rho_1 raised by two standard deviations of the privacy noise in it and by the share of s that is noise, later rho_t
lowered by as much: if noise hides the curvature, beta stays as scheduled, and no later noise moves it. T, B,
clip, sigma and mechanism are fixed before all this.
"""

from __future__ import annotations

import math

from dpsco.methods.schedule import Schedule
from dpsco.query import Array

__all__ = ["adapted_beta"]

_ABOVE = 1.2
"""beta over the curvature seen: gradients do not point exactly along the largest one."""
_LOWEST = 1 / 64
_LEAST_SIGNAL = 0.05


def adapted_beta(
    schedule: Schedule, step: int, beta: float, *, x: Array, x_before: Array, nabla: Array, nabla_before: Array
) -> float:
    """Return beta for the moves of round ``step`` >= 1, from released values alone; ``beta`` is the last round's."""
    move = x - x_before
    length = float(move @ move)
    if length == 0.0:
        return beta
    now, last = _noise_in_gradient(schedule, step), _noise_in_gradient(schedule, step - 1)
    energy = float(nabla_before @ nabla_before)
    signal = max(_LEAST_SIGNAL, 1 - nabla.size * last**2 / energy) if energy > 0 else _LEAST_SIGNAL
    doubt = 2 * math.hypot(now, last) * math.sqrt(length)
    along = float(move @ (nabla - nabla_before))
    scheduled = schedule.settings["beta"]
    if step == 1:
        return min(scheduled, max(_ABOVE * (along + doubt) / (length * signal), _LOWEST * scheduled))
    return min(scheduled, max(beta, _ABOVE * (along - doubt) / length))


def _noise_in_gradient(schedule: Schedule, step: int) -> float:
    """Return the standard deviation of a coordinate of the privacy noise in nabla_t."""
    if not schedule.budget.private:
        return 0.0
    per_prefix = schedule.most_noise.difference / schedule.budget.mu_per_record
    return float(schedule.mechanism.errors[step]) * per_prefix / (schedule.batch_size * (step + 1))
