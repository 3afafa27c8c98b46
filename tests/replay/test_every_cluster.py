"""Mark 12 for clusters: Dask's workers sum the rows, and one row of a file moves one sum and nothing that is shown."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engines.on_dask.conftest import ISOLATED
from tests.replay.cluster_replay import CHANGES, DATA


@pytest.mark.parametrize(
    ("changes", "workers", "names"),
    [
        ("few", 1, ["ordinary"]),
        pytest.param("all", 2, list(DATA), marks=pytest.mark.slow),
        pytest.param("command", 2, [], marks=pytest.mark.slow),
    ],
    ids=["one worker", "two workers", "the command"],
)
def test_a_row_of_a_file_moves_one_sum_of_a_cluster_and_nothing_it_shows(
    changes: str, workers: int, names: list[str], tmp_path: Path, mark_figure: Callable[[int, str], None]
) -> None:
    if subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a cluster is started in a network namespace only: this machine allows none")
    program = str(Path(__file__).parent / "cluster_replay.py")
    command = [*ISOLATED, sys.executable, "-W", "ignore", program, changes, str(workers), str(tmp_path), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    difference, largest = found.pop("difference"), 0.0
    assert len(found) == (1 if changes == "command" else len(names) * len(CHANGES[changes]))
    for name, pair in found.items():
        assert pair["errors"] == [None, None], name
        assert pair["warned"] == [], name
        assert pair["seen alike"], name
        assert pair["asked alike"], name
        assert sum(distance > 0 for distance in pair["distances"]) <= 1, name
        assert max(pair["distances"]) <= difference, name
        largest = max(largest, *pair["distances"])
    assert largest > 0.2 * difference  # the rows that were exchanged count
    if changes != "few":
        mark_figure(12, f"{'fit --local-cluster' if changes == 'command' else 'Dask'} {largest / difference:.2f}")
