"""The map of regimes as one picture and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsco.pages.plots import COLOURS, EMPHASIS, draw_svg
from dpsco.research.compare.regime_map import LIMITS, standings

__all__ = ["draw_map", "map_lines"]


def _name(cell: Mapping[str, Any]) -> str:
    scaled = "bad" if cell["badly_scaled"] else "well"
    return f"{scaled} {cell['n']:.0e} {cell['p']} {cell['epsilon']:g}".replace("e+0", "e")


def map_lines(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one line per regime: for each limit the best method, its excess and the next one's ratio."""
    lines = []
    for cell in results["cells"]:
        found = standings(cell)
        cells = (f"{m}\n{e:.2g} x{r:.2f}" for m, e, r in (found[limit] for limit in LIMITS if limit in found))
        lines.append((_name(cell), *cells))
    return lines


def draw_map(results: Mapping[str, Any], *, themed: bool = False) -> str:
    """Return the SVG of the map: the colour is the best method, the number the excess of the next one over its own."""
    cells = [(cell, standings(cell)) for cell in results["cells"]]
    methods = sorted({method for _, found in cells for method, _, _ in found.values()})
    colours = {method: COLOURS[k % len(COLOURS)] for k, method in enumerate(methods)} | {"survey + SRGD": EMPHASIS}

    def draw(axes: Any) -> None:
        from matplotlib.patches import Patch, Rectangle

        for row, (_, found) in enumerate(cells):
            for column, limit in enumerate(LIMITS):
                if limit not in found:
                    continue
                method, excess, ratio = found[limit]
                strength = min(0.85, 0.25 + 0.6 * min(ratio - 1.0, 1.0))
                axes.add_patch(Rectangle((column, row), 0.98, 0.94, color=colours[method], alpha=strength, linewidth=0))
                text = f"{excess:.2g}  x{ratio:.2f}"
                axes.text(column + 0.49, row + 0.5, text, ha="center", va="center", fontsize=7)
        axes.set_xlim(0, len(LIMITS))
        axes.set_ylim(len(cells), 0)
        axes.set_xticks([k + 0.5 for k in range(len(LIMITS))], LIMITS)
        axes.set_yticks([k + 0.5 for k in range(len(cells))], [_name(cell) for cell, _ in cells], fontsize=7)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        patches = [Patch(color=colours[method], label=method) for method in methods]
        axes.legend(handles=patches, frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.02), ncol=3)

    return draw_svg(draw, size=(9.6, 1.6 + 0.26 * len(cells)), themed=themed)
