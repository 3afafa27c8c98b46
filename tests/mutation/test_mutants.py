"""Every seeded privacy bug is noticed by a test that is named beside it; without a bug the same tests pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutation.mutants import CONTROL, MUTANTS, NAMED, Mutant

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import sys, pytest, dpsco
assert dpsco.__file__.startswith(sys.argv[1]), "the copy is not what was imported"
sys.exit(pytest.main(["-q", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def mutated(mutant: Mutant | None, folder: Path) -> Path:
    """A copy of the package with the bug in it.

    Compiled kernels come along: the library itself forgets them if their sources, which keep their dates, have changed.
    """
    copy = folder / "dpsco"
    shutil.copytree(ROOT / "src" / "dpsco", copy, ignore=shutil.ignore_patterns("*.pyc", ".*"))
    for name, snippet, replacement in mutant.changes if mutant else ():
        text = (copy / name).read_text(encoding="utf-8")
        assert text.count(snippet) == 1, f"{mutant.name}: the snippet is not once in {name}; mend the mutant"
        (copy / name).write_text(text.replace(snippet, replacement), encoding="utf-8")
    return folder


def run(tests: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # half of the time of a process, and none is needed
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder), *tests], cwd=ROOT, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_killed(mutant: Mutant, tmp_path: Path, record_property) -> None:
    result = run(mutant.tests, mutated(mutant, tmp_path))
    assert result.returncode == 1, (
        f"{mutant.name} survived, or its tests did not run:\n{result.stdout}\n{result.stderr}"
    )
    killer = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", result.stdout, re.MULTILINE)
    assert killer is not None, result.stdout
    record_property("mutant", [mutant.name, killer[1]])


@pytest.mark.slow
def test_without_a_bug_the_same_tests_pass(tmp_path: Path) -> None:
    result = run(CONTROL, mutated(None, tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr


def test_snippets_are_each_once_in_their_files_and_there_are_at_least_twenty() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert len(names) == len(MUTANTS) >= 20
    assert names >= set(NAMED)
    for mutant in MUTANTS:
        for name, snippet, replacement in mutant.changes:
            text = (ROOT / "src" / "dpsco" / name).read_text(encoding="utf-8")
            assert text.count(snippet) == 1, f"{mutant.name}: {snippet!r} is not once in {name}"
            assert snippet != replacement
