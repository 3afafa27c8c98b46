"""Check built packages: their contents, and a README that works on a package index.

    python scripts/check_dist.py dist

Exit code: 0 if all is well, 1 with one line per fault.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

RELATIVE = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s]+)\)")


def wheel_faults(path: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    found = [
        f"{path.name}: README links to {target}, which no package index has." for target in RELATIVE.findall(metadata)
    ]
    found += [f"{path.name}: {name} does not belong in a wheel." for name in names if not name.startswith("dpsco")]
    for wanted in ("dpsco/__init__.py", "dpsco/py.typed"):
        if wanted not in names:
            found.append(f"{path.name}: {wanted} is missing.")
    if not any(name.endswith("/licenses/LICENSE") for name in names):
        found.append(f"{path.name}: the license is missing.")
    head = message_from_string(metadata)
    version = path.name.split("-")[1]
    if head["Version"] != version:
        found.append(f"{path.name}: metadata has version {head['Version']}.")
    return found


def archive_faults(path: Path) -> list[str]:
    """Return what is wrong with a source archive."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ("pyproject.toml", "README.md", "LICENSE", "src/dpsco/__init__.py", "scripts/package_metadata.py", "tests")
    return [f"{path.name}: {each} is missing." for each in wanted if not any(n.startswith(each) for n in names)]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    wheels, archives = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    faults = [fault for path in wheels for fault in wheel_faults(path)]
    faults += [fault for path in archives for fault in archive_faults(path)]
    if len(wheels) != 1 or len(archives) != 1:
        faults.append(f"{folder}: expected one wheel and one source archive, found {len(wheels)} and {len(archives)}.")
    print("\n".join(faults) or f"{wheels[0].name}, {archives[0].name}: complete, no relative link in the README.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
