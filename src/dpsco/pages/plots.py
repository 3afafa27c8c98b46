"""Plots as SVG text: the same bytes for the same numbers, colours that follow the page's theme."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

from dpsco.errors import ExtraMissing

__all__ = ["line_plot", "picture"]


def line_plot(
    series: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    x_log: bool = False,
    y_log: bool = False,
    mark: tuple[float, float] | None = None,
) -> str:
    """An SVG element with one line for each (name, x, y); ``mark`` puts a dot on one point."""

    def draw(axes: Any) -> None:
        for name, x, y in series:
            axes.plot(x, y, marker="o", markersize=3, linewidth=1.6, label=name)
        if mark is not None:
            axes.plot(*mark, marker="o", markersize=8, color="#c1440e")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.set_xscale("log" if x_log else "linear")
        axes.set_yscale("log" if y_log else "linear")
        if len(series) > 1:
            axes.legend(frameon=False)

    return picture(draw, size=(6.0, 3.2))


def picture(draw: Callable[[Any], None], *, size: tuple[float, float], themed: bool = True) -> str:
    """The SVG element of what ``draw`` puts on a pair of axes; without a theme it is black on white, for a file."""
    try:
        import matplotlib
    except ImportError:
        raise ExtraMissing("Plots need matplotlib: install dpsco[report].") from None
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # A fixed hash salt and no date make the file reproducible; text stays text so that the page's font applies.
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
    element = text[text.index("<svg") :]
    return _themed(element) if themed else element


def _themed(svg: str) -> str:
    """Black lines and text take the page's colour, the white background goes: one picture for light and dark."""
    svg = svg.replace("fill: #ffffff", "fill: none").replace("stroke: #000000", "stroke: currentColor")
    return svg.replace("<svg ", '<svg style="max-width:100%;height:auto;fill:currentColor" ', 1)
