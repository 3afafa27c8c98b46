"""``dpsco plan``: the numbers of a run before there is one."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from typing import Any

__all__ = ["add_parser", "run"]

LOSSES = ("logistic", "squared", "huber", "smoothed-hinge", "softmax")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "plan",
        help="rounds, noise and predicted excess risk from public numbers alone",
        description="Prints the plan for n rows, what limits it, what doubling n, epsilon or the rounds would buy, and "
        "the rounds, gradients and bytes of every method of the paper's table at the same n.",
    )
    parser.add_argument("--n", type=float, required=True, help="public number of rows, 1e6 is fine")
    parser.add_argument("--dimension", type=float, required=True, help="number of features")
    parser.add_argument("--epsilon", type=float, required=True, help="inf for no privacy")
    parser.add_argument("--delta", type=float, required=True)
    parser.add_argument("--loss", choices=LOSSES, default="logistic")
    parser.add_argument("--classes", type=int, default=10, help="classes of the softmax loss (default 10)")
    parser.add_argument("--width", type=float, default=1.0, help="width of the Huber and smoothed hinge losses")
    parser.add_argument("--label-bound", type=float, default=1.0, help="bound on |y| of the squared loss")
    parser.add_argument(
        "--radius", type=float, default=20.0, help="radius of the ball of models (default 20); inf for none"
    )
    parser.add_argument("--feature-norm", type=float, default=1.0, help="bound on the norm of a row (default 1)")
    parser.add_argument("--adjacency", choices=("zero-out", "add-remove", "replace"), default="zero-out")
    parser.add_argument("--records", type=int, default=1, help="rows of one person that are protected together")
    parser.add_argument("--rule", choices=("response", "theorem-1", "theorem-2"), default="response")
    parser.add_argument("--rounds", type=int, help="fixes the number of rounds")
    parser.add_argument("--memory", type=float, help="most bytes kept between rounds")
    parser.add_argument("--mechanism", help="how the noise is correlated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the plan; 0 if there is one."""
    from dpsco.planning.methods import methods
    from dpsco.planning.rules import plan

    problem, budget, n = _problem(args), _budget(args), args.n
    made = plan(
        problem,
        n=n,
        budget=budget,
        rule=args.rule,
        rounds=args.rounds,
        memory=args.memory,
        mechanism=args.mechanism,
    )
    gains = _doublings(made, args) if made.prediction is not None else {}
    table = methods(made)
    if args.json:
        lines = [dataclasses.asdict(line) for line in table]
        print(json.dumps({"plan": made.to_dict(), "doubling": gains, "methods": lines}, indent=2, sort_keys=True))
        return 0
    print(made.explain())
    if gains:
        print("\nPredicted excess risk if one thing doubled:")
        for name, value in gains.items():
            print(f"  {name:<10} {value:.3g}  ({_change(value, made.prediction.total)})")  # type: ignore[union-attr]
    print()
    _print_methods(table, made.n)
    return 0


def _problem(args: argparse.Namespace) -> Any:
    import dpsco

    loss: dpsco.problem.Loss = dpsco.Logistic()
    if args.loss == "squared":
        loss = dpsco.Squared(label_bound=args.label_bound)
    elif args.loss == "huber":
        loss = dpsco.Huber(width=args.width)
    elif args.loss == "smoothed-hinge":
        loss = dpsco.SmoothedHinge(width=args.width)
    elif args.loss == "softmax":
        loss = dpsco.Softmax(classes=args.classes)
    domain = dpsco.Everything() if math.isinf(args.radius) else dpsco.L2Ball(radius=args.radius)
    return dpsco.Problem(loss=loss, domain=domain, dimension=args.dimension, feature_norm=args.feature_norm)


def _budget(args: argparse.Namespace) -> Any:
    import dpsco

    return dpsco.Budget(epsilon=args.epsilon, delta=args.delta, adjacency=args.adjacency, records=args.records)


def _doublings(made: Any, args: argparse.Namespace) -> dict[str, float]:
    """Predicted excess with twice the rows, twice the epsilon, or twice the rounds; all else chosen anew."""
    from dpsco.planning.response_planner import response_plan

    options = {"memory": args.memory, "mechanism": args.mechanism}
    problem, n, budget = made.problem, made.n, made.budget
    again = {"n": response_plan(problem, 2 * n, budget, rounds=args.rounds, **options)}
    if budget.private:
        richer = dataclasses.replace(budget, epsilon=2 * budget.epsilon)
        again["epsilon"] = response_plan(problem, n, richer, rounds=args.rounds, **options)
    if 2 * made.rounds <= n:
        again["rounds"] = response_plan(problem, n, budget, rounds=2 * made.rounds, **options)
    return {name: plan.prediction.total for name, plan in again.items() if plan.prediction is not None}


def _change(value: float, now: float) -> str:
    change = value / now - 1
    return "no change" if abs(change) < 0.005 else f"{change:+.0%}"


def _print_methods(table: Any, n: int) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=f"Methods at n = {n:,}", title_justify="left")
    for name in ("method", "rounds", "gradients", "bytes a round", "one pass", ""):
        shown.add_column(name, justify="left" if name in ("method", "") else "right")
    for line in table:
        shown.add_row(
            line.name,
            _count(line.rounds),
            _count(line.gradients),
            f"{line.bytes_per_round:,}",
            "yes" if line.one_pass else "no",
            line.note,
        )
    Console(width=120, highlight=False).print(shown)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"
