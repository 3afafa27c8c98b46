"""The committed comparison: the page shows the figures of the committed results."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.compare import filled, map_parts, parts

DOCS = Path(__file__).parents[3] / "docs"
RESULTS = DOCS / "compare" / "compare.json"
MAP = DOCS / "compare" / "map.json"


def test_the_page_shows_the_committed_results() -> None:
    page = (DOCS / "compare.md").read_text()
    texts = parts(json.loads(RESULTS.read_text())) | map_parts(json.loads(MAP.read_text()))
    assert filled(page, texts) == page
    for text in texts.values():
        assert text in page


def test_the_committed_map_covers_its_regimes_and_shows_them() -> None:
    results = json.loads(MAP.read_text())
    assert MAP.stat().st_size < 400_000
    assert results["scale"] == "medium"
    assert (DOCS / "compare" / "map.svg").read_text().startswith("<svg")
    assert {cell["badly_scaled"] for cell in results["cells"]} == {True, False}


def test_the_committed_results_are_those_of_the_named_command() -> None:
    assert RESULTS.stat().st_size < 300_000
    results = json.loads(RESULTS.read_text())
    assert results["how"]["scale"] == "medium"
    assert results["table"]["sizes"][0] <= 1 << 12
    assert results["table"]["sizes"][-1] >= 1 << 18
    assert {"rounds", "passes", "outside", "sizes", "table", "file"} <= set(results)
    for name in ("rounds", "passes", "outside", "sizes", "table", "file"):
        assert (DOCS / "compare" / f"{name}.svg").read_text().startswith("<svg")


def test_the_columns_come_out_as_in_the_paper() -> None:
    for line in json.loads(RESULTS.read_text())["table"]["lines"]:
        assert line["single_epoch"] == line["declares_single_epoch"] == line["paper"]["single_epoch"], line["name"]
        assert line["convexity"] == line["paper"]["convexity"], line["name"]
