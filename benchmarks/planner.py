"""The default plan and a grid search, its prediction and the measurement, few rounds and other methods.

    python -m benchmarks planner [--quick] [--only NAME] [--data FOLDER] [--keys 8]

A grid search is tuned on some noise keys and scored on others, like the plan. (epsilon, delta) does not cover the
tuning: the grid is an upper limit for a user without the planner. ``--data`` names a folder whose ``load.py`` has
``load("adult")`` and ``load("mnist")``; without it the real problems are skipped.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import numpy as np

from benchmarks.planner_baselines import Baseline, descend
from benchmarks.planner_problems import FAMILY, Data, draw, real
from benchmarks.planner_simulator import Columns, Setting, score, setting_of
from dpsco.planning.choose import plan
from dpsco.planning.response_planner import predict
from dpsco.planning.spectrum_priors import loss_scale

TUNING, SCORING = (1, 2, 3), tuple(range(50, 58))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="every fourth problem, a coarser grid, no rivals")
    parser.add_argument("--only", help="problems whose name contains this")
    parser.add_argument("--data", type=Path, help="folder with real data")
    args = parser.parse_args()
    family = [case for case in FAMILY if not args.only or args.only in case.name]
    results = [against_grid(draw(case), args.quick) for case in (family[::4] if args.quick else family)]
    if args.data is None:
        print("real data: skipped, no --data given")
    else:
        for name, epsilon in (("adult", 0.5), ("adult", 1.0), ("adult", 4.0), ("mnist", 1.0)):
            results.append(against_grid(real(args.data, name, epsilon), args.quick))
    ratios, predicted = np.array(results).T
    print(f"\nplan over grid: median {np.median(ratios):.2f}, worst {np.max(ratios):.2f}   (goal: 1.25 and 2)")
    factor = np.exp(np.median(np.abs(np.log(predicted))))
    print(f"prediction over measurement: median factor {factor:.2f}   (goal: 3)\n")
    if not args.quick:
        few_rounds()


def against_grid(data: Data, quick: bool) -> tuple[float, float]:
    """Excess of the plan over that of the best grid point, and prediction over measurement; prints one line."""
    case, began = data.case, time.perf_counter()
    problem, columns = case.problem, Columns(case.problem, case.budget, data.features, data.labels)
    top = loss_scale(problem).curvature
    grid = [
        Setting(T, top * 2.0**k, share * problem.lipschitz, z)
        for T, k, share, z in itertools.product(
            (8, 16, 32, 64, 128), range(-8, 3, 2 if quick else 1), (0.5, 0.7, 1.0), ("halved", "listed")
        )
    ]
    keys = TUNING[:1] if problem.parameters > 5000 else TUNING[:2]
    best = grid[int(np.nanargmin(score(columns, grid, keys, data.excess)))]
    made = plan(problem, n=case.n, budget=case.budget, survey="none")
    ours = setting_of(made)
    at_best, measured = (score(columns, [s], SCORING, data.excess)[0] for s in (best, ours))
    parts = predict(made)
    print(
        f"{case.name:20s} n={case.n:<7d} p={problem.parameters:<5d} eps={case.epsilon:<4g} | plan T={made.rounds:<4d}"
        f"beta={ours.beta:<7.3g}C={ours.clip:<5.3g}{ours.z_step:7s} {measured:.2e} | grid T={best.rounds:<4d}"
        f"beta={best.beta:<7.2g}C={best.clip:<5.2g}{best.z_step:7s} {at_best:.2e} | ratio {measured / at_best:5.2f} | "
        f"predicted {parts.total:.2e} = {parts.optimisation:.0e} + {parts.noise:.0e} + {parts.sampling:.0e} | "
        f"{time.perf_counter() - began:.0f} s",
        flush=True,
    )
    return float(measured / at_best), float(parts.total / measured)


def few_rounds() -> None:
    """The reference problem at T = n^(1/4): the plan, and every method tuned on a grid."""
    data = draw(FAMILY[0])
    case, T = data.case, round(data.case.n**0.25)
    columns = Columns(case.problem, case.budget, data.features, data.labels)

    def tuned(settings: list[Baseline] | list[Setting], run: object = None) -> float:
        extra = {} if run is None else {"run": run}
        best = settings[int(np.nanargmin(score(columns, settings, TUNING, data.excess, **extra)))]
        print(f"    {best}")
        return float(score(columns, [best], SCORING, data.excess, **extra)[0])

    rates, clips, outputs = 2.0 ** np.arange(-2, 9), (0.5, 0.7, 1.0), ("last", "average", "tail")
    print(f"reference problem at T = n^(1/4) = {T}, best of a grid each:")
    lines = {}
    for name, mechanism in (("DP-SGD", "independent"), ("DP-FTRL", "sqrt")):
        for label, momenta in (("", (0.0,)), (" with momentum", (0.3, 0.5, 0.7, 0.8, 0.9))):
            settings = [
                Baseline(T, r, c, m, o, mechanism) for r in rates for c in clips for m in momenta for o in outputs
            ]
            lines[f"one-pass {name}{label}"] = tuned(settings, descend)
    grid = [
        Setting(T, 0.25 * 2.0 ** (k / 2), c, z) for k in range(-14, 3) for c in (0.7, 1.0) for z in ("halved", "listed")
    ]
    lines["accelerated-srgd"] = tuned(grid)
    made = plan(case.problem, n=case.n, budget=case.budget, rounds=T, survey="none")
    ours = setting_of(made)
    lines["accelerated-srgd, plan(rounds=T)"] = float(score(columns, [ours], SCORING, data.excess)[0])
    for name, value in lines.items():
        print(f"  {name:34s} {value:.2e}")
    ours_is = lines["accelerated-srgd, plan(rounds=T)"]
    plain = min(lines["one-pass DP-SGD"], lines["one-pass DP-FTRL"])
    best = min(value for name, value in lines.items() if name.startswith("one-pass"))
    print(f"  other methods over the plan: {plain / ours_is:.1f}x, with momentum {best / ours_is:.1f}x")
    tuned_is = lines["accelerated-srgd"]
    print(f"  other methods over tuned srgd: {plain / tuned_is:.1f}x, with momentum {best / tuned_is:.1f}x")


if __name__ == "__main__":
    main()
