"""A plan for networks and other losses that are not convex: what is known, and what has to be chosen.

Covered by proof: privacy, for any loss, since every row enters one clipped difference. Not covered: how well the model
learns. The excess-risk theorems and the response planner need convexity and a known smoothness; a network has neither,
so ``beta`` and ``clip`` are choices, public ones, made on public data or by experience, and a search over them on
private data has to be paid for like any other run.

What the numbers do, and where the defaults come from:

    rounds  the estimate of round t averages over all (t + 1) B rows seen, as long as the iterates move little between
            rounds: more rounds let a network, whose gradient changes along the way, take more and shorter steps.
            sqrt(n) / 4, at most 128.
    beta    1 / beta is the step, z moves by eta_t / (2 beta) in round t. Too small diverges, too large stands still.
    clip    of eta_t grad f(x_t, d) - eta_{t-1} grad f(x_{t-1}, d), which is a gradient plus t times a change of the
            gradient: longer than the gradient that DP-SGD clips, so the clip is larger too.

The defaults come from a few dozen runs of one two-layer network on MNIST (examples/networks_torch.py), where DP-FTRL
did better still: a place to start, not an optimum.
"""

from __future__ import annotations

import math

from dpsco.accounting.budget import Budget
from dpsco.errors import positive, positive_integer
from dpsco.methods import AcceleratedSRGD
from dpsco.planning.plan import Plan
from dpsco.problem import CustomLoss, Everything, Problem

__all__ = ["plan_network"]

MOST_ROUNDS = 128


def plan_network(
    size: int, n: int, budget: Budget, *, beta: float = 4.0, clip: float = 8.0, rounds: int | None = None
) -> Plan:
    """Return a plan to train ``size`` parameters on ``n`` rows, with no assumption on the loss and none on utility.

    ``dpsco.train(plan, stream, oracle=oracle, start=oracle.start)`` with ``size=oracle.size``.

    Parameters
    ----------
    size : int
        Number of trainable parameters.
    n : int
        Public number of rows.
    budget : Budget
        The guarantee.
    beta : float
        1 / beta is the step.
    clip : float
        Bound on one row's weighted difference.
    rounds : int, optional
        Number of rounds; sqrt(n) / 4, at most ``MOST_ROUNDS``, unless given.

    Returns
    -------
    Plan

    Examples
    --------
    >>> plan = plan_network(50_890, 60_000, Budget(epsilon=3.0, delta=1e-5))
    >>> plan.rounds, plan.batch_size, plan.clip
    (61, 983, 8.0)
    """
    size = positive_integer("size", size, "It is the number of trainable parameters: oracle.size.")
    n = positive_integer("n", n, "It is the public number of rows.")
    beta = positive("beta", beta, "1 / beta is the step.")
    clip = positive("clip", clip, "It bounds one row's weighted difference.", infinite=True)
    loss = CustomLoss(given_lipschitz=clip if math.isfinite(clip) else 1.0, given_smoothness=beta)
    return Plan(
        problem=Problem(loss, Everything(), dimension=size),
        n=n,
        budget=budget,
        method=AcceleratedSRGD(
            rounds=rounds or max(1, min(MOST_ROUNDS, math.isqrt(n) // 4)),
            beta=beta,
            clip=clip,
            z_step="halved",
            mechanism="sqrt",
        ),
        rule="network",
    )
