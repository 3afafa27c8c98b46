"""Algorithm 1, Accelerated-DP-SRGD: Nesterov acceleration on stochastic recursive gradients.

    for t = 0 .. T-1, on a fresh batch of B rows                                     line of Algorithm 1
        Delta_t = 1/B sum_d [eta_t grad f(x_t, d) - eta_{t-1} grad f(x_{t-1}, d)]    4   ask / answer / release
        nabla_t = (sum_{i<=t} Delta_i) / eta_t                                       5
        z_{t+1} = Proj(z_t - (eta_t / beta) nabla_t)        halved: eta_t/(2 beta)   6
        y_{t+1} = Proj(x_t - (1 / beta) nabla_t)                                     7
        x_{t+1} = (1 - tau_{t+1}) y_{t+1} + tau_{t+1} z_{t+1}                        8
    output y_T

with eta_t = t + 1, eta_{-1} = 0 and tau_t = eta_t / eta_{0:t}. The paper's b_t = -N_t/(B beta), N_t the noise
on the prefix sum, is inside nabla_t here: noise is added once to the sum, which both steps use. With ``adaptive``, beta
follows the curvature that released values show (adaptive_beta.py): post-processing, at no privacy cost.

Guarantee: every row enters one clipped difference, so the run is one Gaussian mechanism for any loss.
Cost: two gradients per row (one in round 0), a few p-vectors of state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.algorithm_1 import Z_STEPS, eta, update
from dpsco.errors import InvalidArgument, one_of
from dpsco.methods.adaptive_beta import adapted_beta
from dpsco.methods.method import RoundMethod, value_of
from dpsco.methods.schedule import Schedule, fresh_batch_size, fresh_schedule
from dpsco.problem import Problem
from dpsco.query import Array, Query, Released
from dpsco.release.mechanisms import MECHANISMS, mechanism

__all__ = ["AcceleratedSRGD", "AcceleratedSRGDState", "recursive_query"]


@dataclass(frozen=True, eq=False)
class AcceleratedSRGDState:
    """Iterates and the released prefix sum: private by post-processing, and publishable."""

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
    """The scaling in use."""


@dataclass(frozen=True, kw_only=True)
class AcceleratedSRGD(RoundMethod):
    """Accelerated-DP-SRGD, the method of the paper.

    Parameters
    ----------
    rounds : int
        Number of rounds T.
    clip : float
        Bound on one row's weighted difference.
    beta : float, optional
        Scaling of the steps; the smoothness of the loss unless given.
    z_step : {"halved", "listed"}
        ``"listed"`` moves z by eta_t/beta as Algorithm 1 is printed, ``"halved"`` by eta_t/(2 beta) as its proof does.
    mechanism : str
        Name of the mechanism that correlates the noise (``dpsco.mechanism``).
    batch_size : int
        B; n // rounds if 0. The remaining rows are never read.
    adaptive : bool
        Whether beta may fall, after the first round, to the curvature that released values show.
    prior : tuple of float
        Curvatures over beta, in (0, 1], to fit ``mechanism="workload"`` to; the robust prior if empty.
    """

    beta: float | None = None
    z_step: str = "halved"
    mechanism: str = "sqrt"
    batch_size: int = 0
    adaptive: bool = False
    prior: tuple[float, ...] = ()

    name: ClassVar[str] = "accelerated-srgd"
    tunable: ClassVar[tuple[str, ...]] = ("beta",)
    reason: ClassVar[str] = "each row enters one clipped difference, and one Gaussian mechanism covers the whole run."

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("z_step", self.z_step, Z_STEPS)
        one_of("mechanism", self.mechanism, [*MECHANISMS, "auto"])
        if not isinstance(self.adaptive, bool):
            raise InvalidArgument(f"Expected adaptive={self.adaptive!r} to be True or False.")
        prior = tuple(float(ratio) for ratio in self.prior)
        if not all(0 < ratio <= 1 for ratio in prior):
            raise InvalidArgument("Expected every number of prior in (0, 1]: they are curvatures over beta.")
        if prior and self.mechanism not in ("workload", "auto"):
            raise InvalidArgument(f"prior= belongs to mechanism='workload'; got mechanism={self.mechanism!r}.")
        object.__setattr__(self, "prior", prior)

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give each round a fresh batch, with correlated noise."""
        size = fresh_batch_size(self.rounds, self.batch_size, n)
        fitted: dict[str, Any] = {"prior": (self.prior, (1.0,) * len(self.prior))} if self.prior else {}
        noise = mechanism(
            self.mechanism, horizon=self.rounds, dimension=problem.parameters, z_step=self.z_step, **fitted
        )
        settings = self._setting("beta", problem.smoothness)
        return fresh_schedule(problem, n, budget, noise, batch_size=size, clip=self.clip, settings=lambda _: settings)

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return 2: at x_t and x_{t-1}."""
        return 2

    def steps_in_words(self, schedule: Schedule) -> str:
        """State beta and how z moves."""
        divisor = "beta" if self.z_step == "listed" else "2 beta"
        adapts = " at first, then down to the curvature that released values show" if self.adaptive else ""
        beta = schedule.settings["beta"]
        return f"beta = {beta:.6g}{adapts}, eta_t = t + 1, z moves by eta_t/({divisor}) ({self.z_step})"

    def start(self, schedule: Schedule, x0: Array) -> AcceleratedSRGDState:
        """Lines 1-2: x_0 = z_0 = the start, nothing summed yet."""
        zero, beta = np.zeros_like(x0), schedule.settings["beta"]
        return AcceleratedSRGDState(step=0, x=x0, x_before=x0, y=x0, z=x0, total=zero, nabla=zero, beta=beta)

    def ask(self, schedule: Schedule, state: AcceleratedSRGDState) -> Query:
        """Line 4: the weighted difference that round t asks of every fresh row."""
        return self._query(schedule, state.step, *recursive_query(state.step, state.x, state.x_before))

    def tell(self, schedule: Schedule, state: AcceleratedSRGDState, released: Released) -> AcceleratedSRGDState:
        """Lines 5-8, from the released increment."""
        t = state.step
        total = state.total + value_of(state, released)[: state.total.size]
        nabla = total / (schedule.batch_size * eta(t))
        beta = state.beta
        if self.adaptive and t > 0:
            iterates = {"x": state.x, "x_before": state.x_before, "nabla": nabla, "nabla_before": state.nabla}
            beta = adapted_beta(schedule, t, beta, **iterates)
        project = schedule.problem.domain.project
        x, y, z = update(t, state.x, state.z, nabla, beta=beta, z_step=self.z_step, project=project)
        return AcceleratedSRGDState(step=t + 1, x=x, x_before=state.x, y=y, z=z, total=total, nabla=nabla, beta=beta)

    def output(self, state: AcceleratedSRGDState) -> Array:
        """y_T."""
        return state.y


def recursive_query(t: int, x: Array, x_before: Array) -> tuple[tuple[Array, ...], tuple[float, ...]]:
    """Points and weights of eta_t grad f(x_t, d) - eta_{t-1} grad f(x_{t-1}, d); eta_{-1} = 0."""
    return ((x,), (eta(t),)) if t == 0 else ((x, x_before), (eta(t), -eta(t - 1)))
