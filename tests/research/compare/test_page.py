"""The page is complete, needs no other file, and shows the results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

from dpsco.pages import write_comparison_page
from dpsco.research.compare.comparison_plots import PLOTS, draw_plots
from dpsco.research.compare.text_tables import markdown, tables

from .conftest import TINY, Small

SECTIONS = (
    "Excess risk against rounds",
    "What the figures say",
    "Cost: the paper's table, counted",
    "Excess risk against n",
    "Open question (a): minimiser outside the set",
    "One pass and many",
    "Accuracy on rows.npz",
    "How it was measured",
)


def test_the_page_is_complete_and_needs_no_network(small: Small, tmp_path: Path) -> None:
    results = small.results
    page = write_comparison_page(results, tmp_path / "page.html", tables=tables(results), plots=draw_plots(results))
    html = page.read_text()
    for words in (*SECTIONS, "the tuning is not covered by it", "ReSQue"):
        assert words.replace("'", "&#39;") in html or words in html
    # XML namespaces of SVG are names; a browser does not load them.
    addresses = set(re.findall(r"""(?:href|src|url\()\s*=?\s*["']?([^"'\s>)]+)""", html))
    assert all(address.startswith("#") for address in addresses)
    assert not re.search(r"<(script|link|iframe|img)\b", html)
    assert html.count("<svg") == len(PLOTS)


def test_every_picture_is_well_formed_and_has_its_lines(small: Small) -> None:
    drawn = draw_plots(small.results, themed=False)
    assert set(drawn) == set(PLOTS)
    for svg in drawn.values():
        ElementTree.fromstring(svg)  # noqa: S314 - our own text
    curves = small.results["rounds"]["curves"]
    most = max(len(curve["points"]) for curve in curves)
    named = [
        curve["name"] for curve in curves if curve["kind"] in ("ours", "one pass") and len(curve["points"]) == most
    ]
    assert len(named) > 3
    assert all(name in drawn["rounds"] for name in named)


def test_the_best_of_the_tuned_variants_is_named_and_single_points_are_not_drawn() -> None:
    def curve(name: str, kind: str, *risks: float) -> dict[str, object]:
        points = [
            {"rounds": 8 * 2**k, "steps": 8 * 2**k, "excess": [risk, risk / 2, risk * 2]}
            for k, risk in enumerate(risks)
        ]
        return {"name": name, "kind": kind, "points": points}

    curves = [
        curve("mine", "ours", 0.01, 0.001),
        curve("rival", "one pass", 0.02, 0.01),
        curve("good variant", "one pass, more tuned", 0.02, 0.002),
        curve("bad variant", "one pass, more tuned", 0.02, 0.02),
        curve("single", "many passes", 0.005),
    ]
    svg = PLOTS["rounds"]({"curves": curves, "floor": 1e-4, "quarter": 12}, False)
    assert all(name in svg for name in ("mine", "rival", "good variant", "variants and other noise"))
    assert "bad variant" not in svg
    assert "single" not in svg


def test_results_survive_json_and_hold_every_interval(small: Small) -> None:
    results = json.loads(json.dumps(small.results, allow_nan=False))
    assert results == small.results
    for curve in results["rounds"]["curves"]:
        for point in curve["points"]:
            value, low, high = point["excess"]
            assert low <= value <= high
            assert point["tried"] == TINY.budget.configurations
            assert len(point["scores"]) == TINY.budget.scoring


def test_the_counted_columns_agree_with_the_paper(small: Small) -> None:
    for line in small.results["table"]["lines"]:
        assert line["single_epoch"] == line["declares_single_epoch"] == line["paper"]["single_epoch"]
        assert line["convexity"] == line["paper"]["convexity"]
        assert len(line["steps"]) == len(TINY.table_sizes)


def test_the_ratios_have_their_interval_and_no_verdict(small: Small) -> None:
    ratios = small.results["ratios"]
    assert len(ratios) >= 6
    for ratio in ratios:
        assert set(ratio) == {"what", "measured"}
        value, low, high = ratio["measured"]
        assert 0 < low <= value <= high
    shown = markdown(tables(small.results)[0])
    assert all(ratio["what"] in shown for ratio in ratios)
