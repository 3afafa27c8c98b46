"""Draw the plots of docs/how-it-works.md into docs/pictures.

python scripts/draw_pictures.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from dpsco.pages.plots import draw_svg
from dpsco.research.paper.instances import Population, run

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"


def rounds(axes: Any) -> None:
    """Draw the stream as batches, each with the two points at which its gradients are taken."""
    count = 6
    for t in range(count):
        colour = f"C{t}"
        axes.add_patch(_box(t, 0.0, colour))
        axes.text(t + 0.46, 0.25, f"batch {t}", ha="center", va="center", fontsize=9)
        axes.text(t + 0.46, 1.62, f"$x_{t}$", ha="center", fontsize=11)
        axes.annotate("", (t + 0.46, 1.55), (t + 0.46, 0.55), arrowprops={"arrowstyle": "->", "color": colour})
        if t:
            axes.annotate(
                "", (t - 0.42, 1.55), (t + 0.3, 0.55), arrowprops={"arrowstyle": "->", "color": colour, "alpha": 0.5}
            )
        axes.text(t + 0.52, 1.0, f"{t + 1}", fontsize=9, color=colour)
        if t:
            axes.text(t - 0.22, 1.0, f"-{t}", fontsize=9, color=colour, alpha=0.7)
    axes.text(
        0, -0.35, "each row is read once, in one round, at two points; the small numbers are the weights", fontsize=9
    )
    axes.set_xlim(-0.1, count)
    axes.set_ylim(-0.5, 2.0)
    axes.axis("off")


def _box(t: float, bottom: float, colour: str) -> Any:
    from matplotlib.patches import FancyBboxPatch

    return FancyBboxPatch((t + 0.05, bottom), 0.82, 0.5, boxstyle="round,pad=0.02", facecolor=colour, alpha=0.25)


def recursive(axes: Any) -> None:
    """Draw ||nabla_t - grad F(x_t)||: the mean over 40 runs on a population with known gradient."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 8)) * np.arange(1, 9) ** -0.5
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    target = rows @ (0.2 * np.ones(8)) + 0.4 * rng.normal(size=400)
    population, T = Population(rows, target, 1.0, 1.0, 1.0), 32
    for name, flag in (("one batch", False), ("recursive, all batches so far", True)):
        errors = []
        for _ in range(40):
            path = run(population, rng, rounds=T, batch_size=64, beta=1.0, noise=np.zeros((T, 8)), recursive=flag)
            errors.append([np.linalg.norm(a - b) for a, b in zip(path.nabla, path.gradient, strict=True)])
        axes.plot(range(T), np.mean(errors, axis=0), marker="o", markersize=3, label=name)
    axes.set_xlabel("round t")
    axes.set_ylabel("error of the gradient estimate")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def mechanisms(axes: Any) -> None:
    """Draw the standard deviation of the noise on each running sum, unit clip and mu = 1."""
    for name in ("independent", "tree", "sqrt", "workload"):
        m = dpsco.mechanism(name, horizon=64)
        deviation = m.sensitivity * np.linalg.norm(m.decoder(), axis=1)
        axes.plot(range(64), deviation, label=name, linewidth=1.6)
    axes.set_xlabel("round t")
    axes.set_ylabel("noise on the running sum")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for draw, size in ((rounds, (8.0, 2.6)), (recursive, (6.5, 3.4)), (mechanisms, (6.5, 3.4))):
        (FOLDER / f"{draw.__name__}.svg").write_text(draw_svg(draw, size=size, themed=False) + "\n")


if __name__ == "__main__":
    main()
