"""The pictures of docs/survey.md.

    python -m benchmarks survey_pictures docs                 writes survey-level-sets.svg and survey-rates.svg there
    python -m benchmarks survey_pictures docs --quick         few rows: shows that it runs

Level sets: the loss of two correlated columns of different size, before and after the map of a private survey. Rates:
excess on the reference problem over two decades of n, epsilon 1, delta n^-1.1, mean of the keys.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from dpsco.datasets import reference_problem
from dpsco.pages.plots import draw_svg, log_axes
from dpsco.planning.geometry import metric

ROWS = (3_000, 10_000, 30_000, 100_000, 300_000)
PLANS = {
    "plain, 8 rounds": {"rounds": 8, "survey": "none"},
    "plain, planned rounds": {"survey": "none"},
    "survey, at most 8 rounds": {"rounds": 8},
}


def level_sets(path: Path) -> None:
    """Draw the level sets of a logistic loss around its optimum."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20_000, 2)) @ np.array([[0.5, 0.12], [0.0, 0.05]])
    labels = (rng.random(len(rows)) < 1 / (1 + np.exp(-rows @ [2.0, 6.0]))).astype(int)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(50.0), 2)
    plan = dpsco.plan(problem, n=len(rows), budget=dpsco.Budget(1.0, 1e-6))
    shape: Any = dpsco.train(plan, dpsco.stream(rows, labels), key=bytes(32)).geometry
    hessian = rows.T @ rows / len(rows)
    back = np.linalg.inv(metric(shape, 0.2).matrix)
    mapped = back.T @ np.linalg.inv(hessian) @ back  # of u, where x = P'u
    spans = [(np.linalg.inv(hessian), "in the columns of the table"), (mapped, "after the survey")]

    def draw(axes: Any) -> None:
        axes.set_axis_off()
        for k, (inverse, title) in enumerate(spans):
            inner = axes.inset_axes((0.02 + 0.52 * k, 0.05, 0.44, 0.85))
            values, vectors = np.linalg.eigh(inverse)
            turn = np.linspace(0, 2 * np.pi, 200)
            circle = np.stack([np.cos(turn), np.sin(turn)])
            for size in (0.25, 0.5, 0.75, 1.0):
                inner.plot(*(size * vectors @ (np.sqrt(values)[:, None] * circle)), color="#1f77b4", linewidth=1.2)
            inner.set_aspect("equal", "datalim")
            inner.set_xticks([])
            inner.set_yticks([])
            inner.set_title(f"{title}: condition {values[1] / values[0]:.0f}", fontsize=9)

    path.write_text(draw_svg(draw, size=(7.0, 3.4), themed=False), encoding="utf-8")


def rates(path: Path, rows: tuple[int, ...], keys: int) -> None:
    """Measure and draw excess against n."""
    found: dict[str, list[float]] = {name: [] for name in PLANS}
    for n in rows:
        data = reference_problem(n)
        problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), 50)
        for name, options in PLANS.items():
            plan = dpsco.plan(problem, n=n, budget=dpsco.Budget(1.0, n**-1.1), **options)  # type: ignore[arg-type]
            rows_of = (data.features, data.labels)
            runs = (dpsco.train(plan, dpsco.stream(*rows_of), key=bytes([k]) * 32) for k in range(keys))
            found[name].append(float(np.mean([data.excess_risk(run.model.coef) for run in runs])))
        print(f"  n {n:>7,}  " + "  ".join(f"{name} {values[-1]:.6f}" for name, values in found.items()), flush=True)

    def draw(axes: Any) -> None:
        for name, values in found.items():
            axes.plot(rows, values, marker="o", markersize=3, label=name)
        axes.plot(rows, [25 / n for n in rows], linestyle=":", color="grey", label="p / 2n, without privacy")
        log_axes(axes, "rows n", "excess risk", legend="inside")

    path.write_text(draw_svg(draw, size=(6.0, 3.6), themed=False), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks survey_pictures")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keys", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    level_sets(given.folder / "survey-level-sets.svg")
    rates(given.folder / "survey-rates.svg", ROWS[:2] if given.quick else ROWS, 1 if given.quick else given.keys)


if __name__ == "__main__":
    main()
