"""The plots of a comparison, one per section of the results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpsco.pages.plots import COLOURS, EMPHASIS, MARKERS, draw_svg, interval_line, log_axes
from dpsco.research.compare.result_curves import accepted_points

__all__ = ["PLOTS", "draw_plots"]

PALE = "#e59a73"
DASHES = {"one pass, more tuned": (0, (4, 2)), "many passes": (0, (1, 1.5)), "ours, other noise": (0, (4, 2))}
WIDE, SMALL = (9.6, 5.0), (9.6, 4.2)


def draw_plots(results: Mapping[str, Any], *, themed: bool = True) -> dict[str, str]:
    """Return one SVG text per section."""
    return {name: draw(results[name], themed) for name, draw in PLOTS.items() if name in results}


def _rounds(section: Mapping[str, Any], themed: bool) -> str:
    named, others = _named_and_others(section["curves"])

    def draw(axes: Any) -> None:
        for place, curve in enumerate(others):
            points = accepted_points(curve)
            steps, risks = [p["steps"] for p in points], [p["excess"][0] for p in points]
            label = "variants and other noise, in the table" if place == 0 else None
            axes.plot(steps, risks, color="#bdbdbd", linewidth=0.9, linestyle=(0, (4, 2)), zorder=1, label=label)
        _curves(axes, named, "steps")
        _level(axes, section["floor"])
        axes.axvline(section["quarter"], color="#888888", linewidth=0.8, linestyle=(0, (2, 2)))
        log_axes(axes, "adaptive rounds (counted)", "excess risk", legend="inside")
        foot = axes.get_ylim()[0]
        axes.annotate(
            f" n^(1/4) = {section['quarter']}", (section["quarter"], foot), va="bottom", fontsize=8.5, color="#777777"
        )
        axes.legend(*_entries(axes, keep=("p / 2n", "variants")), frameon=False, fontsize=8.5, loc="upper right")
        axes.set_xticks(sorted({p["steps"] for c in named for p in accepted_points(c)}), minor=False)
        axes.tick_params(axis="x", which="minor", bottom=False)
        _label_ends(axes)

    return draw_svg(draw, size=WIDE, themed=themed)


def _named_and_others(curves: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the curves to name in the picture, and those to draw without a name; single points are left out.

    Of the variants that tune more than their papers, the best one is named.
    """
    most = min(
        2, max(len(accepted_points(curve)) for curve in curves)
    )  # one point each is all that a quick run may have
    swept = [curve for curve in curves if len(accepted_points(curve)) >= max(1, most)]
    more = [curve for curve in swept if curve["kind"] == "one pass, more tuned"]
    best = min(more, key=lambda curve: accepted_points(curve)[-1]["excess"][0], default=None)
    named = [curve for curve in swept if curve["kind"] in ("ours", "one pass") or curve is best]
    return named, [curve for curve in swept if curve not in named]


def _entries(axes: Any, keep: tuple[str, ...]) -> tuple[list[Any], list[str]]:
    """Return the entries of a legend whose names begin with one of ``keep``."""
    shown = [
        (line, name) for line, name in zip(*axes.get_legend_handles_labels(), strict=True) if name.startswith(keep)
    ]
    return [line for line, _ in shown], [name for _, name in shown]


def _label_ends(axes: Any) -> None:
    """Write the name of each curve beside its last point, in its colour, with room between the names."""
    ends = []
    for container in axes.containers:  # curves with intervals
        line = container.lines[0]
        ends.append((line.get_ydata()[-1], line.get_xdata()[-1], container.get_label(), line.get_color()))
    for line in axes.lines:
        if line.get_marker() not in ("", "None", None) and not line.get_label().startswith("_"):
            ends.append((line.get_ydata()[-1], line.get_xdata()[-1], line.get_label(), line.get_color()))
    low, high = (math.log10(each) for each in axes.get_ylim())
    height = -math.inf
    for risk, rounds, name, colour in sorted(ends):
        height = max(math.log10(risk), height + 0.035 * (high - low))
        axes.annotate(
            name, (rounds, risk), xytext=(1.02, 10**height), textcoords=("axes fraction", "data"), va="center",
            fontsize=9, color=colour, arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6},
            annotation_clip=False,
        )  # fmt: skip


def _sizes(section: Mapping[str, Any], themed: bool) -> str:
    def draw(axes: Any) -> None:
        _curves(axes, section["curves"], "n")
        shown = [p["excess"][0] for c in section["curves"] for p in c["points"] if "excess" in p]
        # The rate is an order of magnitude: only its slope matters, so shift it to the data.
        scale = max(shown) / section["rate"][0]
        rate = [scale * r for r in section["rate"]]
        axes.plot(section["sizes"], rate, color="#888888", linewidth=1.2, linestyle="--", label="optimal rate, shifted")
        axes.plot(
            section["sizes"],
            section["floor"],
            color="#888888",
            linewidth=1.2,
            linestyle=":",
            label="p / 2n, without privacy",
        )
        log_axes(axes, "rows n", "excess risk")

    return draw_svg(draw, size=WIDE, themed=themed)


