"""The plots of a comparison, each from its section of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsco.pages.plots import picture

__all__ = ["PICTURES", "pictures"]

PALETTE = (
    *("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"),
    *("#8c564b", "#9467bd", "#a3a500", "#17becf", "#3b3b98", "#2e8b57"),
)
OURS, OURS_TOO = "#c1440e", "#e59a73"
MARKERS = "osD^vP*Xph<>"
DASHES = {"one pass, more tuned": (0, (4, 2)), "many passes": (0, (1, 1.5)), "ours, other noise": (0, (4, 2))}
WIDE, SMALL = (9.6, 5.0), (9.6, 4.2)


def pictures(results: Mapping[str, Any], *, themed: bool = True) -> dict[str, str]:
    """Name to SVG, for every section there is."""
    return {name: draw(results[name], themed) for name, draw in PICTURES.items() if name in results}


def _rounds(section: Mapping[str, Any], themed: bool) -> str:
    last = 3 * max(p["rounds"] for c in section["curves"] for p in c["points"])

    def draw(axes: Any) -> None:
        _curves(axes, [_within(curve, last) for curve in section["curves"]], "steps")
        _level(axes, section["floor"], "p / 2n, without privacy")
        axes.axvline(section["quarter"], color="#888888", linewidth=0.8, linestyle=(0, (2, 2)))
        top = axes.get_ylim()[1]
        axes.annotate(
            f" n^(1/4) = {section['quarter']}", (section["quarter"], top), va="top", fontsize=8.5, color="#777777"
        )
        _finish(axes, "adaptive rounds (counted)", "excess risk")
        tried = {p["rounds"] for c in section["curves"] for p in c["points"] if p.get("steps") == p["rounds"]}
        axes.set_xticks(sorted(tried), minor=False)
        axes.tick_params(axis="x", which="minor", bottom=False)

    return picture(draw, size=WIDE, themed=themed)


def _within(curve: Mapping[str, Any], last: int) -> dict[str, Any]:
    """The curve with points beyond ``last`` rounds put there, and their true number of rounds in its name."""
    beyond = [p["steps"] for p in curve["points"] if p.get("steps", 0) > last]
    points = [{**p, "steps": min(p.get("steps", 0), last)} for p in curve["points"]]
    name = curve["name"] + (f" (at {beyond[0]:,} rounds)" if beyond else "")
    return {**curve, "name": name, "points": points}


def _sizes(section: Mapping[str, Any], themed: bool) -> str:
    def draw(axes: Any) -> None:
        _curves(axes, section["curves"], "n")
        shown = [p["excess"][0] for c in section["curves"] for p in c["points"] if "excess" in p]
        # The rate is an order of magnitude in the worst case: its slope matters, so it is drawn through the data.
        scale = max(shown) / section["rate"][0]
        rate = [scale * r for r in section["rate"]]
        axes.plot(section["sizes"], rate, color="#888888", linewidth=1.2, linestyle="--", label="optimal rate, shifted")
        axes.plot(
            section["sizes"],
            section["floor"],
            color="#888888",
            linewidth=1.2,
            linestyle=":",
            label="p / 2n, no privacy",
        )
        _finish(axes, "rows n", "excess risk")

    return picture(draw, size=WIDE, themed=themed)


def _table(section: Mapping[str, Any], themed: bool) -> str:
    def draw(axes: Any) -> None:
        for place, line in enumerate(line for line in section["lines"] if "steps" in line):
            own = line["algorithm"] == "accelerated-srgd"
            axes.plot(
                line["sizes"],
                line["steps"],
                marker=MARKERS[place % len(MARKERS)],
                markersize=5,
                linewidth=2.2 if own else 1.3,
                color=OURS if own else PALETTE[place % len(PALETTE)],
                linestyle="-" if line["single_epoch"] else DASHES["many passes"],
                label=f"{line['name']}: n^{line['step_exponent'][0]:.2f}",
            )
        _finish(axes, "rows n", "counted batch steps")

    return picture(draw, size=WIDE, themed=themed)


def _outside(section: Mapping[str, Any], themed: bool) -> str:
    def draw(axes: Any) -> None:
        for name, part, colour in (("n^(1/4) rounds", "few", OURS), ("sqrt(n) rounds", "many", PALETTE[0])):
            _line(axes, section["sizes"], section[part], color=colour, marker="o", label=name, linewidth=2.0)
        _finish(axes, "rows n", "excess risk over the set")

    return picture(draw, size=SMALL, themed=themed)


def _passes(section: Mapping[str, Any], themed: bool) -> str:
    group = section["groups"][-1]

    def draw(axes: Any) -> None:
        for place, line in enumerate(line for line in group["lines"] if "excess" in line):
            _line(
                axes,
                [line["gradients"] / group["n"]],
                [line],
                color=OURS if place == 0 else PALETTE[(place - 1) % len(PALETTE)],
                marker=MARKERS[place % len(MARKERS)],
                label=f"{line['name']}: {line['steps']:,} rounds",
                linestyle="",
                markersize=9 if place == 0 else 7,
            )
        _level(axes, group["floor"], "p / 2n, without privacy")
        _finish(axes, f"gradients evaluated, in units of n = {group['n']:,}", "excess risk")

    return picture(draw, size=SMALL, themed=themed)


def _file(section: Mapping[str, Any], themed: bool) -> str:
    lines = [line for line in section["lines"] if "accuracy" in line]
    lines.sort(key=lambda line: line["accuracy"][0])

    def draw(axes: Any) -> None:
        for place, line in enumerate(lines):
            value, low, high = line["accuracy"]
            error = None if low is None else [[100 * (value - low)], [100 * (high - value)]]
            colour = OURS if line["kind"] == "ours" else PALETTE[0]
            axes.errorbar([100 * value], [place], xerr=error, marker="o", color=colour, capsize=3)
        axes.axvline(100 * section["without_privacy"], color="#888888", linestyle=":", label="without privacy")
        axes.set_yticks(range(len(lines)), [line["name"] for line in lines])
        axes.set_xlabel("test accuracy, %")
        axes.legend(frameon=False, loc="upper left")

    return picture(draw, size=(9.6, 1.2 + 0.36 * len(lines)), themed=themed)


PICTURES = {
    "rounds": _rounds,
    "passes": _passes,
    "outside": _outside,
    "sizes": _sizes,
    "table": _table,
    "file": _file,
}


def _curves(axes: Any, curves: Sequence[Mapping[str, Any]], over: str) -> None:
    own = others = 0
    for curve in curves:
        good = [p for p in curve["points"] if "excess" in p]
        if not good:
            continue
        style: dict[str, Any] = {"linestyle": DASHES.get(curve["kind"], "-"), "linewidth": 1.4, "markersize": 5}
        if curve["kind"].startswith("ours"):
            style |= {"color": (OURS, OURS, OURS_TOO)[own % 3], "marker": "os^"[own % 3], "zorder": 5}
            if curve["kind"] == "ours":
                style |= {"linewidth": 2.6, "markersize": 6}
            own += 1
        else:
            style |= {"color": PALETTE[others % len(PALETTE)], "marker": MARKERS[1 + others % (len(MARKERS) - 1)]}
            others += 1
        _line(axes, [p[over] for p in good], good, label=curve["name"], **style)


def _line(axes: Any, x: Sequence[float], points: Sequence[Mapping[str, Any]], **style: Any) -> None:
    """A line through the means, with a bar for each interval."""
    y = [p["excess"][0] for p in points]
    intervals = [p["excess"] for p in points]
    if any(low is None for _, low, _ in intervals):
        axes.plot(x, y, **style)
        return
    # A bar on a logarithmic axis cannot reach 0: what would is cut a tenth above it.
    below = [value - max(low, value / 10) for value, low, _ in intervals]
    above = [high - value for value, _, high in intervals]
    axes.errorbar(x, y, yerr=[below, above], capsize=2, elinewidth=0.9, **style)


def _level(axes: Any, height: float, label: str) -> None:
    axes.axhline(height, color="#888888", linewidth=1.2, linestyle=":", label=label)


def _finish(axes: Any, x_label: str, y_label: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axes.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
