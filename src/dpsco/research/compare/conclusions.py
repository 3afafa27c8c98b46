"""Sentences that state who has the least excess where. Every number in them comes from the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpsco.research.compare.estimates import Estimate
from dpsco.research.compare.result_curves import accepted_points, best_point, excess_ratio, point_at
from dpsco.research.compare.text_tables import plus_minus

__all__ = ["conclusions"]

Results = Mapping[str, Any]


def conclusions(results: Results) -> list[dict[str, str]]:
    """Return titles with sentences."""
    rounds = results["rounds"]
    stated = [
        _default_plan(rounds),
        _few_rounds(rounds),
        _same_rounds(rounds),
        _best_rounds(rounds),
        _other_noise(rounds),
    ]
    makers = {"passes": _passes, "outside": _outside, "sizes": _sizes, "file": _file}
    stated += [state(results[name]) for name, state in makers.items() if name in results]
    stated += [_brackets(results)]
    return [{"title": title, "text": text} for title, text in stated if text]


def _default_plan(section: Results) -> tuple[str, str]:
    """Compare the default plan, which is not tuned, with the best tuned one-pass method in as many rounds."""
    plan = next(curve for curve in section["curves"] if curve["kind"] == "default plan")
    tuned = ("ours", "one pass", "one pass, more tuned")
    parts = []
    for T in sorted({p["rounds"] for p in accepted_points(plan)}):
        mine, ranked = point_at(plan, T), [curve for curve in _ranked(section, T) if curve["kind"] in tuned]
        if mine is not None and ranked:
            ratio = _ratio(excess_ratio(mine, point_at(ranked[0], T)))
            parts.append(f"{T}: {_excess(mine)}, {ratio} times that of {ranked[0]['name']}")
    return "The default plan", (
        "Its excess, untuned, in at most so many rounds, the survey's included, beside that of the best method that "
        f"was tuned at that number of rounds and has no survey. {'; '.join(parts)}."
    )


def _few_rounds(section: Results) -> tuple[str, str]:
    """State who has the least excess at n^(1/4) rounds."""
    T, ours = section["quarter"], _ours(section)
    ranked = [curve for curve in _ranked(section, T) if curve is ours or _tuned_one_pass(curve)]
    if len(ranked) < 2 or ours not in ranked:
        return "", ""
    if ranked[0] is ours:
        second = ranked[1]
        lead = _ratio(excess_ratio(point_at(second, T), point_at(ours, T)))
        text = (
            f"Without a survey, at n^(1/4) = {T} rounds, Accelerated-DP-SRGD has the least excess, "
            f"{_excess(point_at(ours, T))}. Next is "
            f"{second['name']} with {lead} times as much."
        )
    else:
        text = (
            f"Without a survey, at n^(1/4) = {T} rounds, {ranked[0]['name']} has the least excess, "
            f"{_excess(point_at(ranked[0], T))}. "
            f"Accelerated-DP-SRGD has {_excess(point_at(ours, T))}."
        )
    return "Few rounds", text


def _same_rounds(section: Results) -> tuple[str, str]:
    """State at which numbers of rounds another one-pass method has less excess."""
    ours, better = _ours(section), []
    for T in sorted({p["rounds"] for p in accepted_points(ours)}):
        mine = point_at(ours, T)
        lower = [
            c for c in _ranked(section, T) if _tuned_one_pass(c) and point_at(c, T)["excess"][0] < mine["excess"][0]
        ]
        if lower:
            names = ", ".join(f"{c['name']} ({_ratio(excess_ratio(point_at(c, T), mine))})" for c in lower)
            better.append(f"{T} rounds: {names}")
    if not better:
        return "Many rounds", "Accelerated-DP-SRGD has the least excess at every number of rounds."
    return "Methods with less excess at the same rounds", (
        "In brackets, their excess divided by that of Accelerated-DP-SRGD. " + "; ".join(better) + "."
    )


def _best_rounds(section: Results) -> tuple[str, str]:
    """List every one-pass method at its best number of rounds."""
    mine = best_point(_ours(section))
    others = [(c["name"], best_point(c)) for c in section["curves"] if _tuned_one_pass(c) and accepted_points(c)]
    parts = [
        f"{name} {_excess(best)} at {best['steps']:,} rounds ({_ratio(excess_ratio(best, mine))} times as much)"
        for name, best in sorted(others, key=lambda other: other[1]["excess"][0])
    ]
    return "Best over all rounds, without a survey", "; ".join(
        [f"Accelerated-DP-SRGD {_excess(mine)} at {mine['steps']} rounds", *parts]
    ) + "."


def _other_noise(section: Results) -> tuple[str, str]:
    """Compare the method with its own mechanism and with others."""
    ours, parts = _ours(section), []
    for curve in section["curves"]:
        shared = {p["rounds"] for p in accepted_points(curve)} & {p["rounds"] for p in accepted_points(ours)}
        if curve["kind"] == "ours, other noise" and shared:
            ratios = [(T, _ratio(excess_ratio(point_at(curve, T), point_at(ours, T)))) for T in sorted(shared)]
            parts.append(f"{curve['name']} {', '.join(f'{ratio} at {T} rounds' for T, ratio in ratios)}")
    text = f"Excess divided by that with the mechanism computed for the method: {'; '.join(parts)}."
    return "Noise", text if parts else ""


def _passes(section: Results) -> tuple[str, str]:
    stated = []
    for group in section["groups"]:
        lines = [line for line in group["lines"][1:] if "over_default" in line]
        lower = [line for line in lines if line["over_default"][0] < 1]
        higher = [line for line in lines if line["over_default"][0] >= 1]
        text = f"n = {group['n']:,}:"
        if lower:
            text += f" less excess: {_listed(lower)}."
        if higher:
            text += f" More excess: {_listed(higher)}."
        stated.append(text)
    return "Many passes", "In brackets, the excess divided by that of the default plan, one pass. " + " ".join(stated)


def _listed(lines: Sequence[Results]) -> str:
    return ", ".join(f"{line['name']} ({_ratio(Estimate(*line['over_default']))})" for line in lines)


def _outside(section: Results) -> tuple[str, str]:
    ratios = section["ratios"]
    text = ", ".join(f"{r[0]:.2f} at n = {n:,}" for r, n in zip(ratios, section["sizes"], strict=True))
    low = ratios[-1][1]
    verdict = (
        "the difference is within the error, as the authors conjecture"
        if low is None or low <= 1
        else "sqrt(n) rounds are better: this problem does not support the conjecture"
    )
    return "Open question (a)", (
        "The minimiser lies outside the set; the gradient at the best point has norm "
        f"{section['gradient_at_optimum']:g}. The excess of n^(1/4) rounds divided by that of sqrt(n) rounds is "
        f"{text}. At the largest n {verdict}. One problem proves nothing."
    )


def _sizes(section: Results) -> tuple[str, str]:
    fits = [f"{c['name']} {plus_minus(c['exponent'], 2)}" for c in section["curves"] if "exponent" in c]
    return "Excess against n", (
        f"Exponents of n: {'; '.join(fits)}. The worst-case optimal rate has -1/2 to -1. This problem is easier than "
        "the worst case; a method that is optimal on it approaches the -1 of p / 2n."
    )


def _file(section: Results) -> tuple[str, str]:
    lines = sorted((line for line in section["lines"] if "accuracy" in line), key=lambda line: -line["accuracy"][0])
    parts = "; ".join(f"{x['name']} {100 * x['accuracy'][0]:.1f} % ({x['steps']:,} rounds)" for x in lines)
    return f"Accuracy on {section['file']}", (
        f"{parts}; without privacy {100 * section['without_privacy']:.1f} %. Tuning chose the rounds among "
        f"{', '.join(map(str, section['rounds']))}."
    )


def _brackets(results: Results) -> tuple[str, str]:
    """State which best configurations were not bracketed within the budget."""
    curves = [curve for key in ("rounds", "sizes") if key in results for curve in results[key]["curves"]]
    points = [(curve["name"], p) for curve in curves for p in curve["points"]]
    points = [(name, p) for name, p in points if p["tried"] > 1]
    lines = [line for group in results["passes"]["groups"] for line in group["lines"]]
    lines += results.get("file", {"lines": []})["lines"]
    points += [(line["name"], line) for line in lines if line["tried"] > 1]
    outside = [p for part in ("few", "many") for p in results.get("outside", {part: []})[part]]
    points += [("Accelerated-DP-SRGD, minimiser outside", p) for p in outside]
    at_edge = [
        f"{name} (n = {p['n']:,}, {p['rounds']:,} rounds: {', '.join(p['edge'])})" for name, p in points if p["edge"]
    ]
    if not at_edge:
        return "Optima", f"All {len(points)} optima are bracketed: worse values were tried on both sides of every knob."
    return "Optima at an edge", (
        f"{len(points) - len(at_edge)} of {len(points)} optima are bracketed. Within its budget the search did not "
        f"bracket: {'; '.join(at_edge)}."
    )


def _tuned_one_pass(curve: Results) -> bool:
    """Return whether the curve is another one-pass method, tuned."""
    return curve["kind"] in ("one pass", "one pass, more tuned")


def _ours(section: Results) -> Any:
    return next(curve for curve in section["curves"] if curve["kind"] == "ours")


def _ranked(section: Results, rounds: int) -> list[Any]:
    there = [curve for curve in section["curves"] if point_at(curve, rounds) is not None]
    return sorted(there, key=lambda curve: point_at(curve, rounds)["excess"][0])


def _excess(point: Results) -> str:
    return f"{point['excess'][0]:.2g}"


def _ratio(estimate: Estimate) -> str:
    return f"{estimate.value:.2f}" if estimate.value >= 0.1 else f"{estimate.value:.2g}"
