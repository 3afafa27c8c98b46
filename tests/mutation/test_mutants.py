"""Every seeded privacy bug is noticed by a test that is named beside it; without a bug the same tests pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutation.mutants import CONTROL, MUTANTS, Mutant

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import sys, pytest, dpsco
assert dpsco.__file__.startswith(sys.argv[1]), "the copy is not what was imported"
sys.exit(pytest.main(["-q", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]]))
"""


def mutated(mutant: Mutant | None, folder: Path) -> Path:
    """A copy of the package with the bug in it."""
    copy = folder / "dpsco"
    shutil.copytree(ROOT / "src" / "dpsco", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, snippet, replacement in mutant.changes if mutant else ():
        text = (copy / name).read_text(encoding="utf-8")
        assert text.count(snippet) == 1, f"{mutant.name}: the snippet is not once in {name}; mend the mutant"
        (copy / name).write_text(text.replace(snippet, replacement), encoding="utf-8")
    return folder


def run(tests: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    named = [test.replace("src/dpsco", str(folder / "dpsco")) for test in tests]
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder), *named], cwd=ROOT, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_killed(mutant: Mutant, tmp_path: Path, record_property) -> None:
    result = run(mutant.tests, mutated(mutant, tmp_path))
    assert result.returncode == 1, (
        f"{mutant.name} survived, or its tests did not run:\n{result.stdout}\n{result.stderr}"
    )
    killer = re.search(r"^(?:FAILED|ERROR) (\S+)", result.stdout, re.MULTILINE)
    assert killer is not None, result.stdout
    record_property("mutant", [mutant.name, killer[1].replace(str(tmp_path), "src")])


@pytest.mark.slow
def test_without_a_bug_the_same_tests_pass(tmp_path: Path) -> None:
    result = run(CONTROL, mutated(None, tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr


def test_snippets_are_each_once_in_their_files_and_there_are_at_least_twenty() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    for mutant in MUTANTS:
        for name, snippet, replacement in mutant.changes:
            text = (ROOT / "src" / "dpsco" / name).read_text(encoding="utf-8")
            assert text.count(snippet) == 1, f"{mutant.name}: {snippet!r} is not once in {name}"
            assert snippet != replacement
