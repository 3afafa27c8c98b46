"""Excess risk on the reference problem: sixteen rounds by mechanism, and objective perturbation on rows at rest.

python -m benchmarks reference            40 keys, 24 data sets from seed 0
python -m benchmarks reference 24 100     24 keys, 24 data sets from seed 100
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np

import dpsco
from dpsco.datasets import reference_problem

KEYS, SETS = 40, 24
SIZES = (4_096, 30_000, 200_000)


def excess_by_mechanism(mechanisms: Sequence[str], keys: int) -> tuple[float, dict[str, list[float]]]:
    """F(0) - F*, and the excess of each run: T = 16, C = 1, beta the population smoothness, listed z-step."""
    n = 200_000
    data = reference_problem(n)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(radius=10.0), dimension=50)
    budget = dpsco.Budget(epsilon=1.0, delta=n**-1.1)
    excess: dict[str, list[float]] = {}
    for name in mechanisms:
        plan = dpsco.Plan(
            problem,
            n,
            budget,
            dpsco.AcceleratedSRGD(
                rounds=16, beta=data.population_smoothness, clip=1.0, z_step="listed", mechanism=name
            ),
        )
        runs = (dpsco.train(plan, dpsco.stream(data.features, data.labels), key=bytes([k]) * 32) for k in range(keys))
        excess[name] = [data.excess_risk(run.model.coef) for run in runs]
    return data.excess_risk(np.zeros(50)), excess


def objective_perturbation(n: int, sets: int, first: int = 0) -> tuple[float, list[float], list[float]]:
    """The planned ridge, and per data set, from seed ``first`` on, the excess without privacy and at epsilon 1.

    Every data set has rows, labels, fresh rows and a minimiser of its own: the excess of one set, with or without
    privacy, is a chi-squared number that varies by about 20 % at p = 50.
    """
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(radius=10.0), dimension=50)
    plan = dpsco.plan(problem, n=n, budget=dpsco.Budget(1.0, n**-1.1), method="objective-perturbation")
    exact = dpsco.ObjectivePerturbation(clip=math.inf, ridge=1e-3)
    without = dpsco.Plan(problem, n, dpsco.Budget(math.inf, n**-1.1), exact)
    found: tuple[list[float], list[float]] = ([], [])
    for seed in range(first, first + sets):
        data = reference_problem(n, seed=seed)
        for of, runs in zip((without, plan), found, strict=True):
            run = dpsco.train(of, dpsco.stream(data.features, data.labels), key=bytes([seed % 256]) * 32)
            runs.append(data.excess_risk(run.model.coef))
    return plan.schedule.settings["ridge"], *found


def main(keys: int = KEYS, first: int = 0) -> None:
    start, excess = excess_by_mechanism(("workload", "sqrt", "tree", "independent"), keys=keys)
    print(
        f"n = 200,000, p = 50, epsilon = 1, T = 16, C = 1, listed z-step; F(0) - F* = {start:.4f}; mean of {keys} keys"
    )
    for name, runs in excess.items():
        print(f"  {name:<12} excess {np.mean(runs):.6f}  {100 * np.mean(runs) / start:.2f} % of the start")
    print("\nobjective perturbation, rows at rest, epsilon = 1, untuned; mean over data sets, one key each")
    for n in SIZES:
        sets = min(keys, SETS)
        ridge, without, runs = objective_perturbation(n, sets, first)
        (mean, error), (floor, off) = ((np.mean(each), np.std(each) / len(each) ** 0.5) for each in (runs, without))
        over = np.divide(runs, without)
        print(f"  n = {n:<8,} {sets} sets, ridge {ridge:<6g} excess {mean:.6f} +- {error:.6f}  ", end="")
        print(
            f"without privacy {floor:.6f} +- {off:.6f}, p/2n {25 / n:.6f}; ratio on the same set {np.mean(over):.3f}",
            end="",
        )
        print(f" +- {np.std(over) / len(over) ** 0.5:.3f}, below 1 in {np.sum(over < 1)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
