"""The page is complete, needs no other file, and shows the results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

from dpsco.pages import write_comparison_page
from dpsco.research.compare.comparison_plots import IN_PICTURE, PLOTS, draw_plots
from dpsco.research.compare.single_run import PLANNED
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
    measured = {curve["name"] for curve in small.results["rounds"]["curves"]}
    assert len(measured & set(IN_PICTURE)) >= 5
    for name in measured:
        assert (f">{name}<" in drawn["rounds"]) == (name in IN_PICTURE)


def test_results_survive_json_and_hold_every_interval(small: Small) -> None:
    results = json.loads(json.dumps(small.results, allow_nan=False))
    assert results == small.results
    for curve in results["rounds"]["curves"]:
        for point in curve["points"]:
            value, low, high = point["excess"]
            assert low <= value <= high
            planned = curve["method"] == PLANNED
            assert point["tried"] == (1 if planned else TINY.budget.configurations)
            assert not planned or point["at"] == point["rounds"] >= point["steps"]
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
