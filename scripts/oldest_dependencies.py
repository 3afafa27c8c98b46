"""Print the oldest dependencies that pyproject.toml allows: every ``>=`` becomes ``==``.

    python scripts/oldest_dependencies.py EXTRA ... > requirements.txt

Prints the requirements of the library and of the extras named, one per line, sorted. ``==`` and upper bounds stay.
A requirement without a lower bound is an error (exit code 1): its oldest version is not declared. The script needs
nothing but Python, so it runs before anything is installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def pinned(requirement: str) -> str:
    """Return the requirement at its oldest version.

    >>> pinned("jax>=0.10,<0.11; python_version < '3.14'")
    "jax==0.10,<0.11; python_version < '3.14'"
    """
    wanted, mark, marker = requirement.partition(";")
    if ">=" not in wanted and "==" not in wanted:
        raise ValueError(f"{requirement!r} has no lower bound, so its oldest version is not declared.")
    return re.sub(r"\s*>=\s*", "==", wanted).strip() + mark + marker


def oldest(pyproject: str, extras: Sequence[str]) -> list[str]:
    """Return the pinned requirements of the library and of some extras, without repetition."""
    project = tomllib.loads(pyproject)["project"]
    known = project["optional-dependencies"]
    if unknown := sorted(set(extras) - set(known)):
        raise ValueError(f"Unknown extras {', '.join(unknown)}; pyproject.toml has {', '.join(sorted(known))}.")
    return sorted({pinned(each) for each in [*project["dependencies"], *(r for e in extras for r in known[e])]})


def main(arguments: list[str]) -> int:
    try:
        lines = oldest(PYPROJECT.read_text(encoding="utf-8"), arguments)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
