"""dpsco: 32 rounds of Accelerated-DP-SRGD, compiled oracle, private noise; no check for non-finite values."""

from __future__ import annotations

from common import ROUNDS, rows, timed

import dpsco

X, y = rows()
problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=X.shape[1])
plan = dpsco.Plan(
    problem, len(y), dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=ROUNDS, beta=0.5, clip=1.0, mechanism="sqrt")
)
oracle = dpsco.clipping.CompiledOracle(problem.loss)
timed(lambda: dpsco.train(plan, dpsco.stream(X, y, non_finite="zero"), oracle=oracle))