def _table(section: Mapping[str, Any], themed: bool) -> str:
    def draw(axes: Any) -> None:
        for place, line in enumerate(line for line in section["lines"] if "steps" in line):
            own = line["method"] == "accelerated-srgd"
            axes.plot(
                line["sizes"],
                line["steps"],
                marker=MARKERS[place % len(MARKERS)],
                markersize=5,
                linewidth=2.2 if own else 1.3,
                color=EMPHASIS if own else COLOURS[place % len(COLOURS)],
                linestyle="-" if line["single_epoch"] else DASHES["many passes"],
                label=f"{line['name']}: n^{line['step_exponent'][0]:.2f}",
            )
        log_axes(axes, "rows n", "counted batch steps")

    return draw_svg(draw, size=WIDE, themed=themed)


def _outside(section: Mapping[str, Any], themed: bool) -> str:
    def draw(axes: Any) -> None:
        for name, part, colour in (("n^(1/4) rounds", "few", EMPHASIS), ("sqrt(n) rounds", "many", COLOURS[0])):
            interval_line(
                axes, section["sizes"], _excess(section[part]), color=colour, marker="o", label=name, linewidth=2.0
            )
        log_axes(axes, "rows n", "excess risk over the set")

    return draw_svg(draw, size=SMALL, themed=themed)


def _passes(section: Mapping[str, Any], themed: bool) -> str:
    group = section["groups"][-1]

    def draw(axes: Any) -> None:
        for place, line in enumerate(line for line in group["lines"] if "excess" in line):
            interval_line(
                axes,
                [line["gradients"] / group["n"]],
                [line["excess"]],
                color=EMPHASIS if place == 0 else COLOURS[(place - 1) % len(COLOURS)],
                marker=MARKERS[place % len(MARKERS)],
                label=f"{line['name']}: {line['steps']:,} rounds",
                linestyle="",
                markersize=9 if place == 0 else 7,
            )
        _level(axes, group["floor"])
        log_axes(axes, f"gradients evaluated, in units of n = {group['n']:,}", "excess risk")

    return draw_svg(draw, size=SMALL, themed=themed)


def _file(section: Mapping[str, Any], themed: bool) -> str:
    lines = [line for line in section["lines"] if "accuracy" in line]
    lines.sort(key=lambda line: line["accuracy"][0])

    def draw(axes: Any) -> None:
        for place, line in enumerate(lines):
            value, low, high = line["accuracy"]
            error = None if low is None else [[100 * (value - low)], [100 * (high - value)]]
            colour = EMPHASIS if line["kind"] == "ours" else COLOURS[0]
            axes.errorbar([100 * value], [place], xerr=error, marker="o", color=colour, capsize=3)
        axes.axvline(100 * section["without_privacy"], color="#888888", linestyle=":", label="without privacy")
        axes.set_yticks(range(len(lines)), [line["name"] for line in lines])
        axes.set_xlabel("test accuracy, %")
        axes.legend(frameon=False, loc="upper left")

    return draw_svg(draw, size=(9.6, 1.2 + 0.36 * len(lines)), themed=themed)


PLOTS = {
    "rounds": _rounds,
    "passes": _passes,
    "outside": _outside,
    "sizes": _sizes,
    "table": _table,
    "file": _file,
}


def _curves(axes: Any, curves: Sequence[Mapping[str, Any]], key: str) -> None:
    own = others = 0
    for curve in curves:
        points = accepted_points(curve)
        if not points:
            continue
        style: dict[str, Any] = {"linestyle": DASHES.get(curve["kind"], "-"), "linewidth": 1.4, "markersize": 5}
        if curve["kind"].startswith("ours"):
            style |= {"color": (EMPHASIS, EMPHASIS, PALE)[own % 3], "marker": "os^"[own % 3], "zorder": 5}
            if curve["kind"] == "ours":
                style |= {"linewidth": 2.6, "markersize": 6}
            own += 1
        else:
            style |= {"color": COLOURS[others % len(COLOURS)], "marker": MARKERS[1 + others % (len(MARKERS) - 1)]}
            others += 1
        interval_line(axes, [p[key] for p in points], _excess(points), label=curve["name"], **style)


def _level(axes: Any, height: float) -> None:
    axes.axhline(height, color="#888888", linewidth=1.2, linestyle=":", label="p / 2n, without privacy")


def _excess(points: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [point["excess"] for point in points]
