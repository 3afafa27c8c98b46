"""Make docs/compare.md: rows of Adult (census income), scaled by public constants as in ``benchmarks.adult``.

    python -m benchmarks.compare rows PATH/adult.npz build/adult.npz
    dpsco compare --medium --data build/adult.npz --feature-norm 3.5 --out build/compare
    dpsco compare --map --medium --out build/compare
    python -m benchmarks.compare page build/compare

The last command writes the tables and conclusions of ``build/compare`` between the comments of docs/compare.md, and
copies its plots, JSON and HTML page to docs/compare/. A folder with a map alone changes the map alone. A medium
comparison leaves out the paper's table, its rates and its open question: the page keeps those of the last full
comparison and states its version.

    python -m benchmarks.compare untuned build/compare [REGIMES]

Tuning is most of a map's work. This command measures again what is not tuned, our plans and one-pass rivals in the
survey's geometry, in the regimes of docs/compare/map.json, or in so many more of them. It keeps the lines of tuned
rivals: rows and keys are the same. It continues where it stopped. The page then says that they are of an earlier run.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.adult import load
from dpsco.pages import write_comparison_page
from dpsco.research.compare.comparison_plots import draw_plots
from dpsco.research.compare.kept_regimes import keep_regime, kept_regimes, regime_digest
from dpsco.research.compare.map_picture import SUMMARY, bracket_line, draw_map, summary
from dpsco.research.compare.regime_map import Cell, measure_cell
from dpsco.research.compare.text_tables import Table, markdown, tables

DOCS = Path(__file__).parents[1] / "docs"
RESULTS, MAP = "compare.json", "map.json"
OLDER = ("table", "sizes", "outside")
"""Sections that a medium comparison leaves out."""


def rows(source: Path, target: Path) -> None:
    """Write Adult as X and y in one file."""
    train, labels, test, test_labels = load(source)
    np.savez_compressed(target, X=np.vstack([train, test]), y=np.concatenate([labels, test_labels]))
    print(f"  {len(labels) + len(test_labels):,} rows of {train.shape[1]} features: {target}")


def parts(results: dict[str, Any]) -> dict[str, str]:
    """Return the text between the comments of the page."""
    how = results["how"]
    found = {table.name: markdown(table) for table in tables(results)}
    found["findings"] = "\n".join(f"* **{f['title']}.** {f['text']}" for f in results["findings"])
    found |= {f"older-{name}": how.get("older", "") for name in OLDER}
    reasons = [f"* {line['name']}: {' '.join(line['why'])}" for line in results["table"]["lines"] if line.get("why")]
    found["reasons"] = "\n".join([*reasons, f"* {results['table']['left_out']}"])
    found["effort"] = (
        f"Tuning tried {how['configurations']} configurations per method and setting, each on {how['tuning']} tuning "
        f"runs. The best was scored on {how['scoring']} runs with other rows and keys. {how['runs']:,} runs in all."
    )
    return found


def with_older(results: dict[str, Any], committed: dict[str, Any]) -> dict[str, Any]:
    """Return the results with the sections of the last full comparison that they lack."""
    older = {name: committed[name] for name in OLDER if name not in results}
    if not older:
        return results
    how = committed["how"]
    text = how.get("older") or f"From `dpsco compare --full` of version {how['version']}, not measured again since."
    return {**results, **older, "how": {**results["how"], "older": text}}


def map_parts(results: dict[str, Any]) -> dict[str, str]:
    """Return the text of the map between the comments of the page."""
    table = Table("map", "", SUMMARY, tuple(summary(results)))
    regimes = (
        f"{len(results['cells'])} regimes. {results['keys']} runs per method where a data set has up to 1e5 numbers, "
        "half as many per further factor of ten, at least one."
    )
    left_out = f" Left out: {'; '.join(results['left_out'])}." if results["left_out"] else ""
    earlier = " Tuned rivals are those of an earlier run on the same rows." if results.get("tuned_earlier") else ""
    return {"map": f"{markdown(table)}\n\n{regimes} {bracket_line(results)}{left_out}{earlier}"}


def untuned(folder: Path, regimes: Path = Path("1000000")) -> None:
    """Write the committed map to ``folder``, measured again but for tuned rivals; at most so many regimes at once."""
    committed = json.loads((DOCS / "compare" / MAP).read_text())
    keys, scale, path, left = committed["keys"], committed["scale"], folder / "untuned.jsonl", int(str(regimes))
    folder.mkdir(parents=True, exist_ok=True)
    known, cells = kept_regimes(path), []
    for each in committed["cells"]:
        cell = Cell(**{name: value for name, value in each.items() if name != "lines"})
        digest = regime_digest(cell, keys, f"{scale}, untuned", "")
        if digest not in known and left > 0:
            tuned = {(line["limit"], line["method"]): line for line in each["lines"]}
            left, known[digest] = left - 1, measure_cell(cell, keys, scale, tuned=tuned)
            keep_regime(path, digest, known[digest])
        cells += [{**each, "lines": known[digest]}] if digest in known else []
    print(f"  {len(cells)} of {len(committed['cells'])} regimes are measured")
    if len(cells) == len(committed["cells"]):
        results = {**committed, "cells": cells, "tuned_earlier": True}
        (folder / MAP).write_text(json.dumps(results, separators=(",", ":")))


def filled(page: str, texts: dict[str, str]) -> str:
    """Return the page with the text between its comments replaced."""
    for name, text in texts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = pattern.sub(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)
    return page


def page(folder: Path) -> None:
    """Write docs/compare.md and docs/compare/ from what ``folder`` has: a comparison, a map, or both."""
    target, texts, pictures = DOCS / "compare", {}, {}
    if (folder / RESULTS).exists():
        results = with_older(json.loads((folder / RESULTS).read_text()), json.loads((target / RESULTS).read_text()))
        (target / RESULTS).write_text(json.dumps(results, separators=(",", ":")))
        texts |= parts(results)
        pictures |= draw_plots(results, themed=False)
        write_comparison_page(results, target / "compare.html", tables=tables(results), plots=draw_plots(results))
    if (folder / MAP).exists():
        regimes = json.loads((folder / MAP).read_text())
        (target / MAP).write_text(json.dumps(regimes, separators=(",", ":")))
        texts |= map_parts(regimes)
        pictures["map"] = draw_map(regimes)
    for name, svg in pictures.items():
        (target / f"{name}.svg").write_text(svg)
    document = DOCS / "compare.md"
    document.write_text(filled(document.read_text(), texts))
    print(f"  {document.name} and {target.name}/ written")


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    {"rows": rows, "page": page, "untuned": untuned}[command](*map(Path, paths))
