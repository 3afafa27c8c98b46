"""kill -9 of a federation's server at random moments, then resume: the same model, and no client in another round."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_PROGRAM = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np
import randomgen, scipy.linalg
import dpsco, dpsco.clipping
from dpsco.engines.flower import LocalNodes, linear_gradients, serve
from dpsco.engines.flower import wire

P, T, CLIENTS = 8, 24, 120
folder, kills, moments = Path(sys.argv[1]), int(sys.argv[2]), random.Random()
rng = np.random.default_rng(0)
problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), P)
plan = dpsco.Plan(problem, CLIENTS, dpsco.Budget(1.0, 1e-6, "add-remove"),
                  dpsco.AcceleratedSRGD(rounds=T, beta=1.0, clip=1.0))
rows = rng.standard_normal((CLIENTS, 1, P))
nodes = LocalNodes([{f"home-{i}": linear_gradients(problem, rows[i], [i % 2]) for i in range(CLIENTS)}])

class Noted:
    def __init__(self, path):
        self.path = path

    def ask(self, query, step):
        with self.path.open("a") as file:  # what clients were sent outlives the server
            file.write(f"{step} {wire.decode_query(query).digest.hex()}\\n")
        return nodes.ask(query, step)

def once(name, seconds=None):
    begun, (here, there) = time.perf_counter(), os.pipe()
    process = os.fork()
    if not process:
        run = folder / name
        resume = (run / "federation.json").exists()
        model = serve(plan, Noted(folder / f"{name}.asked"), key=bytes(32), checkpoint=run, resume=resume).model
        os.write(there, model.coef.tobytes().hex().encode())
        os._exit(0)
    os.close(there)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    with os.fdopen(here) as pipe:
        model = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return model, time.perf_counter() - begun

def released(name):
    path, size = folder / name / "run" / "released.bin", 8 * P
    raw = path.read_bytes() if path.exists() else b""  # whole records without their checksums, which name the run
    return b"".join(raw[k : k + size] for k in range(0, len(raw) - size - 31, size + 32))

wanted, duration = once("calm")
done = between = run = 0
queries = set()
while done < kills:
    run, model = run + 1, ""
    while not model:
        model, _ = once(f"run {run}", moments.uniform(0, 0.7 * duration) if done < kills else None)
        done += not model
        kept = released(f"run {run}")
        assert released("calm").startswith(kept)
        between += 0 < len(kept) < len(released("calm"))
    assert model == wanted
    assert released(f"run {run}") == released("calm")
    queries |= set((folder / f"run {run}.asked").read_text().split("\\n")) - {""}
    left = [path.name for path in (folder / f"run {run}").rglob("*") if path.is_file() and "cohort" in str(path)]
    assert left == [], left
print(json.dumps({"kills": done, "between": between, "queries": len(queries), "rounds": T}))
"""


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_a_killed_server_goes_on_and_asks_a_round_the_same_question_or_none(kills: int, tmp_path, mark_figure) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path), str(kills)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] >= kills
    assert told["between"] > 0, "no kill fell into the rounds"
    assert told["queries"] == told["rounds"]
    if kills > 5:
        mark_figure(20, f"{told['kills']} of {told['kills']} kills of a federation's server likewise")
