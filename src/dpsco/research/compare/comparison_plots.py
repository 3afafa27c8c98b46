"""The plots of a comparison, one per section of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsco.pages.plots import COLOURS, EMPHASIS, MARKERS, draw_svg, end_labels, interval_line, log_axes
from dpsco.research.compare.result_curves import accepted_points

__all__ = ["PLOTS", "draw_plots"]

PALE = "#e59a73"
DASHES = {"one pass, more tuned": (0, (4, 2)), "many passes": (0, (1, 1.5)), "ours, other noise": (0, (4, 2))}
WIDE, SMALL = (9.6, 5.0), (9.6, 4.2)

IN_PICTURE: dict[str, dict[str, Any]] = {
    "default plan, not tuned": {"color": EMPHASIS, "marker": "o", "linewidth": 3.0, "zorder": 6},
    "survey, then DP-FTRL, not tuned": {"color": COLOURS[2], "marker": "D", "linewidth": 1.6},
    "Accelerated-DP-SRGD": {"color": "#b06a2c", "marker": "s", "linewidth": 2.2, "zorder": 5},
    "unaccelerated DP-SRGD": {"color": COLOURS[1], "marker": "^", "linewidth": 1.6},
    "DP-FTRL, tail average": {"color": COLOURS[0], "marker": "v", "linewidth": 1.6},
    "accelerated, independent gradients": {"color": COLOURS[5], "marker": "P", "linewidth": 1.6},
    "DP-SGD": {"color": COLOURS[6], "marker": "X", "linewidth": 1.6},
}
"""Curves of the picture over rounds, with their style. The table has every method."""


def draw_plots(results: Mapping[str, Any], *, themed: bool = True) -> dict[str, str]:
    """Return one SVG text per section."""
    return {name: draw(results[name], themed) for name, draw in PLOTS.items() if name in results}


def _rounds(section: Mapping[str, Any], themed: bool) -> str:
    """Draw few curves, each with its name at its end; the table has them all."""
    curves = {curve["name"]: curve for curve in section["curves"] if accepted_points(curve)}
    shown = [(curves[name], style) for name, style in IN_PICTURE.items() if name in curves]

    def draw(axes: Any) -> None:
        names, floor = [], section["floor"]
        for curve, style in shown:
            points = [p for p in accepted_points(curve) if p["at"] == p["rounds"]]
            if points:
                interval_line(axes, [p["at"] for p in points], _excess(points), markersize=5, **style)
                names.append((points[-1]["at"], points[-1]["excess"][0], curve["name"], style["color"]))
        axes.axhline(floor, color="#888888", linewidth=1.2, linestyle=":")
        log_axes(axes, "adaptive rounds, the survey's included", "excess risk", legend="none")
        rounds = sorted({p["rounds"] for curve, _ in shown for p in accepted_points(curve) if p["at"] == p["rounds"]})
        _ticks(axes, rounds)
        names.append((rounds[-1], floor, "p / 2n, without privacy", "#666666"))
        end_labels(axes, names)

    return draw_svg(draw, size=WIDE, themed=themed)


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
        _ticks(axes, sorted({round(line["gradients"] / group["n"]) for line in group["lines"] if "excess" in line}))

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


def _ticks(axes: Any, places: Sequence[float]) -> None:
    """Mark these places of a logarithmic x axis and no others."""
    axes.set_xticks(places, minor=False)
    axes.set_xticks([], minor=True)


def _level(axes: Any, height: float) -> None:
    axes.axhline(height, color="#888888", linewidth=1.2, linestyle=":", label="p / 2n, without privacy")


def _excess(points: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [point["excess"] for point in points]
