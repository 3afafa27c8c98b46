"""A separate environment for Flower, which pins its dependencies, and the example run in it."""

from __future__ import annotations

import fcntl
import json
import subprocess
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def environment() -> Path:
    """The Python of an environment with this library, Flower and its simulation engine; made if it is not there."""
    folder = ROOT / "build" / "peers" / "flower"
    python, done = folder / "bin" / "python", folder / "installed"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "flower.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests in several processes make it once
        if not done.exists():
            venv.create(folder, with_pip=True, clear=True)
            packages = ["-e", f"{ROOT}[federated]", "flwr[simulation]<1.42", "pytest>=8"]
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
            subprocess.run(install, check=True, capture_output=True)
            done.touch()
    return python


def federate(*options: str) -> dict[str, Any]:
    """The example, with these options: what it says of itself."""
    command = [str(environment()), str(ROOT / "examples" / "federated" / "run.py"), "--json", *options]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found
