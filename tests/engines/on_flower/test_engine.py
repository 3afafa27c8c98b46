"""The engine itself: SuperLink and SuperNodes as processes, TLS, and Flower's simulation; loopback alone.

Flower pins versions that the rest of the suite should not be held to, so it lives in an environment of its own, which
``benchmarks/flower_environment.py`` makes under build/peers.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from benchmarks.flower_environment import environment, federate

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    if subprocess.run(["unshare", "--map-root-user", "--net", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make a network namespace")
    try:
        environment()
    except subprocess.CalledProcessError:
        pytest.skip("needs Flower, which cannot be installed here")


def test_the_protocol_holds_with_real_apps_and_messages() -> None:
    tests = ["-m", "pytest", "-q", "tests/engines/on_flower/test_flower.py"]
    offline = ["unshare", "--map-root-user", "--net", str(environment()), *tests]
    run = subprocess.run(offline, cwd=ROOT, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert run.returncode == 0, run.stdout
    assert "passed" in run.stdout
    assert "skipped" not in run.stdout


def test_sixteen_rounds_with_a_supernode_killed_keep_the_guarantee() -> None:
    summary = federate("--kill", "5")
    assert summary["rounds"] == 16
    assert summary["guarantee_as_planned"]
    assert summary["private"]
    assert summary["protects"].startswith("one client")


@pytest.mark.parametrize("options", ["--tls --rounds 4", "--simulation --survey full", "--simulation --unit example"])
def test_the_engine_gives_the_bits_of_a_run_in_one_process(options: str) -> None:
    summary = federate("--seeded", *options.split())
    assert summary["apart"] == 0.0
    assert summary["guarantee_as_planned"]
