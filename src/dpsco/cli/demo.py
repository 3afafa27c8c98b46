"""``dpsco demo``: a private one-pass fit on a raw table, from declared columns to a page."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dpsco.cli.output import print_json

__all__ = ["add_parser", "run"]

PUBLIC = 20_000
"""Simulated rows on which the accuracy is measured; nobody's."""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "demo",
        help="plan, train and report on a simulated raw table",
        description="Train a private logistic regression in one pass over 100,000 simulated customers: texts, dates, "
        "missing cells and outliers. Show the plan, the progress, the privacy report and the accuracy with and "
        "without privacy, and write an HTML page.",
    )
    parser.add_argument("--epsilon", type=float, default=1.0, help="privacy loss (default 1)")
    parser.add_argument("--rows", type=float, default=1e5, help="number of rows (default 100,000)")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the page (default demo/)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Train, print the report and write the page; return the exit code."""
    import dpsco
    from dpsco.cli.checks import check_page
    from dpsco.datasets import people
    from dpsco.errors import positive_integer
    from dpsco.pages import Subject, write_run_page
    from dpsco.planning.table_problem import table_plan

    check_page(args.out / "index.html", "--out")
    day = datetime.now(UTC).date().isoformat()
    n = positive_integer("--rows", args.rows, "It is the number of rows to simulate.")
    table = people(n + PUBLIC)
    columns = dpsco.PublicColumns(**table.declared)
    features = np.ascontiguousarray(columns.transform(table.columns)) / np.float32(columns.row_norm)
    labels = np.equal(table.labels, table.classes[1]).astype(np.float64)
    budget = dpsco.Budget(args.epsilon, delta=n**-1.1)
    plan = table_plan(dpsco.Logistic(), columns.width, n=n, budget=budget, intercept=True)
    if not args.json:
        print(f"Data: {n:,} simulated customers, {len(table.columns)} raw columns, {columns.width} declared features.")
        print(f"Label: {' or '.join(table.classes)}. Columns: {', '.join(table.columns)}.\n")
        print(plan.explain(), "\n")
    result = dpsco.train(plan, dpsco.stream(features[:n], labels[:n]), progress=not args.json)
    rows, truth = features[n:], labels[n:]
    coef, intercept = _without_privacy(features[:n], labels[:n])
    accuracy = {
        "private": np.mean(result.model.predict(rows) == truth),
        "non-private": np.mean((rows @ coef + intercept > 0) == truth),
        "of a constant": max(np.mean(truth), 1 - np.mean(truth)),
    }
    reached = {f"accuracy, {name}": f"{float(value):.4f}" for name, value in accuracy.items()}
    about = Subject("simulated customers", day, "bought", table.classes, columns.feature_names)
    page = write_run_page(result, args.out / "index.html", reached=reached, subject=about)
    if args.json:
        print_json({"report": json.loads(result.report.to_json()), "reached": reached, "page": str(page)})
        return 0
    print(result.report, "\n")
    print(f"Results on {PUBLIC:,} fresh public rows")
    for name, value in reached.items():
        print(f"  {name:<26} {value}")
    print("  Clipping also bounds the rows with broken sensors; the non-private fit has no bound.")
    print(f"\nPage: {page}")
    print("Your own table: dpsco columns PUBLIC_SAMPLE.csv --label COLUMN, then dpsco fit --help")
    return 0


def _without_privacy(features: Any, labels: Any) -> tuple[Any, float]:
    """Return coefficients and intercept of the logistic regression of all rows by L-BFGS, without privacy."""
    from scipy.optimize import minimize

    scale = np.maximum(np.std(features, axis=0), 1e-6)
    rows = np.column_stack([features / scale, np.ones(len(labels))]).astype(np.float64)
    sign = 2.0 * labels - 1.0

    def risk(x: Any) -> tuple[float, Any]:
        margin = sign * (rows @ x)
        slope = -0.5 * (1 - np.tanh(margin / 2)) * sign
        return float(np.mean(np.logaddexp(0.0, -margin))), rows.T @ slope / len(sign)

    x = minimize(risk, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x
    return x[:-1] / scale, float(x[-1])
