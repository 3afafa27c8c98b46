"""Check that a tag, the version, the changelog and the citation agree before a release.

    python scripts/check_release.py v0.2.0

Exit code: 0 if they agree, 1 with one line per disagreement.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def declared_version(root: Path) -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', (root / "src/dpsco/version.py").read_text(encoding="utf-8"), re.M)
    if found is None:
        raise ValueError('src/dpsco/version.py has no line __version__ = "..."')
    return found[1]


def disagreements(tag: str, root: Path = ROOT) -> list[str]:
    """Return one sentence per place that does not match the tag."""
    version = declared_version(root)
    found = []
    if tag != f"v{version}":
        found.append(f"The tag is {tag}; src/dpsco/version.py says {version}, so the tag must be v{version}.")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.M):
        found.append(f"CHANGELOG.md needs a heading '## {version} (YYYY-MM-DD)' with the day of the release.")
    if not re.search(rf"^version: {re.escape(version)}$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.M):
        found.append(f"CITATION.cff needs 'version: {version}'.")
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 1
    found = disagreements(arguments[0])
    print("\n".join(found) or f"{arguments[0]}: version, changelog and citation agree.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
