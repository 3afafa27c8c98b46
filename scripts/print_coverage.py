"""Print the share of the library's lines that a test run executed, per package.

    python scripts/print_coverage.py build/coverage.json

``make test`` writes the file with SlipCover, which instruments bytecode: about a tenth more time on Python 3.11, where
tracing would double it. Compiled kernels and child processes are not measured.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def shares(files: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return executed and all lines for each package below ``src/dpsco``; files beside the packages count as one."""
    ran: Counter[str] = Counter()
    all_lines: Counter[str] = Counter()
    for path, found in files.items():
        below = Path(path).parts[Path(path).parts.index("dpsco") + 1 :]
        package = below[0] if len(below) > 1 else "(top level)"
        ran[package] += len(found["executed_lines"])
        all_lines[package] += len(found["executed_lines"]) + len(found["missing_lines"])
    return {name: (ran[name], all_lines[name]) for name in sorted(all_lines)}


def main(arguments: list[str]) -> int:
    found = shares(json.loads(Path(arguments[0]).read_text(encoding="utf-8"))["files"])
    found["all"] = (sum(ran for ran, _ in found.values()), sum(lines for _, lines in found.values()))
    print(f"{'coverage':<14}{'lines':>8}{'run':>8}")
    for name, (ran, lines) in found.items():
        print(f"{name:<14}{lines:>8,}{ran / max(lines, 1):>8.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
