"""Check the installed packages for known vulnerabilities, and the declared ranges for missing bounds.

    python scripts/audit_dependencies.py             offline: the ranges of pyproject.toml beside what is installed
    python scripts/audit_dependencies.py --online    pip-audit besides, which asks PyPI's advisory service

Offline it complains of a range without a lower bound, of a requirement that is an address, and of an installed version
outside its range. It knows no advisories: those are online, and asking tells that service which versions are here.
Exit code: 0 nothing was found, 1 something was, 2 the service could not be asked about every package.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Line:
    """One requirement, its installed version, and the problem with it."""

    extra: str
    """The extra that declares it; empty for the library itself."""
    wanted: str
    installed: str | None
    fault: str = ""


def requirements(pyproject: str) -> dict[str, list[str]]:
    """Return every range in the text of pyproject.toml with its extra."""
    project = tomllib.loads(pyproject)["project"]
    return {"": project["dependencies"], **project.get("optional-dependencies", {})}


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def looked_at(ranges: Mapping[str, list[str]], found: Callable[[str], str | None] = installed) -> list[Line]:
    """Compare each range with the installed version, without a network."""
    lines = []
    for extra, texts in ranges.items():
        for text in texts:
            wanted, here = Requirement(text), found(Requirement(text).name)
            lower = [each for each in wanted.specifier if each.operator in (">=", ">", "==", "~=", "===")]
            if wanted.url is not None:
                fault = "is an address, not a range"
            elif not lower:
                fault = "has no lower bound"
            elif here is not None and not wanted.specifier.contains(here, prereleases=True):
                fault = f"is installed as {here}, outside its range"
            else:
                fault = ""
            lines.append(Line(extra, text, here, fault))
    return lines


def judged(answer: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the vulnerabilities in the JSON of pip-audit, and the packages it could not check.

    pip-audit ends with 0 and "no known vulnerabilities" if the service knew none of the packages; this does not.
    """
    known, unasked = [], []
    for package in answer["dependencies"]:
        if "skip_reason" in package:
            if "editable" not in package["skip_reason"]:  # this project itself
                unasked.append(package["name"])
            continue
        known += [f"{package['name']} {package['version']}: {each['id']}" for each in package["vulns"]]
    return known, unasked


def ask() -> Mapping[str, Any] | None:
    """Return the JSON of pip-audit for this environment; None if it is not installed or got no answer."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--local",
        "--skip-editable",
        "--progress-spinner=off",
        "--format=json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    try:
        return json.loads(done.stdout)
    except ValueError:
        print(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip-audit said nothing.")
        return None


def main(arguments: list[str]) -> int:
    lines = looked_at(requirements((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    print(f"{'extra':<12} {'range':<56} installed")
    for line in lines:
        print(f"{line.extra:<12} {line.wanted:<56} {line.installed or '-'}")
    faults = [f"{line.wanted} {line.fault}." for line in lines if line.fault]
    for text in faults:
        print(text)
    if "--online" not in arguments:
        print("Advisories are online: python scripts/audit_dependencies.py --online (needs pip-audit and a network).")
        return 1 if faults else 0
    answer = ask()
    known, unasked = ([], ["everything"]) if answer is None else judged(answer)
    for text in known:
        print(f"VULNERABLE {text}")
    if unasked:
        print(f"Not audited, the advisory service gave no answer: {', '.join(unasked)}.")
    elif not known:
        print("No known vulnerability in any package that is installed.")
    return 1 if faults or known else 2 if unasked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
