"""Plots as SVG text. The same numbers give the same bytes; colours follow the theme of the page."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

from dpsco.errors import ExtraMissing

__all__ = ["COLOURS", "EMPHASIS", "MARKERS", "draw_svg", "end_labels", "interval_line", "line_plot", "log_axes"]

COLOURS = (
    *("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"),
    *("#8c564b", "#9467bd", "#a3a500", "#17becf", "#3b3b98", "#2e8b57"),
)
EMPHASIS = "#c1440e"
MARKERS = "osD^vP*Xph<>"


def draw_svg(draw: Callable[[Any], None], *, size: tuple[float, float], themed: bool = True) -> str:
    """Return the SVG element of what ``draw`` draws on matplotlib axes.

    Parameters
    ----------
    draw
        Called with the axes.
    size
        Width and height in inches.
    themed
        Whether lines and text take the colour of the page. Otherwise they are black on white, for a file.

    Raises
    ------
    ExtraMissing
        If matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise ExtraMissing("Plots need matplotlib: install dpsco[report].") from None
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # A fixed hash salt and no date make the file reproducible. Text stays text, so the font of the page applies.
    with matplotlib.rc_context({"svg.hashsalt": "dpsco", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=size, layout="constrained")
        axes: Any = figure.subplots()
        draw(axes)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        buffer = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(buffer, metadata={"Date": None})
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    if not themed:
        return svg
    return svg.replace("fill: #ffffff", "fill: none").replace("stroke: #000000", "stroke: currentColor")


def line_plot(
    series: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    x_log: bool = False,
    y_log: bool = False,
    dot: tuple[float, float] | None = None,
) -> str:
    """Return an SVG element with one line per (name, x, y), and a dot on one point."""

    def draw(axes: Any) -> None:
        for name, x, y in series:
            axes.plot(x, y, marker="o", markersize=3, linewidth=1.6, label=name)
        if dot is not None:
            axes.plot(*dot, marker="o", markersize=8, color=EMPHASIS)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.set_xscale("log" if x_log else "linear")
        axes.set_yscale("log" if y_log else "linear")
        if len(series) > 1:
            axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0))  # above the lines

    return draw_svg(draw, size=(5.2, 3.0 if len(series) == 1 else 3.5))


def interval_line(axes: Any, x: Sequence[float], estimates: Sequence[Sequence[Any]], **style: Any) -> None:
    """Draw a line through (value, low, high) estimates, with a bar per interval."""
    values = [value for value, _, _ in estimates]
    if any(low is None for _, low, _ in estimates):
        axes.plot(x, values, **style)
        return
    # A bar on a logarithmic axis cannot reach 0: cut it at a tenth of the value.
    below = [value - max(low, value / 10) for value, low, _ in estimates]
    above = [high - value for value, _, high in estimates]
    axes.errorbar(x, values, yerr=[below, above], capsize=2, elinewidth=0.9, **style)


def log_axes(axes: Any, x_label: str, y_label: str, *, legend: str = "right") -> None:
    """Make both axes logarithmic and name them; the legend is to the "right" of the axes, "inside", or "none"."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if legend == "right" else {}
    if legend != "none":
        axes.legend(frameon=False, fontsize=8.5, **place)


def end_labels(axes: Any, labels: Sequence[tuple[float, float, str, str]], *, apart: float = 0.052) -> None:
    """Write names at the right of logarithmic axes, beside the ends of their lines, none over another.

    Parameters
    ----------
    axes
        Axes with their final limits.
    labels
        x and y of the end, name, colour.
    apart
        Least distance of two names, as a share of the height of the axes.
    """
    low, high = (math.log(limit) for limit in axes.get_ylim())
    ends = sorted(((math.log(y) - low) / (high - low), x, y, name, colour) for x, y, name, colour in labels)
    heights = [end[0] for end in ends]
    for _ in range(200):  # push neighbours apart by the same amount until all have room
        for k in range(len(heights) - 1):
            lack = apart - (heights[k + 1] - heights[k])
            if lack > 0:
                heights[k] -= lack / 2
                heights[k + 1] += lack / 2
    for height, (_, x, y, name, colour) in zip(heights, ends, strict=True):
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 5, "relpos": (0, 0.5)}
        place: dict[str, Any] = {"xytext": (1.03, height), "textcoords": "axes fraction", "va": "center"}
        axes.annotate(name, (x, y), **place, color=colour, fontsize=10, annotation_clip=False, arrowprops=line)
