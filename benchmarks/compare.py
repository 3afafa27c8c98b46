"""Make docs/compare.md: rows of Adult (census income), scaled by public constants as in ``benchmarks.adult``.

    python -m benchmarks.compare rows PATH/adult.npz build/adult.npz
    dpsco compare --full --data build/adult.npz --feature-norm 3.5 --out build/compare
    python -m benchmarks.compare page build/compare

The last command writes the tables and conclusions of ``build/compare`` between the comments of docs/compare.md, and
copies its plots, JSON and HTML page to docs/compare/.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.adult import load
from dpsco.research.compare.text_tables import markdown, tables

DOCS = Path(__file__).parents[1] / "docs"


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
    reasons = [f"* {line['name']}: {' '.join(line['why'])}" for line in results["table"]["lines"] if line.get("why")]
    found["reasons"] = "\n".join([*reasons, f"* {results['table']['left_out']}"])
    found["effort"] = (
        f"Tuning tried {how['configurations']} configurations per method and setting, each on {how['tuning']} tuning "
        f"runs. The best was scored on {how['scoring']} runs with other rows and keys. {how['runs']:,} runs in all."
    )
    return found


def filled(page: str, results: dict[str, Any]) -> str:
    """Return the page with the text between its comments replaced."""
    for name, text in parts(results).items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = pattern.sub(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)
    return page


def page(folder: Path) -> None:
    """Write docs/compare.md and docs/compare/ from a comparison."""
    results = json.loads((folder / "compare.json").read_text())
    target = DOCS / "compare"
    target.mkdir(exist_ok=True)
    for file in (folder / "compare.json", folder / "compare.html", *sorted(folder.glob("*.svg"))):
        shutil.copy(file, target / file.name)
    document = DOCS / "compare.md"
    document.write_text(filled(document.read_text(), results))
    print(f"  {document.name} and {target.name}/ written")


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    {"rows": rows, "page": page}[command](*map(Path, paths))
