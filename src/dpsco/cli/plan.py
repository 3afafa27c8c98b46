"""``dpsco plan``: plan a run from public numbers."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from dpsco.cli.model_options import add_budget_options, add_model_options, budget_of, loss_of, planned
from dpsco.cli.output import format_bytes, format_count, print_json, print_table
from dpsco.errors import InvalidArgument, positive_integer

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers of ``dpsco``."""
    parser = commands.add_parser(
        "plan",
        help="choose rounds and noise and predict excess risk, from public numbers alone",
        description="Print the plan that dpsco fit makes with the same options, what limits it, the effect of twice "
        "the rows, epsilon or rounds, and the rounds, gradients and bytes of every method of the paper's table. With "
        "--devices: the cost of a federation of that many devices, per device and for the server, with every method.",
    )
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--rows", type=float, metavar="N", help="public number of rows, such as 1e6")
    size.add_argument(
        "--devices", type=float, nargs="+", metavar="N", help="numbers of devices of a federation, such as 1e6 1e8"
    )
    parser.add_argument(
        "--round-seconds", type=float, default=60.0, help="with --devices: seconds per round (default 60)"
    )
    parser.add_argument(
        "--response", type=float, default=1.0, help="with --devices: expected share that answers (default 1)"
    )
    parser.add_argument("--simulate", action="store_true", help="with --devices: simulate the federation and compare")
    width = parser.add_mutually_exclusive_group(required=True)
    width.add_argument("--dimension", type=float, help="number of features")
    width.add_argument("--columns", metavar="FILE", help="a schema of the feature columns, which states their number")
    add_budget_options(parser, ("zero-out", "add-remove", "replace"))
    add_model_options(parser)
    parser.add_argument("--rule", choices=("response", "theorem-1", "theorem-2"), help="default: response")
    parser.add_argument("--memory", type=float, help="largest number of bytes kept between rounds")
    parser.add_argument("--mechanism", help="noise mechanism (default: planned); see dpsco mechanisms")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the plan; return the exit code."""
    import dpsco
    from dpsco.planning.method_costs import method_costs
    from dpsco.planning.table_problem import model_ball

    options = {"rule": args.rule, "memory": args.memory, "mechanism": args.mechanism}
    loss, width = loss_of(args), _width(args)
    if args.devices:  # rows of devices have no intercept here
        if args.solver not in ("one-pass", "auto"):
            raise InvalidArgument(f"A device answers once: leave --solver {args.solver} out.")
        ball = model_ball(20.0 if args.radius is None else args.radius, loss)
        problem = dpsco.Problem(loss, ball, width)
        options |= {"rounds": args.rounds, "survey": args.survey}
        plans = [
            dpsco.plan(problem, n=round(n * args.response), budget=budget_of(args), **options) for n in args.devices
        ]
        return _federations(plans, args)
    n = positive_integer("--rows", args.rows, "It is the public number of rows.")
    plan = planned(args, loss, width, n, solver=args.solver, **options)
    predicted = plan.prediction is not None and plan.rule.startswith("response")
    gains = _doublings(plan, args) if predicted else {}
    table = method_costs(plan)
    if args.json:
        lines = [dataclasses.asdict(line) for line in table]
        print_json({"plan": plan.to_dict(), "doubling": gains, "methods": lines})
        return 0
    print(plan.explain())
    if gains:
        print("\nPredicted excess risk if one thing doubled:")
        for name, value in gains.items():
            print(f"  {name:<10} {value:.3g}  ({_change(value, plan.prediction.total)})")  # type: ignore[union-attr]
    print()
    _print_methods(table, plan.n)
    return 0


def _width(args: argparse.Namespace) -> int:
    if args.columns is not None:
        from dpsco.rows.public_columns import PublicColumns

        return PublicColumns.read(args.columns).width
    return positive_integer("dimension", args.dimension, "It is the number of features.")


def _federations(plans: list[Any], args: argparse.Namespace) -> int:
    """Print the cost of each federation with every method."""
    from dpsco.planning.federation_costs import device_costs

    tables = [(plan, device_costs(plan, round_seconds=args.round_seconds)) for plan in plans]
    if args.simulate:
        return _simulations(plans, args)
    if args.json:
        body = [
            {"plan": plan.to_dict(), "methods": [dataclasses.asdict(line) for line in lines]} for plan, lines in tables
        ]
        print_json({"federations": body})
        return 0
    columns = (
        *("method", "rounds", "rounds per device", "down", "up", "answers per round", "received", "additions"),
        f"days at {args.round_seconds:g} s per round",
    )
    for plan, lines in tables:
        predicted = plan.predicted_excess
        shown = "" if predicted is None else f"; predicted excess risk of this plan {predicted:.3g}"
        rows = [
            (
                line.method,
                format_count(line.rounds),
                f"{line.participations:.3g}" + ("" if line.one_pass else " or more"),
                format_bytes(line.bytes_down),
                format_bytes(line.bytes_up),
                format_count(line.cohort),
                format_bytes(line.server_bytes),
                f"{line.server_additions:.1e}",
                f"{line.days:,.2g}",
            )
            for line in lines
        ]
        print_table(
            columns, rows, title=f"{plan.n:,} devices, {plan.problem.parameters:,} parameters{shown}", width=150
        )
    print("down, up, additions: over the whole run, per device and at the server. received: by the server per round.")
    print("The rounds of this plan are exact; those of other methods omit constants and logarithms.")
    return 0


def _simulations(plans: list[Any], args: argparse.Namespace) -> int:
    """Print the predicted excess risk of each plan and that of a simulated federation."""
    from dpsco.engines.flower.simulate import Availability, simulate

    lines = []
    for plan, devices in zip(plans, args.devices, strict=True):
        result, excess = simulate(plan, devices=devices, availability=Availability(response=args.response))
        predicted = plan.predicted_excess
        rounds = result.report.rounds
        lines.append({"devices": int(devices), "rounds": rounds, "epsilon": result.report.epsilon})
        lines[-1] |= {"predicted": predicted, "measured": excess}
        if not args.json:
            ratio = "" if predicted is None else f", predicted {predicted:.3g}, ratio {predicted / excess:.2f}"
            print(f"{devices:,.0f} devices, {args.response:.0%} answer, {rounds} rounds: ", end="")
            print(f"excess risk {excess:.3g}{ratio}")
    if args.json:
        print_json({"simulations": lines})
    return 0


def _doublings(plan: Any, args: argparse.Namespace) -> dict[str, float]:
    """Return the predicted excess with twice the rows, epsilon or rounds; everything else is planned again."""
    from dpsco.planning.response_planner import response_plan

    options = {"memory": args.memory, "mechanism": args.mechanism, "variant": args.mechanism is None}
    problem, n, budget = plan.problem, plan.n, plan.budget
    rounds = None if args.rounds is None else int(args.rounds)
    again = {"n": response_plan(problem, 2 * n, budget, rounds=rounds, **options)}
    if budget.private:
        richer = dataclasses.replace(budget, epsilon=2 * budget.epsilon)
        again["epsilon"] = response_plan(problem, n, richer, rounds=rounds, **options)
    if 2 * plan.rounds <= n:
        again["rounds"] = response_plan(problem, n, budget, rounds=2 * plan.rounds, **options)
    return {name: other.prediction.total for name, other in again.items() if other.prediction is not None}


def _change(value: float, now: float) -> str:
    change = value / now - 1
    return "no change" if abs(change) < 0.005 else f"{change:+.0%}"


def _print_methods(table: Any, n: int) -> None:
    rows = [
        (
            line.name,
            format_count(line.rounds),
            format_count(line.gradients),
            f"{line.bytes_per_round:,}",
            "yes" if line.one_pass else "no",
            line.note,
        )
        for line in table
    ]
    columns = ("method", "rounds", "gradients", "bytes per round", "one pass", "")
    print_table(columns, rows, title=f"Methods at n = {n:,}", left=(0, 5), width=128)
