"""A federation on this machine: one SuperLink, four SuperNodes, a thousand devices on each, and no network.

    python examples/federated/run.py                  sixteen rounds over loopback, about two minutes
    python examples/federated/run.py --kill 5         one SuperNode is killed after the fifth round
    python examples/federated/run.py --simulation     Flower's simulation in place of processes (needs flwr[simulation])
    python examples/federated/run.py --survey full    a survey first; what it releases decides on at most fifteen rounds
    python examples/federated/run.py --tls            under certificates made on the spot

Everything runs in a network namespace that has loopback alone. ``--seeded`` fixes the noise and compares the model
with that of a run in one process on the same rows. Needs ``pip install 'dpsco[federated]'`` and Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from dpsco.datasets import reference_problem
from dpsco.run.model_file import SavedModel

APP = Path(__file__).parent
DEVICES, DIMENSION, NODES = 4_000, 10, 4
LINK, FIRST_NODE = 9093, 9200
KEY = bytes(range(32))
OFFLINE = "DPSCO_EXAMPLE_OFFLINE"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--survey", choices=("none", "full", "diagonal"), default="none")
    parser.add_argument("--unit", choices=("client", "example"), default="client")
    parser.add_argument("--kill", type=int, metavar="ROUND", help="kill one SuperNode after this many rounds")
    parser.add_argument("--timeout", type=float, default=40.0, help="seconds that a round waits for answers")
    parser.add_argument("--tls", action="store_true", help="encrypt with certificates made on the spot (needs openssl)")
    parser.add_argument("--seeded", action="store_true", help="fix the noise, and compare with a run in one process")
    parser.add_argument("--simulation", action="store_true", help="Flower's simulation engine")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    args = parser.parse_args()
    if OFFLINE not in os.environ:
        alone = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*alone, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
        os.execvpe(command[0], command, {**os.environ, OFFLINE: "1"})  # noqa: S606  (whatever it starts ends with it)
    with tempfile.TemporaryDirectory(prefix="dpsco-federation-") as folder:
        return federate(args, Path(folder))


def federate(args: argparse.Namespace, folder: Path) -> int:
    plan, features, labels, ids = world(args.rounds, args.survey)
    (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    for node in range(NODES):
        mine = slice(node, None, NODES)
        np.savez(folder / f"rows-{node}.npz", features=features[mine], labels=labels[mine], ids=ids[mine])
    began = time.monotonic()
    rounds = flower(args, plan, folder)
    saved = SavedModel.read(folder / "model.json").result
    seconds = time.monotonic() - began
    summary = {
        "rounds": rounds,
        "seconds": round(seconds, 1),
        "epsilon": saved.report.epsilon,
        "mu": saved.report.mu,
        "noise": saved.report.noise_std,
        # The count of clients has a share of mu, so rounds have more noise; behind a survey its release decides on it.
        "guarantee_as_planned": saved.report.mu == plan.budget.mu
        and (args.survey != "none" or saved.report.noise_std >= plan.schedule.calibration.sigma),
        "private": saved.report.private,
        "protects": saved.report.unit,
    }
    if args.seeded:
        here = dpsco.train(plan, dpsco.stream(features, labels, ids=ids), key=KEY).model.coef
        summary["apart"] = float(np.max(np.abs(saved.model.coef - here)) / np.max(np.abs(here)))
    if args.json:
        print(json.dumps(summary))
    else:
        print(saved.report)
        print(f"\n{rounds} rounds in {seconds:.0f} s; guarantee as planned: {summary['guarantee_as_planned']}")
        if args.seeded:
            print(f"largest relative distance to the run in one process: {summary['apart']:.1e}")
    return 0


def world(rounds: int, survey: str) -> tuple[dpsco.Plan, np.ndarray, np.ndarray, np.ndarray]:
    """Return the plan and one row per device."""
    data = reference_problem(DEVICES, DIMENSION, fresh=10)
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(radius=10.0), dimension=DIMENSION)
    budget = dpsco.Budget(epsilon=4.0, delta=1e-5, adjacency="add-remove")
    plan = dpsco.plan(problem, n=DEVICES, budget=budget, rounds=rounds, survey=survey)
    return plan, data.features, data.labels, np.array([f"device-{i}" for i in range(DEVICES)])


def flower(args: argparse.Namespace, plan: dpsco.Plan, folder: Path) -> int:
    """Start all processes, watch the rounds, kill a node if asked, stop all; return the number of rounds."""
    home = folder / "home"
    home.mkdir()
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(home)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **quiet, "PATH": path, "OMP_NUM_THREADS": "1"}
    link_security, node_security, client_security = security(args, folder)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{LINK}"\n{client_security}\n',
        encoding="utf-8",
    )
    with started(folder, environment) as start:
        mode = ["--simulation"] if args.simulation else []
        start("flower-superlink", "--disable-runtime-dependency-installation", "--port", LINK, *mode, *link_security)
        wait_for(LINK)
        nodes = [] if args.simulation else [supernode(start, node, folder, node_security) for node in range(NODES)]
        settings = {"plan": f'"{folder / "plan.json"}"', "model": f'"{folder / "model.json"}"', "nodes": NODES}
        settings |= {"timeout": args.timeout, "unit": f'"{args.unit}"', "checkpoint": f'"{folder / "run"}"'}
        settings |= {"rows": f'"{folder}/rows-{{partition-id}}.npz"'} if args.simulation else {}
        settings |= {"key": f'"{KEY.hex()}"'} if args.seeded else {}
        run_config = " ".join(f"{name}={value}" for name, value in settings.items())
        command = ["flwr", "run", str(APP), "here", "--run-config", run_config]
        command += ["--federation-config", f"num-supernodes={NODES}"] if args.simulation else []
        subprocess.run(command, env=environment, check=True, capture_output=True)
        end = time.monotonic() + 120 + plan.rounds * (args.timeout + 30)
        rounds = 0
        while not (folder / "model.json").exists():
            time.sleep(0.2)
            if time.monotonic() > end:
                raise TimeoutError((folder / "flower-superlink-0.log").read_text(encoding="utf-8")[-4000:])
            if released(folder, plan) > rounds:
                rounds += 1
                print(f"round {rounds} of {plan.rounds} released", file=sys.stderr, flush=True)
                if rounds == args.kill:
                    os.killpg(nodes[-1].pid, signal.SIGKILL)
                    print("one SuperNode killed", file=sys.stderr, flush=True)
    return released(folder, plan)


def supernode(start: Any, node: int, folder: Path, security: list[Any]) -> subprocess.Popen[bytes]:
    config = f'plan="{folder / "plan.json"}" rows="{folder / f"rows-{node}.npz"}"'
    address = ("--superlink", f"127.0.0.1:{LINK}", "--port", FIRST_NODE + node)
    process: subprocess.Popen[bytes] = start("flower-supernode", *address, "--node-config", config, *security)
    return process


def released(folder: Path, plan: dpsco.Plan) -> int:
    """Return the number of rounds the server has released, from the public part of its ledger."""
    first = folder / "run" / "run" / "released.bin"
    stages = ((first, plan.schedule.sum_length), (first.parent / "rounds" / first.name, plan.problem.parameters))
    return sum(path.stat().st_size // (8 * length + 32) for path, length in stages if path.exists())


def security(args: argparse.Namespace, folder: Path) -> tuple[list[Any], list[Any], str]:
    """Return the options of SuperLink, SuperNodes and ``flwr run``: plain, or with a certificate made for this run."""
    if not args.tls:
        return ["--insecure"], ["--insecure"], "insecure = true"
    authority, key, certificate, request = (folder / n for n in ("ca.crt", "link.key", "link.crt", "link.csr"))
    names = folder / "names"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n", encoding="utf-8")
    openssl = ["openssl", "req", "-newkey", "rsa:3072", "-nodes", "-subj"]
    sign = ["openssl", "x509", "-req", "-days", "1", "-in", request, "-CA", authority]
    make = [
        [*openssl, "/CN=dpsco authority", "-x509", "-days", "1", "-keyout", folder / "ca.key", "-out", authority],
        [*openssl, "/CN=127.0.0.1", "-keyout", key, "-out", request],
        [*sign, "-CAkey", folder / "ca.key", "-CAcreateserial", "-extfile", names, "-out", certificate],
    ]
    for command in make:
        subprocess.run([str(part) for part in command], check=True, capture_output=True)
    link = ["--ssl-ca-certfile", authority, "--ssl-certfile", certificate, "--ssl-keyfile", key]
    return link, ["--root-certificates", authority], f'root-certificates = "{authority}"'


@contextmanager
def started(folder: Path, environment: dict[str, str]) -> Iterator[Any]:
    """Yield ``start(program, *arguments)``; each process has its own group and ends with the block."""
    running: list[subprocess.Popen[bytes]] = []

    def start(program: str, *arguments: object) -> subprocess.Popen[bytes]:
        log = (folder / f"{program}-{len(running)}.log").open("wb")
        command = [program, *map(str, arguments)]
        running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
        return running[-1]

    try:
        yield start
    finally:
        for process in reversed(running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(port: int, seconds: float = 60.0) -> None:
    """Wait until something listens on ``port`` of this machine."""
    import socket

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"Nothing listens on port {port}.")


if __name__ == "__main__":
    sys.exit(main())
