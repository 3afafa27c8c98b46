"""A federation: the excess risk of a million devices, the rounds other methods need for it, and Flower on loopback.

    python -m benchmarks federation [--only simulation|rounds|flower] [--devices 1e6] [--keys 3]

``simulation``: excess risk of simulated devices of which a fifth does not answer, with and without a survey.
``rounds``: on the reference problem, the plan at 16 rounds compared with one-pass DP-SGD and DP-FTRL with momentum.
These are tuned on a grid at every number of rounds; the plan is not tuned.
``flower``: SuperLink and four SuperNodes in a network namespace with loopback only; one of them is killed. The first
run creates their environment under build/peers.
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np

import dpsco
from benchmarks.flower_environment import federate
from benchmarks.planner_baselines import Baseline, descend
from benchmarks.planner_problems import FAMILY, draw
from benchmarks.planner_simulator import Columns, score, setting_of

BASELINES = (("DP-SGD", "independent"), ("DP-FTRL", "sqrt"))
ROUNDS = (16, 24, 32, 48, 64, 128)
TUNING, SCORING = (1, 2), tuple(range(50, 58))


def simulation(devices: int, keys: int) -> None:
    from dpsco.engines.flower.simulate import Availability, simulate

    there = Availability()
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(radius=10.0), dimension=50)
    print(f"{devices:,} simulated devices of one row, p = 50, {there.response:.0%} answer; mean of {keys} keys")
    runs_of = ((1.0, 8, "full"), (1.0, 16, "none"), (1.0, None, "none"), (0.3, 8, "full"), (0.3, None, "none"))
    for epsilon, rounds, survey in runs_of:
        budget = dpsco.Budget(epsilon, devices**-1.1, adjacency="add-remove")
        plan = dpsco.plan(problem, n=round(devices * there.response), budget=budget, rounds=rounds, survey=survey)
        began = time.perf_counter()
        made = [simulate(plan, devices=devices, availability=there, seed=k, key=bytes([k]) * 32) for k in range(keys)]
        seconds = (time.perf_counter() - began) / keys
        runs, used = [excess for _, excess in made], max(result.report.rounds for result, _ in made)
        mean, error = np.mean(runs), np.std(runs) / np.sqrt(keys)
        predicted = plan.predicted_excess
        known = "" if predicted is None else f"  predicted {predicted:.2e}, ratio {predicted / mean:.2f}"
        print(
            f"  epsilon {epsilon:<4g} survey {survey:<5} T = {used:<4d} measured {mean:.2e} +- {error:.0e}{known}   "
            f"{seconds:.0f} s per run",
            flush=True,
        )


def rounds_for_the_same() -> None:
    data = draw(FAMILY[0])
    case = data.case
    columns = Columns(case.problem, case.budget, data.features, data.labels)
    print(f"reference problem, n = {case.n:,}, p = {case.p}, epsilon = {case.epsilon:g}: excess risk by rounds")
    ours = {}
    for T in (16, 32):
        plan = dpsco.plan(case.problem, n=case.n, budget=case.budget, rounds=T, survey="none")
        ours[T] = float(score(columns, [setting_of(plan)], SCORING, data.excess)[0])
        print(f"  {'accelerated-srgd, plan':<29} T = {T:<4d} {ours[T]:.2e}", flush=True)
    for name, mechanism in BASELINES:
        reached: dict[str, dict[int, float]] = {name: {}, f"{name} with momentum": {}}
        for T in ROUNDS:
            grid = [
                Baseline(T, float(rate), 1.0, momentum, output, mechanism)
                for rate, momentum, output in itertools.product(
                    2.0 ** np.arange(-1, 7), (0.0, 0.5, 0.8, 0.9), ("last", "tail")
                )
            ]
            tuned = score(columns, grid, TUNING, data.excess, descend)
            moving = np.array([baseline.momentum > 0 for baseline in grid])
            for label, values in zip(reached, (np.where(moving, np.inf, tuned), tuned), strict=True):
                best = grid[int(np.nanargmin(values))]
                reached[label][T] = float(score(columns, [best], SCORING, data.excess, descend)[0])
                print(f"  {label + ', tuned':<29} T = {T:<4d} {reached[label][T]:.2e}", flush=True)
        for label, by_rounds in reached.items():
            for T, excess in ours.items():
                enough = [rounds for rounds, value in by_rounds.items() if value <= excess]
                least = min(by_rounds, key=lambda rounds: by_rounds[rounds])
                words = (
                    f"{min(enough)} rounds" if enough else f"not up to {ROUNDS[-1]} ({by_rounds[least]:.2e} at {least})"
                )
                print(f"  {label}: for the excess of our {T} rounds: {words}", flush=True)


def flower() -> None:
    print("SuperLink and 4 SuperNodes over loopback, 4,000 devices, 16 rounds")
    killed = federate("--kill", "5")
    print(
        f"  one SuperNode killed after round 5: {killed['rounds']} rounds in {killed['seconds']} s, private "
        f"{killed['private']}, guarantee as planned {killed['guarantee_as_planned']}",
        flush=True,
    )
    for name, options in (("TLS", ["--tls"]), ("simulation", ["--simulation"])):
        seeded = federate("--seeded", *options)
        print(
            f"  {name}, noise fixed: {seeded['rounds']} rounds in {seeded['seconds']} s, largest relative distance to "
            f"the run in one process {seeded['apart']:.1e}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("simulation", "rounds", "flower"))
    parser.add_argument("--devices", type=float, default=1e6)
    parser.add_argument("--keys", type=int, default=3)
    args = parser.parse_args()
    if args.only in (None, "simulation"):
        simulation(int(args.devices), args.keys)
    if args.only in (None, "rounds"):
        rounds_for_the_same()
    if args.only in (None, "flower"):
        flower()


if __name__ == "__main__":
    main()
