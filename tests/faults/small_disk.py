"""A disk that can be full: a tmpfs of a few pages in a mount namespace of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_BEGIN = """
import errno, json, subprocess, sys
from pathlib import Path
import numpy as np
import dpsco

folder, ballast = Path(sys.argv[1]), Path(sys.argv[1]) / "ballast"
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)], check=True)

def filled(work):
    \"\"\"Name of the error that ``work`` ended with.\"\"\"
    try:
        work()
    except OSError as error:
        return errno.errorcode[error.errno]

def fill():
    with ballast.open("ab", buffering=0) as file:
        while filled(lambda: file.write(bytes(4096))) is None:
            pass

"""


def in_a_small_disk(folder: Path, program: str, *arguments: object) -> Any:
    """What ``program`` prints, as JSON; its disk of 128 kB is at ``folder``."""
    inside = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", _BEGIN + program, str(folder)]
    done = subprocess.run([*inside, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip("this system allows no mount namespace of one's own")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
