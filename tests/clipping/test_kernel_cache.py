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


_FIT = """
import numpy as np
from dpsco.clipping import CompiledOracle
from dpsco import Logistic
from dpsco.query import Batch, Query
from dpsco.clipping.kernels.slopes import OPTIONS
rows = np.random.default_rng(0).normal(size=(300, 4))
answer = CompiledOracle(Logistic()).answer(
    Query(0, (np.zeros(4),), (1.0,), 1.0, 300), Batch(0, [(rows, np.zeros(300, dtype=np.int64))])
)
print(OPTIONS["cache"], answer.rows)
"""


def test_kernels_compile_where_nothing_can_be_written(tmp_path: Path) -> None:
    """No home, and files where numba would make its folders: that stops root too, unlike permissions."""
    shutil.copytree(Path(dpsco.__file__).parent, tmp_path / "dpsco", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("clipping/kernels", "release"):
        (tmp_path / "dpsco" / folder / "__pycache__").write_text("in the way")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HOME": os.devnull, "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", _FIT], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "300"], done.stderr
