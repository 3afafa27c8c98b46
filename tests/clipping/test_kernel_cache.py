"""Compiled code on disk is never older than any of its sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dpsco

_CALL = """
from dpsco.clipping.kernels.slopes import exponential
print(exponential(1.0), sum(exponential.stats.cache_hits.values()))
"""


def call(folder: Path) -> list[float]:
    """exp(1) and whether it came from the cache, in a fresh process that finds the library in ``folder``."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run([sys.executable, "-c", _CALL], env=environment, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def test_a_change_in_an_imported_source_renews_what_was_compiled_from_it(tmp_path: Path) -> None:
    """``exponential`` (slopes.py) calls ``power_of_two`` (simd.py), which is changed to return twice its value."""
    shutil.copytree(Path(dpsco.__file__).parent, tmp_path / "dpsco", ignore=shutil.ignore_patterns("__pycache__"))
    first, from_cache = call(tmp_path)
    assert abs(first - 2.718281828459045) < 1e-15
    assert not from_cache
    assert call(tmp_path) == [first, 1.0]
    source = tmp_path / "dpsco" / "clipping" / "kernels" / "simd.py"
    text = source.read_text()
    assert text.count("1023)") == 1
    source.write_text(text.replace("1023)", "1024)"))
    assert call(tmp_path) == [2 * first, 0.0]
