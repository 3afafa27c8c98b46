"""The map of regimes as one picture and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsco.pages.plots import COLOURS, EMPHASIS, draw_svg
from dpsco.research.compare.map_contenders import LIMITS
from dpsco.research.compare.regime_map import kind_of, standings

__all__ = ["draw_map", "map_lines", "summary"]

_OURS = {"survey + SRGD": EMPHASIS, "SRGD": "#6b3fa0"}
_FAINT = 0.45


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
            f"{kind_of(line)}\n{line['excess']:.2g} x{ratio:.2f}\n{line['seconds']:.2g} s {line['bytes'] / 1e3:,.3g} kB"
            for line, ratio in standings(cell).values()
        )
        lines.append((name, *parts))
    return lines


def summary(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one line per limit: how often each method is best, and the excess of ours over the best, median and most.

    Ours is the better of "survey + SRGD" and "SRGD" as ``dpsco.plan`` chooses under the limit: the survey where it
    plans one.
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
            wins[kind_of(best)] = wins.get(kind_of(best), 0) + 1
            ours = _default(cell, limit)
            if ours is not None:
                ratios.append(ours["excess"] / best["excess"])
        ratios.sort()
        names = ", ".join(f"{name} {count}" for name, count in sorted(wins.items(), key=lambda pair: -pair[1]))
        middle = f"{ratios[len(ratios) // 2]:.2f}, {ratios[-1]:.1f}" if ratios else ""
        lines.append((limit, names, middle))
    return lines


def _default(cell: Mapping[str, Any], limit: str) -> Mapping[str, Any] | None:
    """Return the line of what ``dpsco.plan`` does under a limit."""
    name, at = ("survey + SRGD", limit) if limit.endswith("rounds") else ("planned", "one pass")
    return next((line for line in cell["lines"] if (line["method"], line["limit"]) == (name, at)), None)


def draw_map(results: Mapping[str, Any], *, themed: bool = False) -> str:
    """Return the SVG of the map: colour, the best method; number, the excess of the next method over its own."""
    cells = [(cell, standings(cell)) for cell in results["cells"]]
    best = {kind_of(line) for _, found in cells for line, _ in found.values()}
    methods = sorted(best, key=lambda method: (method not in _OURS, method))
    others = [method for method in methods if method not in _OURS]
    colours = {method: COLOURS[k % len(COLOURS)] for k, method in enumerate(others)} | _OURS
    sizes = sorted({cell["n"] for cell, _ in cells if not cell["table"]}) or [0]
    rows = sorted({(bool(c["table"]), _group(c)[0], c["p"], c["epsilon"], _group(c)[1]) for c, _ in cells},
                  key=lambda row: (row[0], not row[1].startswith("well"), row[2], row[3]))  # fmt: skip
    place = {(row[1], row[3]): k for k, row in enumerate(rows)}
    wide = len(sizes) + 0.35

    def draw(axes: Any) -> None:
        from matplotlib.patches import Patch, Rectangle

        for cell, found in cells:
            y = place[_group(cell)[0], cell["epsilon"]]
            for column, limit in enumerate(LIMITS):
                if limit not in found:
                    continue
                line, ratio = found[limit]
                x = column * wide + (0 if cell["table"] else sizes.index(cell["n"]))
                width = len(sizes) if cell["table"] else 1
                strength = min(1.0, _FAINT + (1 - _FAINT) * min(ratio - 1.0, 1.0))
                box = Rectangle((x, y), width - 0.05, 0.92, color=colours[kind_of(line)], alpha=strength, linewidth=0)
                axes.add_patch(box)
                text = f"{ratio:.1f}" if ratio < 9.95 else "10+"
                text += "" if line["bracketed"] else "*"
                axes.text(x + width / 2, y + 0.48, text, ha="center", va="center", fontsize=8)
        axes.set_xlim(-0.1, len(LIMITS) * wide)
        axes.set_ylim(len(rows) + 0.05, -0.9)
        for column, limit in enumerate(LIMITS):
            axes.text(column * wide + len(sizes) / 2, -0.45, limit, ha="center", va="center", fontsize=10)
        places = [column * wide + k + 0.5 for column in range(len(LIMITS)) for k in range(len(sizes))]
        axes.set_xticks(places, [f"{n:.0e}".replace("e+0", "e") for n in sizes] * len(LIMITS), fontsize=7)
        axes.set_xlabel("rows n")
        axes.set_yticks([k + 0.5 for k in range(len(rows))], [f"eps {row[3]:g}" for row in rows], fontsize=8)
        axes.tick_params(length=0)
        axes.set_axisbelow(True)
        for name in dict.fromkeys((row[1], row[4]) for row in rows):
            inside = [k for k, row in enumerate(rows) if row[1] == name[0]]
            axes.text(-0.13 * wide * 2, sum(inside) / len(inside) + 0.5, name[1], ha="right", va="center", fontsize=8,
                      transform=axes.transData)  # fmt: skip
            axes.axhline(inside[-1] + 0.96, color="#999999", linewidth=0.5)
        patches = [Patch(color=colours[method], label=method) for method in methods]
        axes.legend(handles=patches, frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.45, -0.1), ncol=5)

    return draw_svg(draw, size=(12.5, 1.9 + 0.3 * len(rows)), themed=themed)
