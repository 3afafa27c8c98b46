"""Options of the model and its plan: the same names, defaults and meaning in ``dpsco plan`` and ``dpsco fit``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dpsco.errors import InvalidArgument

if TYPE_CHECKING:
    from dpsco.accounting.budget import Budget
    from dpsco.planning.plan import Plan
    from dpsco.problem import Loss

__all__ = ["REGRESSIONS", "add_budget_options", "add_model_options", "budget_of", "class_names", "loss_of", "planned"]

LOSSES = ("logistic", "softmax", "smoothed-hinge", "huber", "squared")
REGRESSIONS = ("huber", "squared")


def add_budget_options(parser: Any, adjacencies: tuple[str, ...] = ("zero-out", "replace")) -> Any:
    """Add the options of the guarantee; return their group."""
    budget = parser.add_argument_group("privacy budget")
    budget.add_argument("--epsilon", type=float, required=True, help="privacy loss: 1 is strong, 10 is weak")
    budget.add_argument(
        "--delta",
        type=float,
        required=True,
        help="probability left out of the guarantee: choose it well below 1 / rows",
    )
    budget.add_argument(
        "--adjacency",
        choices=adjacencies,
        default="zero-out",
        help="a neighbouring data set has one row zeroed (default) or replaced",
    )
    budget.add_argument("--max-rows-per-unit", type=int, metavar="K", help="number of rows per id that are used")
    return budget


def add_model_options(parser: Any) -> Any:
    """Add the options of the model; return their group."""
    model = parser.add_argument_group("model")
    model.add_argument("--loss", choices=LOSSES, default="logistic")
    model.add_argument("--classes", metavar="A,B", help="the labels (default 0,1)")
    model.add_argument(
        "--radius",
        type=float,
        help="bound on the norm of the model (default 1000 with a survey, else 20; regression 10)",
    )
    model.add_argument("--no-intercept", action="store_true")
    model.add_argument("--rounds", type=float, help="number of rounds, the survey's included (default: planned)")
    model.add_argument(
        "--survey",
        choices=("auto", "full", "diagonal", "low-rank", "intervals", "none"),
        default="auto",
        help="first learn the geometry of the rows in one round (default auto: where it pays)",
    )
    model.add_argument(
        "--solver",
        choices=(
            "one-pass",
            "auto",
            "objective-perturbation",
            "surveyed-objective-perturbation",
            "sufficient-statistics",
        ),
        default="one-pass",
        help="auto: of all methods for rows that can be read again, the one of least predicted excess risk (default "
        "one-pass, whose privacy rests on clipping alone)",
    )
    return model


def class_names(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the labels of a classifier."""
    return ("0", "1") if args.classes is None else tuple(name.strip() for name in args.classes.split(","))


def loss_of(args: argparse.Namespace) -> Loss:
    """Return the loss that the options name; refuse options that contradict it."""
    import dpsco

    if args.loss in REGRESSIONS:
        if args.classes is not None:
            raise InvalidArgument(f"--loss {args.loss} is a regression: --classes is for classifiers. Leave one out.")
        return dpsco.Huber(0.5) if args.loss == "huber" else dpsco.Squared(1.0)
    if getattr(args, "label_bound", None) is not None:
        raise InvalidArgument(f"--label-bound is for regressions, and --loss {args.loss} classifies. Leave one out.")
    if args.loss == "softmax":
        if args.classes is None:
            raise InvalidArgument("--loss softmax needs --classes A,B,C: you declare the public set of labels.")
        return dpsco.Softmax(len(class_names(args)))
    count = len(class_names(args))
    if args.loss == "smoothed-hinge":
        return dpsco.SmoothedHinge() if count == 2 else dpsco.MulticlassHinge(count)
    if count != 2:
        raise InvalidArgument(f"--loss logistic needs two classes, got {count}. Use --loss softmax for more.")
    return dpsco.Logistic()


def budget_of(args: argparse.Namespace) -> Budget:
    """Return the guarantee that the options state."""
    from dpsco.accounting.budget import Budget

    records = 1 if args.max_rows_per_unit is None else args.max_rows_per_unit
    return Budget(args.epsilon, args.delta, args.adjacency, records)


def planned(args: argparse.Namespace, loss: Loss, width: int, n: Any, *, solver: str, **options: Any) -> Plan:
    """Return the plan that the options describe, of a model with ``width`` features."""
    from dpsco.planning.table_problem import table_plan

    return table_plan(
        loss,
        width,
        n=n,
        budget=budget_of(args),
        intercept=not args.no_intercept,
        radius=args.radius,
        rounds=args.rounds,
        survey=args.survey,
        solver=solver,
        gaussian=getattr(args, "account", None) is not None,
        **options,
    )
