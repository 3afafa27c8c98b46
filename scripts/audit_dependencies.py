"""Known vulnerabilities in what is installed, and pins that would let an old version in.

``python scripts/audit_dependencies.py`` lists the ranges of pyproject.toml beside what is installed, without a network.
``--online`` runs pip-audit besides, which asks PyPI's advisory service: it needs a network, and tells that service
which packages and versions are installed here.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]


def requirements() -> dict[str, list[str]]:
    """Every range in pyproject.toml, under the extra that asks for it ("" for the library itself)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def main() -> int:
    print(f"{'extra':<12} {'range':<44} installed")
    for extra, ranges in requirements().items():
        for line in ranges:
            name = re.split(r"[<>=!~;\[ ]", line, maxsplit=1)[0]
            try:
                found = version(name)
            except PackageNotFoundError:
                found = "-"
            print(f"{extra:<12} {line:<44} {found}")
    print("\nThis list says what is allowed and what is here. It knows no advisories: those are online.")
    if "--online" not in sys.argv[1:]:
        print(
            "For known vulnerabilities: python scripts/audit_dependencies.py --online (needs pip-audit and a network)."
        )
        return 0
    return subprocess.run([sys.executable, "-m", "pip_audit", "--local", "--skip-editable"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
