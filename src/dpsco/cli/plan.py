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
        "the rounds, gradients and bytes of every method of the paper's table at the same n. With --devices: what a "
        "federation of so many devices costs each of them, and the server, under every method.",
    )
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--n", type=float, help="public number of rows, 1e6 is fine")
    size.add_argument("--devices", type=float, nargs="+", metavar="N", help="sizes of a federation: 1e6 1e8 1e9")
    parser.add_argument("--round-seconds", type=float, default=60.0, help="with --devices: length of a round")
    parser.add_argument(
        "--response", type=float, default=1.0, help="with --devices: share of them expected to answer (default 1)"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="with --devices: train on so many simulated ones, and compare"
    )
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
    from dpsco.planning.choose import plan
    from dpsco.planning.method_costs import methods

    problem, budget = _problem(args), _budget(args)
    options = {"rule": args.rule, "rounds": args.rounds, "memory": args.memory, "mechanism": args.mechanism}
    if args.devices:
        plans = [plan(problem, n=round(n * args.response), budget=budget, **options) for n in args.devices]
        return _federations(plans, args)
    made = plan(problem, n=args.n, budget=budget, **options)
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


def _federations(plans: list[Any], args: argparse.Namespace) -> int:
    """What each federation costs, under every method."""
    from rich.console import Console
    from rich.table import Table

    from dpsco.planning.federation_costs import device_costs

    tables = [(made, device_costs(made, round_seconds=args.round_seconds)) for made in plans]
    if args.simulate:
        return _simulations(plans, args)
    if args.json:
        body = [
            {"plan": made.to_dict(), "methods": [dataclasses.asdict(line) for line in lines]} for made, lines in tables
        ]
        print(json.dumps({"federations": body}, indent=2, sort_keys=True))
        return 0
    for made, lines in tables:
        print(f"{made.n:,} devices, {made.problem.parameters:,} parameters", end="")
        print("" if made.prediction is None else f"; predicted excess risk of this plan {made.prediction.total:.3g}")
        shown = Table()
        for name in ("method", "rounds", "rounds a device", "down", "up", "answers a round", "in a round", "additions"):
            shown.add_column(name, justify="left" if name == "method" else "right")
        shown.add_column(f"days at {args.round_seconds:g} s a round", justify="right")
        for line in lines:
            times = f"{line.participations:.3g}" + ("" if line.one_pass else " or more")
            numbers = (_bytes(line.bytes_down), _bytes(line.bytes_up), _count(line.cohort), _bytes(line.server_bytes))
            additions = f"{line.server_additions:.1e}"
            shown.add_row(line.method, _count(line.rounds), times, *numbers, additions, f"{line.days:,.2g}")
        Console(width=140, highlight=False).print(shown)
    print("down, up: bytes of one device over the whole run; in a round, additions: the server's. Rounds of the other")
    print("methods are those of their analyses without logarithms and constants; this plan's are exact.")
    return 0


def _simulations(plans: list[Any], args: argparse.Namespace) -> int:
    """The excess that each plan predicts, and that of a simulated federation."""
    from dpsco.engines.flower.simulate import Availability, simulate

    lines = []
    for made, devices in zip(plans, args.devices, strict=True):
        result, excess = simulate(made, devices=devices, availability=Availability(response=args.response))
        predicted = made.predicted_excess
        lines.append({"devices": int(devices), "rounds": made.rounds, "epsilon": result.report.epsilon})
        lines[-1] |= {"predicted": predicted, "measured": excess}
        if not args.json:
            ratio = "" if predicted is None else f", predicted {predicted:.3g}, ratio {predicted / excess:.2f}"
            print(f"{devices:,.0f} devices, {args.response:.0%} answer, {made.rounds} rounds: ", end="")
            print(f"excess risk {excess:.3g}{ratio}")
    if args.json:
        print(json.dumps({"simulations": lines}, indent=2, sort_keys=True))
    return 0


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


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
