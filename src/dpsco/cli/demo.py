"""``dpsco demo``: a private one-pass fit on simulated rows, from plan to page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from dpsco.cli.output import print_json

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "demo",
        help="plan, train and report on simulated rows",
        description="Train a private logistic regression in one pass over 200,000 simulated rows. Show the plan, the "
        "progress, the privacy report and the accuracy with and without privacy, and write an HTML page.",
    )
    parser.add_argument("--epsilon", type=float, default=1.0, help="privacy loss (default 1)")
    parser.add_argument("--rows", type=float, default=2e5, help="number of rows (default 200,000)")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the page (default demo/)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Train, print the report and write the page; return the exit code."""
    import dpsco
    from dpsco.cli.checks import check_page
    from dpsco.datasets import reference_problem
    from dpsco.errors import positive_integer
    from dpsco.pages import write_run_page

    check_page(args.out / "index.html", "--out")
    n = positive_integer("--rows", args.rows, "It is the number of rows to simulate.")
    data = reference_problem(n)
    rows, labels = data.fresh(50_000)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(radius=10.0), dimension=data.features.shape[1])
    plan = dpsco.plan(problem, n=n, budget=dpsco.Budget(args.epsilon, delta=n**-1.1))
    if not args.json:
        print(f"Data: {n:,} simulated rows, {problem.dimension} features, row norm at most 1, labels 0 and 1.\n")
        print(plan.explain(), "\n")
    result = dpsco.train(plan, dpsco.stream(data.features, data.labels), progress=not args.json)
    accuracy = {
        "private": float(np.mean(result.model.predict(rows) == labels)),
        "non-private": float(np.mean((rows @ _without_privacy(data.features, data.labels) > 0) == labels)),
        "best possible": float(np.mean((rows @ data.optimum > 0) == labels)),
    }
    reached = {
        **{f"accuracy, {name}": f"{value:.4f}" for name, value in accuracy.items()},
        "excess risk, private": f"{data.excess_risk(result.model.coef):.3g}",
        "excess risk at the start": f"{data.excess_risk(np.zeros(problem.dimension)):.3g}",
    }
    page = write_run_page(result, args.out / "index.html", reached=reached)
    if args.json:
        print_json({"report": json.loads(result.report.to_json()), "reached": reached, "page": str(page)})
        return 0
    print(result.report, "\n")
    print(f"Results on {len(labels):,} fresh public rows")
    for name, value in reached.items():
        print(f"  {name:<26} {value}")
    print(f"\nPage: {page}")
    return 0


def _without_privacy(features: Any, labels: Any) -> Any:
    """Return the logistic regression of all rows by L-BFGS, without privacy."""
    from scipy.optimize import minimize

    sign = 2.0 * labels - 1.0

    def risk(x: Any) -> tuple[float, Any]:
        margin = sign * (features @ x)
        slope = -0.5 * (1 - np.tanh(margin / 2)) * sign
        return float(np.mean(np.logaddexp(0.0, -margin))), features.T @ slope / len(sign)

    return minimize(risk, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B").x
