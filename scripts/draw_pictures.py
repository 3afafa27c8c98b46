"""Draw the pictures of docs/how-it-works.md and CONTRIBUTING.md into docs/pictures.

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


ROW = (
    ("reader", "rows/readers/"),
    ("public\ncolumns", "rows/\npublic_columns.py"),
    ("gate", "rows/gate.py"),
    ("cap", "rows/\ncontribution_cap.py"),
    ("shuffle", "rows/shuffle.py"),
    ("batch", "rows/stream.py"),
    ("clip", "clipping/"),
    ("sum", "query.Clipped"),
)
"""The way of a row: steps and where they are."""

SUM = (
    ("Released", "query.py", 4.0),
    ("tell", "methods/", 3.0),
    ("state", "methods/", 2.0),
    ("model, report", "run/", 0.63),
)
"""The way of a released sum, behind ``release``, from right to left."""

SENSITIVE, PRIVATE, ASKED = "#c1440e", "#009e73", "#1f86c9"


def pipeline(axes: Any) -> None:
    """Draw the way of a row, from left to right, and of a released sum, from right to left."""
    _band(axes, 0.0, 8.0, 1.9, 3.25, SENSITIVE, "rows and sums: SENSITIVE")
    _band(axes, 0.0, 4.92, -0.2, 0.95, PRIVATE, "private: may be published")
    for place, (name, where) in enumerate(ROW):
        _step(axes, place + 0.5, 2.45, name, where)
        if place:
            _arrow(axes, (place - 0.06, 2.45), (place + 0.06, 2.45))
    _arrow(axes, (7.5, 2.1), (7.5, 1.02))
    axes.add_patch(_frame(5.06, -0.16, 2.84, 1.14))
    axes.text(6.48, 0.76, "release", ha="center", fontsize=11, weight="bold")
    axes.text(6.48, 0.55, "release/releaser.py", ha="center", fontsize=7.5)
    for place, (name, where) in enumerate(
        (
            ("ledger", "ledger.py"),
            ("horizon", "releaser.py"),
            ("noise", "noise.py,\nmechanisms/"),
            ("grid", "calibration.py"),
        )
    ):
        axes.text(7.55 - 0.72 * place, 0.28, name, ha="center", fontsize=9)
        axes.text(7.55 - 0.72 * place, 0.16, where, ha="center", va="top", fontsize=6.5)
    _arrow(axes, (5.06, 0.36), (4.44, 0.36))
    for name, where, x in SUM:
        _step(axes, x, 0.36, name, where, width=1.0 if x < 1 else 0.88)
    _arrow(axes, (3.56, 0.36), (3.44, 0.36))
    _arrow(axes, (2.56, 0.36), (2.44, 0.36))
    _arrow(axes, (1.56, 0.36), (1.13, 0.36))
    axes.plot([2.0, 2.0, 6.5], [0.7, 1.45, 1.45], color=ASKED, linewidth=1.2)
    _arrow(axes, (6.5, 1.45), (6.5, 2.1), ASKED)
    axes.text(4.25, 1.52, "ask: a Query with points, weights and clip (public)", ha="center", fontsize=9, color=ASKED)
    axes.set_xlim(-0.05, 8.05)
    axes.set_ylim(-0.3, 3.3)
    axes.axis("off")


def _band(axes: Any, left: float, right: float, bottom: float, top: float, colour: str, words: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, facecolor=colour, alpha=0.13, linewidth=0))
    axes.text(left + 0.08, top - 0.17, words, fontsize=8.5, color=colour)


def _frame(left: float, bottom: float, width: float, height: float) -> Any:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=0.06"
    return FancyBboxPatch((left, bottom), width, height, boxstyle=style, fill=False, edgecolor="black", linewidth=1.0)


def _step(axes: Any, x: float, y: float, name: str, where: str, *, width: float = 0.88) -> None:
    axes.add_patch(_frame(x - width / 2, y - 0.34, width, 0.68))
    axes.text(x, y + 0.1, name, ha="center", va="center", fontsize=10, weight="bold")
    axes.text(x, y - 0.22, where, ha="center", va="center", fontsize=6.5)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], colour: str = "black") -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 0, "shrinkB": 0})


def in_both_themes(svg: str) -> str:
    """Return a picture without a background whose black lines and text are light where the reader's theme is dark."""
    style = "svg{color:#1f2328}text{fill:currentColor}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}"
    return svg.replace("</style>", f"{style}</style>", 1).replace("fill: #000000", "fill: currentColor")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    drawn = draw_svg(pipeline, size=(10.0, 4.2))
    (FOLDER / "pipeline.svg").write_text(in_both_themes(drawn) + "\n")
    for draw, size in ((rounds, (8.0, 2.6)), (recursive, (6.5, 3.4)), (mechanisms, (6.5, 3.4))):
        (FOLDER / f"{draw.__name__}.svg").write_text(draw_svg(draw, size=size, themed=False) + "\n")


if __name__ == "__main__":
    main()
