"""Every example runs as its first lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.optional_packages import skip_without

EXAMPLES = [path for path in sorted((Path(__file__).parents[1] / "examples").glob("*.py")) if path.stem[0] != "_"]
LONG = ("networks_jax", "networks_torch")


@pytest.mark.parametrize(
    "example",
    [pytest.param(path, marks=pytest.mark.slow) if path.stem in LONG else path for path in EXAMPLES],
    ids=lambda path: path.stem,
)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    skip_without(example.read_text(encoding="utf-8"))
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
