"""Rates of Algorithm 1 in both regimes, and the effect of each of its three ingredients.

python -m benchmarks rates [--quick] [--write]

Excess against n over two decades, with fitted slopes: T = n^(1/4) rounds on the reference problem (minimiser inside
the set), T = sqrt(n) rounds on linear losses (minimiser outside, the hard case of the lower bound). Then the reference
problem at T = n^(1/4) without acceleration, recursion or correlated noise. beta is tuned per method and n with the
same number of configurations, on separate data. ``--write`` updates the plots and figures of docs/paper.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from dpsco.datasets import reference_problem
from dpsco.methods import AcceleratedSGD, AcceleratedSRGD, UnacceleratedSRGD
from dpsco.research.compare.estimates import Estimate, exponent, mean
from dpsco.research.compare.pattern_search import PatternSearch

FOLDER = Path(__file__).parents[1] / "docs" / "paper"
BUDGET, TUNING, SCORING = 9, 2, 8
METHODS = {
    "all three": (AcceleratedSRGD, "workload"),
    "no acceleration": (UnacceleratedSRGD, "workload"),
    "no recursion": (AcceleratedSGD, "independent"),
    "no correlated noise": (AcceleratedSRGD, "independent"),
}


@dataclass(frozen=True)
class Case:
    """One method on one family at one n."""

    family: str
    n: int
    rounds: int
    method: str


def problem_of(family: str) -> dpsco.Problem:
    """The reference problem, or linear losses: a Huber loss whose labels lie beyond the reach of any score."""
    if family == "reference":
        return dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), dimension=50)
    return dpsco.Problem(dpsco.Huber(), dpsco.L2Ball(1.0), dimension=10)


def data_of(family: str, n: int, seed: int) -> tuple[Any, Any, Callable[[Any], float]]:
    """Rows, labels, and the exact (linear) or fresh-row (reference) excess of a vector."""
    if family == "reference":
        data = reference_problem(n, fresh=100_000, seed=seed)
        return data.features, data.labels, data.excess_risk
    rng, p = np.random.default_rng(seed), 10
    truth = rng.normal(size=p)
    truth /= np.linalg.norm(truth)
    rows = rng.normal(size=(n, p))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    signal = p / math.sqrt(n)  # the mean gradient, signal/p long, is as long as its error over n rows
    up = rng.random(n) < (1 + np.clip(signal * (rows @ truth), -1, 1)) / 2
    return rows, np.where(up, 3.0, -3.0), lambda x: signal / p * float(1.0 - truth @ x)


def excess(case: Case, factor: float, seeds: range) -> tuple[list[float], int]:
    """Excess of every seed at ``factor`` times the default beta, and the counted batch steps."""
    problem = problem_of(case.family)
    kind, mechanism = METHODS[case.method]
    budget = dpsco.Budget(epsilon=1.0, delta=case.n**-1.1)
    beta = problem.smoothness * factor
    settings = {"rounds": case.rounds, "beta": beta, "clip": problem.lipschitz}
    own = {field.name for field in dataclasses.fields(kind)}
    method = kind(**settings, **({"mechanism": mechanism} if "mechanism" in own else {}))
    plan = dpsco.Plan(problem, case.n, budget, method)
    found, steps = [], 0
    for seed in seeds:
        rows, labels, measure = data_of(case.family, case.n, seed)
        result = dpsco.train(plan, dpsco.stream(rows, labels), key=seed.to_bytes(32, "big"))
        found.append(measure(result.model.coef.ravel()))
        steps = result.counts.batch_steps
    return found, steps


def tuned(case: Case) -> tuple[Case, list[float], int]:
    """Scores of the best beta; it was chosen on other data and other keys."""
    search = PatternSearch(knobs=1, choices=(), budget=BUDGET)
    while points := search.ask():
        for point in points:
            search.tell(point, float(np.mean(excess(case, 2.0 ** point.exponents[0], range(1000, 1000 + TUNING))[0])))
    return case, *excess(case, 2.0 ** search.best.exponents[0], range(2000, 2000 + SCORING))


def run(sizes: list[int], jobs: int) -> dict[str, Any]:
    quarter, root = (lambda n: math.ceil(n**0.25)), (lambda n: math.ceil(math.sqrt(n)))
    cases = [Case("reference", n, quarter(n), method) for n in sizes for method in METHODS]
    cases += [Case("linear", n, root(n), "all three") for n in sizes]
    lines: dict[str, list[tuple[int, Estimate, int]]] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for case, scores, steps in pool.map(tuned, sorted(cases, key=lambda case: -case.n)):
            name = "linear losses, minimiser outside" if case.family == "linear" else case.method
            lines.setdefault(name, []).append((case.n, mean(scores), steps))
            print(f"  n = {case.n:>7,}  {name:<34} T = {steps:>4}  excess {mean(scores).value:.2e}", flush=True)
    rates = {name: _line(sorted(found, key=lambda one: one[0])) for name, found in lines.items()}
    for name, line in rates.items():
        line["theory"] = theory("linear" if name.startswith("linear") else "reference", sizes).value
    return rates


def theory(family: str, sizes: list[int]) -> Estimate:
    """Slope of L R (1/sqrt(n) + sqrt(p)/(mu n)) over the same n."""
    problem = problem_of(family)

    def rate(n: int) -> float:
        mu = dpsco.Budget(epsilon=1.0, delta=n**-1.1).mu
        return problem.lipschitz * problem.radius * (n**-0.5 + math.sqrt(problem.parameters) / (mu * n))

    return exponent(sizes, [rate(n) for n in sizes])


def _line(found: list[tuple[int, Estimate, int]]) -> dict[str, Any]:
    sizes = [n for n, _, _ in found]
    return {
        "n": sizes,
        "excess": [value.to_list() for _, value, _ in found],
        "steps": [steps for _, _, steps in found],
        "slope": exponent(sizes, [value.value for _, value, _ in found]).to_list(),
        "steps slope": exponent(sizes, [float(steps) for _, _, steps in found]).to_list(),
    }


def draw(lines: dict[str, Any]) -> None:
    from dpsco.pages.plots import draw_svg, interval_line, log_axes

    def rates(axes: Any) -> None:
        for name, label in (
            ("all three", "inside, $T=n^{1/4}$ (reference problem)"),
            ("linear losses, minimiser outside", "outside, $T=\\sqrt{n}$ (linear losses)"),
        ):
            line = lines[name]
            interval_line(
                axes,
                line["n"],
                line["excess"],
                marker="o",
                markersize=4,
                label=f"{label}: slope {line['slope'][0]:.2f}",
            )
            first = line["excess"][0][0]
            power = -1.0 if name == "all three" else -0.5
            guide = [first * (n / line["n"][0]) ** power for n in line["n"]]
            axes.plot(line["n"], guide, color="grey", linestyle=":", linewidth=1)
            axes.annotate(f"$n^{{{power:g}}}$", (line["n"][-1], guide[-1]), fontsize=9, color="grey")
        log_axes(axes, "rows n", "excess population risk", legend="inside")

    def ingredients(axes: Any) -> None:
        for name in METHODS:
            interval_line(axes, lines[name]["n"], lines[name]["excess"], marker="o", markersize=4, label=name)
        log_axes(axes, "rows n", "excess population risk", legend="inside")

    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "rates.svg").write_text(draw_svg(rates, size=(7.0, 4.2), themed=False))
    (FOLDER / "ingredients.svg").write_text(draw_svg(ingredients, size=(7.0, 4.2), themed=False))


def main() -> None:
    parser = argparse.ArgumentParser(prog="rates", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="n from 2^10 to 2^12")
    parser.add_argument("--write", action="store_true", help="update docs/paper/rates.json and the plots")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    sizes = [2**k for k in (range(10, 13) if args.quick else range(12, 20))]
    lines = run(sizes, args.jobs)
    for name, line in lines.items():
        slopes = f"excess ~ n^{_interval(line['slope'])}, the optimal rate n^{line['theory']:.2f}"
        print(f"{name:<36} {slopes}, steps ~ n^{_interval(line['steps slope'])}")
    ours = lines["all three"]["excess"]
    for name in list(METHODS)[1:]:
        ratios = [other[0] / own[0] for other, own in zip(lines[name]["excess"], ours, strict=True)]
        ends = f"{ratios[0]:.1f}x (n = {sizes[0]:,}) to {ratios[-1]:.1f}x (n = {sizes[-1]:,})"
        print(f"{name:<36} {ends} the excess of all three")
    if args.write:
        draw(lines)
        committed = {"command": "python -m benchmarks rates --write", **lines}
        (FOLDER / "rates.json").write_text(json.dumps(committed, indent=1) + "\n")


def _interval(value: list[float]) -> str:
    return f"{value[0]:.2f} [{value[1]:.2f}, {value[2]:.2f}]"


if __name__ == "__main__":
    from benchmarks import rates  # under its own name, so that worker processes find its functions

    rates.main()
