"""The page in a browser without network, in light and dark."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import dpsco
from dpsco.pages import write_run_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=900,3600"]


def offline(command: list[str]) -> subprocess.CompletedProcess:
    """Run in a network namespace with loopback alone."""
    script = 'ip link set lo up 2>/dev/null; exec "$@"'
    return subprocess.run(["unshare", "-n", "sh", "-c", script, "sh", *command], capture_output=True, timeout=120)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")
def test_the_page_is_readable_in_light_and_in_dark(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    if offline(["true"]).returncode:
        pytest.skip("needs the right to make a network namespace")
    rng = np.random.default_rng(0)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=2)
    plan = dpsco.Plan(problem, 400, dpsco.Budget(1.0, 1e-5), dpsco.AcceleratedSRGD(rounds=8, beta=0.2, clip=1.0))
    result = dpsco.train(plan, dpsco.stream(rng.standard_normal((400, 2)) / 3, rng.integers(0, 2, 400)))
    page = write_run_page(
        result, tmp_path / "page.html", reached={"accuracy": "0.5"}, not_private={"rows cut short": "3"}
    )
    backgrounds = {}
    for theme, scheme in (("light", 1), ("dark", 0)):
        shot = tmp_path / f"{theme}.png"
        profile = [f"--user-data-dir={tmp_path / theme}", f"--blink-settings=preferredColorScheme={scheme}"]
        offline([str(CHROMIUM), *FLAGS, *profile, f"--screenshot={shot}", page.as_uri()])
        pixels = np.asarray(image.open(shot).convert("RGB"), dtype=float)
        backgrounds[theme] = pixels[2, 2].mean()
        written = np.abs(pixels - pixels[2, 2]).max(axis=2) > 80
        assert 0.01 < written.mean() < 0.2  # text and lines, neither an empty page nor a filled one
        assert np.flatnonzero(written.any(axis=1)).max() > 2_000  # down to the last section
        assert not written[:, -5:].any()  # nothing runs over the edge
    assert backgrounds["light"] > 240
    assert backgrounds["dark"] < 40
    dom = offline([str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'dom'}", "--dump-dom", page.as_uri()]).stdout
    for words in (b"Who is protected?", b"NOT PRIVATE", b"on data declared public", b"<svg"):
        assert words in dom
