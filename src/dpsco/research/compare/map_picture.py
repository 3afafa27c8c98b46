"""The map of regimes as one picture and as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpsco.pages.plots import COLOURS, EMPHASIS, draw_svg
from dpsco.research.compare.map_contenders import LIMITS
from dpsco.research.compare.regime_map import standings

__all__ = ["SUMMARY", "bracket_line", "draw_map", "map_lines", "summary"]

SUMMARY = ("limit", "regimes in which a method is best", "excess of `dpsco.plan` over the best: median, most")
"""Columns of ``summary``."""

_OURS = {"survey + SRGD": EMPHASIS, "SRGD": "#6b3fa0"}
_LIKE_OURS = ("#9467bd", "#3b3b98")
"""Colours that are hard to tell from ours when faint."""
_FAINT, _STRONG = 0.3, 0.75
_ACROSS = 3
"""Panels side by side."""


def _group(cell: Mapping[str, Any]) -> tuple[str, str]:
    """(Rows of the picture that belong together, their name)."""
    if cell["table"]:
        return cell["table"], f"{cell['table']}\nn {cell['n']:,}, p {cell['p']}"
    scaled = "badly scaled" if cell["badly_scaled"] else "well scaled"
    return f"{scaled} {cell['p']}", f"{scaled}\np = {cell['p']:,}"


def map_lines(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one line per regime: per limit the best method, its excess, the next one's ratio, seconds and bytes."""
    lines = []
    for cell in results["cells"]:
        name = f"{_group(cell)[0]} n {cell['n']:,} eps {cell['epsilon']:g}"
        parts = (
            f"{line['kind']}\n{line['excess']:.2g} x{ratio:.2f}\n{line['seconds']:.2g} s {line['bytes'] / 1e3:,.3g} kB"
            for line, ratio in standings(cell).values()
        )
        lines.append((name, *parts))
    return lines


def summary(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one line per limit: how often each method is best, and the excess of ours over the best, median and most.

    Ours is what ``dpsco.plan`` chooses under the limit, and ``solver="auto"`` where passes are free.
    """
    lines: list[tuple[str, ...]] = []
    for limit in LIMITS:
        wins: dict[str, int] = {}
        ratios = []
        for cell in results["cells"]:
            found = standings(cell)
            if limit not in found:
                continue
            best = found[limit][0]
            wins[best["kind"]] = wins.get(best["kind"], 0) + 1
            ours = _default(cell, limit)
            if ours is not None:
                ratios.append(ours["excess"] / best["excess"])
        ratios.sort()
        names = ", ".join(f"{name} {count}" for name, count in sorted(wins.items(), key=lambda pair: -pair[1]))
        middle = f"{ratios[len(ratios) // 2]:.2f}, {ratios[-1]:.1f}" if ratios else ""
        lines.append((limit, names, middle))
    return lines


def bracket_line(results: Mapping[str, Any]) -> str:
    """State how many settings are planned, or tuned with worse neighbours on both sides."""
    lines = [line for cell in results["cells"] for line in cell["lines"]]
    inside = sum(line["bracketed"] for line in lines)
    return f"{inside:,} of {len(lines):,} settings are planned or have worse neighbours on both sides."


def _default(cell: Mapping[str, Any], limit: str) -> Mapping[str, Any] | None:
    """Return the line of what ``dpsco.plan`` does under a limit."""
    return next((line for line in cell["lines"] if (line["method"], line["limit"]) == ("default", limit)), None)


def _short(n: int) -> str:
    """Return 1k for 1,000 and 1M for 1,000,000."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if n >= unit and n % unit == 0:
            return f"{n // unit}{name}"
    return f"{n:,}"


def draw_map(results: Mapping[str, Any], *, themed: bool = False) -> str:
    """Return the SVG of the map: colour, the best method; number, the excess of the next method over its own.

    One panel per limit: a line per group of regimes and epsilon, a column per n. A file has one cell for all columns.
    """
    cells = [(cell, standings(cell)) for cell in results["cells"]]
    best = {line["kind"] for _, found in cells for line, _ in found.values()}
    methods = sorted(best, key=lambda method: (method not in _OURS, method))
    others = [method for method in methods if method not in _OURS]
    palette = [colour for colour in COLOURS if colour not in _LIKE_OURS]
    colours = {method: palette[k % len(palette)] for k, method in enumerate(others)} | _OURS
    sizes = sorted({cell["n"] for cell, _ in cells if not cell["table"]}) or [0]
    rows = sorted({(bool(c["table"]), _group(c)[0], c["p"], c["epsilon"], _group(c)[1]) for c, _ in cells},
                  key=lambda row: (row[0], not row[1].startswith("well"), row[2], row[3]))  # fmt: skip
    place = {(row[1], row[3]): k for k, row in enumerate(rows)}
    wide, high = len(sizes) + 0.3, len(rows) + 2.2
    corners = {limit: (k % _ACROSS * wide, k // _ACROSS * high) for k, limit in enumerate(LIMITS)}

    def draw(axes: Any) -> None:
        from matplotlib.patches import Patch, Rectangle

        for cell, found in cells:
            for limit, (line, ratio) in found.items():
                left, top = corners[limit]
                x = left + (0 if cell["table"] else sizes.index(cell["n"]))
                y = top + place[_group(cell)[0], cell["epsilon"]]
                width = len(sizes) if cell["table"] else 1
                strength = _FAINT + (_STRONG - _FAINT) * min(ratio - 1.0, 1.0)
                box = Rectangle((x, y), width - 0.04, 0.94, color=colours[line["kind"]], alpha=strength, linewidth=0)
                axes.add_patch(box)
                text = (f"{ratio:.1f}" if ratio < 9.95 else "10+") + ("" if line["bracketed"] else "*")
                axes.text(x + width / 2, y + 0.5, text, ha="center", va="center", fontsize=9)
        for limit, (left, top) in corners.items():
            axes.text(left + len(sizes) / 2, top - 0.5, limit, ha="center", va="center", fontsize=11, weight="bold")
            for k, n in enumerate(sizes if sizes != [0] else ()):
                name = ("n = " if k == 0 else "") + _short(n)
                axes.text(left + k + 0.48, top + len(rows) + 0.4, name, ha="center", va="center", fontsize=9)
        for top in sorted({top for _, top in corners.values()}):
            for k, row in enumerate(rows):
                axes.text(-0.12, top + k + 0.5, f"eps {row[3]:g}", ha="right", va="center", fontsize=9)
            for group, title in dict.fromkeys((row[1], row[4]) for row in rows):
                inside = [k for k, row in enumerate(rows) if row[1] == group]
                middle = top + sum(inside) / len(inside) + 0.5
                name = title if len(inside) > 1 else title.replace("\n", " ")
                axes.text(-0.95, middle, name, ha="right", va="center", fontsize=9)
                axes.plot([-2.9, _ACROSS * wide - 0.3], [top + inside[-1] + 0.97] * 2, color="#999999", linewidth=0.5)
        axes.set_xlim(-3.0, _ACROSS * wide - 0.3)
        axes.set_ylim(corners[LIMITS[-1]][1] + len(rows) + 0.8, -1.0)
        axes.set_axis_off()
        patches = [Patch(color=colours[method], alpha=_STRONG, label=method) for method in methods]
        axes.legend(handles=patches, frameon=False, fontsize=10, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=4)

    return draw_svg(draw, size=(9.6, 1.3 + 0.25 * (len(rows) + 2.2) * math.ceil(len(LIMITS) / _ACROSS)), themed=themed)
