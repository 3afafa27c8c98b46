"""Coverage-guided fuzzing of every reader: whatever bytes come, only errors of dpsco come out.

``DPSCO_FUZZ_SECONDS`` sets the time for each reader (default 15); what was found before is kept below as a test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.fuzz.targets import TARGETS, attempt

ROOT = Path(__file__).parents[2]
SECONDS = os.environ.get("DPSCO_FUZZ_SECONDS", "15")


@pytest.mark.parametrize("name", TARGETS)
def test_what_the_fuzzer_starts_from_is_read(name: str, tmp_path: Path) -> None:
    for number, seed in enumerate(TARGETS[name].seeds()):
        assert attempt(name, seed, tmp_path) or number > 0


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("atheris") is None, reason="atheris has no wheel for this Python: no coverage-guided fuzzing"
)
@pytest.mark.parametrize("name", TARGETS)
def test_fuzzing_finds_no_other_error(name: str, tmp_path: Path, mark_figure, record_property) -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", name, SECONDS, str(tmp_path / "fuzz")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    runs = re.search(r"Done (\d+) runs", done.stderr)
    assert runs is not None, done.stderr[-2000:]
    record_property("fuzzed", [name, int(runs[1])])
