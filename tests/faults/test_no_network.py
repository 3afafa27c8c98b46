"""Nothing talks to the network at run time: everything works without one, and no address is ever asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
asked = []
NAMES = ("connect", "getaddrinfo", "gethostbyname", "sendto", "bind")
NETWORK = {"urllib.Request", *(f"socket.{name}" for name in NAMES)}
sys.addaudithook(lambda event, arguments: asked.append(event) if event in NETWORK else None)

import numpy as np
import dpsco
from dpsco.audit import audit
from dpsco.cli import main

rng = np.random.default_rng(0)
X, y = rng.standard_normal((400, 3)), rng.integers(0, 2, 400)
problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 3)
plan = dpsco.plan(problem, n=400, budget=dpsco.Budget(1.0, 1e-5))
dpsco.train(plan, dpsco.stream(X, y))
dpsco.PrivateLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1]).fit(X, y).predict(X)
np.savez("rows.npz", X=X, y=y)
with open("rows.csv", "w") as file:
    file.write("a,b,c,y\\n" + "".join(f"{a},{b},{c},{k}\\n" for (a, b, c), k in zip(X, y)))
options = "--features a,b,c --epsilon 1 --delta 1e-5 --out model.json --html page.html --json"
assert main(f"fit rows.csv --label y {options}".split()) == 0
assert main("predict model.json rows.csv --out predicted.csv".split()) == 0
assert main("report model.json --html report.html --json".split()) == 0
assert main("mechanisms --horizon 8 --json".split()) == 0
assert main("plan --rows 1000 --dimension 5 --epsilon 1 --delta 1e-5 --json".split()) == 0
assert main("demo --rows 2000 --out demo --json".split()) == 0

def custom(size, n):
    own = dpsco.Problem(dpsco.CustomLoss(), dpsco.L2Ball(5.0), size)
    return dpsco.Plan(own, n, dpsco.Budget(4.0, 1e-6), dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0))

assert audit(lambda x, a, label: (a @ x - label) * a, plan=custom(3, 64)).passed

from dpsco.engines.flower import LocalNodes, linear_gradients, serve
homes = {f"home-{i}": linear_gradients(problem, X[i], y[i]) for i in range(40)}
method = dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0)
serve(dpsco.Plan(problem, 40, dpsco.Budget(1.0, 1e-5, "add-remove"), method), LocalNodes([homes]))

import jax.numpy as jnp
import torch
import dpsco.torch
oracles = [
    dpsco.jax.oracle(lambda w, row: jnp.log1p(jnp.exp(-(2 * row[1] - 1) * (row[0] @ w))), np.zeros(3, np.float32)),
    dpsco.torch.oracle(torch.nn.Linear(3, 2), torch.nn.functional.cross_entropy),
]
for oracle in oracles:
    dpsco.train(custom(oracle.size, 400), dpsco.stream(X, y), oracle=oracle, start=oracle.start)
assert asked == [], asked
print("SILENT")
"""


@pytest.mark.slow
@pytest.mark.parametrize("isolated", [True, False], ids=["no network there", "a network there"])
def test_training_estimators_commands_audits_and_adapters_ask_for_no_address(isolated: bool, tmp_path) -> None:
    """Blocked (a network namespace with nothing in it), and open with an audit hook on every call that could leave."""
    for package in ("jax", "sklearn", "torch", "pyarrow", "matplotlib"):
        pytest.importorskip(package)
    prefix = ["unshare", "--user", "--map-root-user", "--net"] if isolated else []
    if isolated and subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("this system allows no network namespace of one's own")
    command = [*prefix, sys.executable, "-W", "ignore", "-c", _PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("SILENT")
