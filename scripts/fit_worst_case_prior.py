"""Fit the least favourable prior of the workload mechanism: release/mechanisms/data/worst_case_prior.json.

For each horizon T = 2^k and z-step, multiplicative weights on the curvature grid of prior.py: the strategy answers
to the weights, each weight is multiplied by a power of the noise near its node, relative to square-root Toeplitz.
Takes about two minutes for T <= 512.

    python scripts/fit_worst_case_prior.py [--largest 512]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from dpsco.algorithm_1 import response
from dpsco.query import Array
from dpsco.release.mechanisms.optimal import optimal_for_gram
from dpsco.release.mechanisms.prior import FINE, curvature_grid, spreading, square_root_noise
from dpsco.release.mechanisms.workload import default_ridge, gram

TARGET = Path(__file__).parents[1] / "src" / "dpsco" / "release" / "mechanisms" / "data" / "worst_case_prior.json"

POWER = 2.0
"""Rate of the multiplicative step; larger rates oscillate at T >= 256."""


def least_favourable(horizon: int, z_step: str, start: Array, rounds: int) -> tuple[Array, float]:
    """Return weights on ``curvature_grid(horizon)`` and their worst ratio to square-root Toeplitz."""
    ratios, spread = curvature_grid(horizon, FINE), spreading(horizon)
    noise = square_root_noise(ratios, horizon, z_step)
    workload = response(ratios, horizon, z_step).gains @ np.tri(horizon) / np.sqrt(noise)[:, None]

    def relative_noise(weights: Array) -> Array:
        x = optimal_for_gram(gram(workload, spread @ weights, default_ridge(horizon)))
        return np.asarray(np.sum(workload * np.linalg.solve(x, workload.T).T, axis=1))

    weights, average = start, np.zeros(len(start))
    for k in range(rounds):
        worst_near_node = np.max(relative_noise(weights)[:, None] * (spread > 0.0), axis=0)
        weights = weights * worst_near_node**POWER
        weights /= np.sum(weights)
        if k >= rounds // 2:  # the tail average removes the remaining oscillation
            average += weights
    average /= np.sum(average)
    return average, float(np.max(relative_noise(average)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=512, help="largest horizon, a power of two")
    largest = parser.parse_args().largest
    table: dict[str, list[list[float]]] = {}
    for z_step in ("halved", "listed"):
        rows: list[list[float]] = []
        weights = np.full(2, 0.5)
        for k in range(largest.bit_length()):
            # Start from the weights of the previous horizon; the uniform part gives new curvatures some weight.
            size = len(curvature_grid(1 << k))
            start = 0.8 * np.pad(weights, (0, size - len(weights))) + 0.2 / size
            weights, worst = least_favourable(1 << k, z_step, start, rounds=100 if k < 8 else 50)
            rows.append([round(float(w), 5) for w in weights])
            print(f"{z_step} T={1 << k}: worst ratio {worst:.4f}", flush=True)
        table[z_step] = rows
    lines = ",\n".join(
        f'    "{z_step}": [\n' + ",\n".join("      " + json.dumps(row) for row in rows) + "\n    ]"
        for z_step, rows in table.items()
    )
    comment = "Weights on curvature_grid(2**k), k = 0, 1, ..; made by scripts/fit_worst_case_prior.py"
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(f'{{\n  "about": "{comment}",\n  "weights": {{\n{lines}\n  }}\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
