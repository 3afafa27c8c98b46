"""A table in several Parquet files, and a way to run engines where nothing can leave the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ISOLATED = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "isolated"]
HERE = Path(__file__).parent


def isolated(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """Run ``driver.py`` with these arguments in a network namespace that has nothing but loopback."""
    command = [*ISOLATED, sys.executable, str(HERE / "driver.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


@pytest.fixture(scope="session", autouse=True)
def namespace() -> None:
    try:
        works = subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        works = False
    if not works:
        pytest.skip("a cluster is started in a network namespace only: this machine allows none")


@pytest.fixture(scope="session")
def table(tmp_path_factory) -> Path:
    """20,000 rows in three files of uneven row groups: four numbers, a text, a label; some cells are missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(7)
    n = 20_000
    numbers = rng.standard_normal((n, 4)).astype(np.float32)
    city = rng.choice(["Lyon", "Nice", "Paris", "Rome"], n)
    label = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * numbers[:, 0])), "yes", "no")
    cells = {f"x{j}": numbers[:, j] for j in range(4)} | {"city": city, "bought": label}
    whole = pa.table(cells | {"x3": pa.array(numbers[:, 3], mask=rng.random(n) < 0.1)})
    for k, (start, stop, group) in enumerate([(0, 7_000, 900), (7_000, 7_500, 500), (7_500, n, 1_700)]):
        pq.write_table(whole[start:stop], folder / f"part-{k}.parquet", row_group_size=group)
    return folder
