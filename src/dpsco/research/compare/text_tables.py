"""Results as tables of text, for the terminal, the page and the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Table", "markdown", "tables"]


@dataclass(frozen=True)
class Table:
    """Column names and lines of cells."""

    name: str
    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def tables(results: Mapping[str, Any]) -> list[Table]:
    """Return the table of every section, in the order of the page."""
    makers: dict[str, Callable[[Any], Table]] = {
        "ratios": _ratios,
        "table": _table,
        "rounds": _rounds,
        "sizes": _sizes,
        "outside": _outside,
        "passes": _passes,
        "file": _file,
    }
    return [make(results[name]) for name, make in makers.items() if name in results]


def markdown(table: Table) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(line) + " |" for line in (table.columns, *table.lines)]
    return "\n".join([lines[0], "|" + "---|" * len(table.columns), *lines[1:]])


def _ratios(ratios: Sequence[Mapping[str, Any]]) -> Table:
    lines = tuple((ratio["what"], interval(ratio["measured"])) for ratio in ratios)
    return Table("ratios", "Ratios of excess risks", ("ratio of excess risks", "measured"), lines)


def _table(section: Mapping[str, Any]) -> Table:
    lines = []
    for line in section["lines"]:
        paper = line["paper"]
        if "steps" not in line:
            why = line["refusals"][0] if line["refusals"] else "too few sizes"
            lines.append((line["name"], "did not run: " + why, "", "", "", "", ""))
            continue
        lines.append(
            (
                line["name"],
                f"{plus_minus(line['step_exponent'])} / {paper['step_exponent']:g}",
                f"{line['steps'][-1]:,}",
                f"{plus_minus(line['gradient_exponent'])} / {paper['gradient_exponent']:g}",
                f"{line['gradients_per_row']:.2f}",
                f"{yes(line['single_epoch'])} ({line['participation']}) / {yes(paper['single_epoch'])}",
                f"{yes(line['convexity'])} / {yes(paper['convexity'])}",
            )
        )
    n = section["sizes"][-1]
    columns = (
        "method",
        "steps ~ n^a: measured / paper",
        f"steps at n = {n:,}",
        "gradients ~ n^a: measured / paper",
        "gradients per row",
        "single epoch (states per row): measured / paper",
        "convexity for privacy: declared / paper",
    )
    return Table("table", "Table 1, measured", columns, tuple(lines))


def _rounds(section: Mapping[str, Any]) -> Table:
    places = sorted({p["rounds"] for c in section["curves"] for p in c["points"] if p.get("at") == p["rounds"]})
    lines = []
    for curve in section["curves"]:
        at = {p["rounds"]: p for p in curve["points"] if p.get("at") == p["rounds"]}
        own = [p for p in curve["points"] if "at" in p and p["at"] != p["rounds"]]
        cells = [number(at[T]) if T in at else "" for T in places]
        aside = "; ".join(f"{number(p)} at {p['steps']:,}" for p in own)
        refused = [p for p in curve["points"] if "why_not" in p]
        lines.append((curve["name"], *cells, aside or ("refused" if refused and not any(cells) else "")))
    title = f"Excess risk by rounds, n = {section['n']:,}, epsilon = {section['epsilon']:g}"
    columns = ("method", *(f"T = {T}" for T in places), "own rounds")
    shown = len(columns) if any(line[-1] for line in lines) else len(columns) - 1
    return Table("rounds", title, columns[:shown], tuple(line[:shown] for line in lines))


def _sizes(section: Mapping[str, Any]) -> Table:
    lines = []
    for curve in section["curves"]:
        at = {p["n"]: p for p in curve["points"]}
        cells = [number(at[n]) if n in at and "excess" in at[n] else "" for n in section["sizes"]]
        lines.append((curve["name"], *cells, plus_minus(curve["exponent"]) if "exponent" in curve else ""))
    lines.append(("p / 2n, without privacy", *(f"{x:.2g}" for x in section["floor"]), "-1"))
    columns = ("method", *(f"n = {n:,}" for n in section["sizes"]), "exponent")
    return Table("sizes", "Excess risk by n", columns, tuple(lines))


def _outside(section: Mapping[str, Any]) -> Table:
    lines = tuple(
        (
            f"{n:,}",
            str(few["steps"]),
            interval(few["excess"]),
            str(many["steps"]),
            interval(many["excess"]),
            interval(r),
        )
        for n, few, many, r in zip(section["sizes"], section["few"], section["many"], section["ratios"], strict=True)
    )
    columns = ("n", "n^(1/4) rounds", "excess", "sqrt(n) rounds", "excess ", "ratio")
    return Table("outside", "Minimiser outside the set", columns, lines)


def _passes(section: Mapping[str, Any]) -> Table:
    lines = tuple(
        (
            f"{group['n']:,}",
            line["name"],
            f"{line['steps']:,}",
            f"{line['gradients']:,}",
            f"{line['gradients'] / group['n']:.1f}",
            str(line["participation"]),
            interval(line["excess"]),
            interval(line["over_default"]),
        )
        for group in section["groups"]
        for line in group["lines"]
        if "excess" in line
    )
    columns = (
        "n",
        "method",
        "rounds",
        "gradients",
        "gradients / n",
        "states per row",
        "excess",
        "over the default plan",
    )
    return Table("passes", "One pass and many", columns, lines)


def _file(section: Mapping[str, Any]) -> Table:
    lines = []
    for line in sorted(section["lines"], key=lambda x: -x["accuracy"][0] if "accuracy" in x else 0.0):
        if "accuracy" in line:
            percent = [None if x is None else 100 * x for x in line["accuracy"]]
            lines.append((line["name"], interval(percent, "{:.2f}"), interval(line["excess"]), f"{line['steps']:,}"))
        else:
            lines.append((line["name"], "refused", line["why_not"], ""))
    title = f"{section['file']}: n = {section['n']:,}, epsilon = {section['epsilon']:g}"
    return Table("file", title, ("method", "test accuracy, %", "test loss", "rounds"), tuple(lines))


def interval(estimate: Sequence[float | None], form: str = "{:.3g}") -> str:
    """Return ``value [low, high]``."""
    value, low, high = estimate
    if value is None:
        return "none"
    if low is None or high is None:
        return form.format(value)
    return f"{form.format(value)} [{form.format(low)}, {form.format(high)}]"


def plus_minus(estimate: Sequence[float | None], digits: int = 3) -> str:
    """Return ``value ± half width``."""
    value, low, high = estimate
    if value is None or low is None or high is None:
        return "none" if value is None else f"{value:.{digits}f}"
    return f"{value:.{digits}f} ± {(high - low) / 2:.{digits}f}"


def number(point: Mapping[str, Any]) -> str:
    """Return the mean, with * if the best configuration was not bracketed."""
    return f"{point['excess'][0]:.2g}" + ("*" if point["edge"] else "") if "excess" in point else "refused"


def yes(value: bool) -> str:
    return "yes" if value else "no"
