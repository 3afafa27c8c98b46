"""What the survey of a run saw, for its page: health, sizes of columns, spectrum, correlations. All released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.pages.plots import draw_svg, line_plot
from dpsco.planning.geometry import Geometry
from dpsco.query import Array
from dpsco.run.result import Result

__all__ = ["correlations", "survey_section"]

_MOST_NAMES = 40
"""Columns of the heat map at most: the largest ones."""
_MOST_POINTS = 2048
"""Directions of the plotted spectrum at most: the largest ones."""
_CLEAR = 3.0
"""Standard deviations of noise that a column's variance must exceed to be shown."""


def survey_section(result: Result, labels: Sequence[str]) -> dict[str, Any]:
    """Return the facts and figures of a surveyed run; empty without a survey.

    Parameters
    ----------
    result
        The result of a run.
    labels
        Names of the features.

    Guarantee: post-processing of the released survey. It may be published.
    """
    shape, health = result.geometry, result.health
    if shape is None or health is None:
        return {}
    facts = [
        ("directions that stand out of the noise", f"{shape.above_noise} of {shape.p}"),
        ("rows that were usable", f"{health.usable:.1%} (noise {health.noise:.2%})"),
        ("rows longer than the feature norm", f"{health.shortened:.1%}"),
    ]
    if health.classes:
        facts.append(("shares of the classes", ", ".join(f"{share:.1%}" for share in health.classes)))
    facts.append(("noise of the survey, per number", f"{result.plan.schedule.most_noise.sigma:.4g} on the sum"))
    facts.append(("noise of the later rounds, per number", f"{result.report.noise_std:.4g} on each draw"))
    width = result.plan.problem.dimension
    variance, matrix, shown = _variances(shape, width) if shape.axes else correlations(shape, width)
    scale = result.plan.problem.feature_norm
    sizes = [
        (labels[j], f"{scale * np.sqrt(variance[j]):.3g}" if shown[j] else "hidden by the noise")
        for j in np.argsort(-variance)[:_MOST_NAMES]
    ]
    kept = sorted(j for j in np.argsort(-variance)[:_MOST_NAMES] if shown[j])
    spectrum = heat = ""
    if len(shape.observed) > 1:
        values = np.sort(shape.observed)[::-1] if shape.axes else shape.observed[::-1]
        values = values[:_MOST_POINTS]
        order = np.arange(1, len(values) + 1)
        floor = np.full(len(order), shape.radius)
        seen = values > 0
        series = [
            ("released", order[seen].tolist(), values[seen].tolist()),
            ("size of the noise", order.tolist(), floor.tolist()),
        ]
        spectrum = line_plot(series, x_label="direction", y_label="second moment", y_log=True)
    if len(kept) > 1 and len(shape.sizes) == shape.p and not shape.axes:
        heat = _heat_map(matrix[np.ix_(kept, kept)], [labels[j] for j in kept])
    return {"facts": facts, "sizes": sizes, "spectrum": spectrum, "heat": heat}


def _variances(shape: Geometry, width: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return the variances of the columns, no correlations, and which to show: of a survey of very many columns."""
    variance = np.maximum(shape.moment_diagonal[:width] - shape.mean[:width] ** 2, 0.0)
    return variance, np.zeros((0, 0)), variance > _CLEAR * shape.noise


def correlations(shape: Geometry, width: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return the variances of the columns over the squared feature norm, their correlations, and which to show."""
    form = shape.directions * np.sqrt(shape.sizes)
    moment = form @ form.T
    if len(shape.sizes) < shape.p:
        moment += shape.rest * (np.eye(shape.p) - shape.directions @ shape.directions.T)
    moment = moment / np.outer(shape.scale, shape.scale)
    mean = shape.mean[:width]
    moment = moment[:width, :width] - np.outer(mean, mean)
    variance = np.maximum(np.diag(moment), 0.0)
    shown = variance > _CLEAR * shape.noise
    root = np.sqrt(np.where(shown, variance, 1.0))
    matrix = np.clip(moment / np.outer(root, root), -1.0, 1.0)
    np.fill_diagonal(matrix, 1.0)
    return variance, matrix, shown


def _heat_map(matrix: Array, labels: list[str]) -> str:
    def draw(axes: Any) -> None:
        image = axes.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1)
        ticks = range(len(labels))
        short = [label if len(label) <= 24 else label[:23] + "…" for label in labels]
        axes.set_xticks(ticks, short, rotation=90, fontsize=8.5)
        axes.set_yticks(ticks, short, fontsize=8.5)
        axes.figure.colorbar(image, ax=axes, shrink=0.7, label="correlation")

    side = 2.8 + 0.2 * len(labels)
    return draw_svg(draw, size=(side + 1.0, side))
