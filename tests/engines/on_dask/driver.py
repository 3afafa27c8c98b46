"""Runs on a real cluster, for tests that start it in a network namespace: prints one JSON object."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from dpsco.clipping import LinearOracle
from dpsco.engines.dask import ParquetRows, layout, local_cluster, train
from dpsco.errors import ClusterError, DataError
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns

COLUMNS = PublicColumns([f"x{j}" for j in range(4)], categories={"city": ["Lyon", "Paris"]})
LABELS = Labels("bought", ("no", "yes"))
KEY = bytes(range(32))


def a_plan(budget: dpsco.Budget | None = None) -> dpsco.Plan:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), COLUMNS.width, intercept=True)
    return dpsco.Plan(
        problem, 20_000, budget or dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=6, beta=0.25, clip=1.0)
    )


def a_surveyed_plan() -> dpsco.Plan:
    plan = a_plan()
    return dpsco.Plan(plan.problem, plan.n, plan.budget, dpsco.Surveyed(rounds=5, rows=5_000))


def in_process(folder: Path | str, shuffle: int = 0, budget: dpsco.Budget | None = None) -> np.ndarray:
    rows = FileRows(folder, LABELS, COLUMNS, shuffle=shuffle)
    return dpsco.train(a_plan(budget), dpsco.stream(rows), key=KEY).model.coef


def shards(folder: Path | str, shuffle: int = 0, **options: Any) -> ParquetRows:
    layout.SHARD_BYTES = 60_000  # small shards: rounds are cut, and rows are lent
    return ParquetRows(folder, LABELS, COLUMNS, shuffle=shuffle, **options)


def listening() -> list[str]:
    """Addresses of listening sockets in this namespace, IPv4 and IPv6, as the kernel writes them."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return sorted({line[1].split(":")[0] for line in lines if line[3] == "0A"})


def bits(folder: Path) -> dict[str, Any]:
    """One process, one worker and four, with and without a shuffle; and without noise."""
    loud = dpsco.Budget(float("inf"), 1e-6)
    found: dict[str, Any] = {}
    models = {}
    for workers in (1, 4):
        with local_cluster(workers) as client:
            for shuffle in (0, 1_500):
                result = train(a_plan(), shards(folder, shuffle), client, key=KEY)
                same = np.array_equal(result.model.coef, in_process(folder, shuffle))
                found[f"{workers} workers, shuffle {shuffle}"] = same
            surveyed = train(a_surveyed_plan(), shards(folder, 1_500), client, key=KEY)
            rows = FileRows(folder, LABELS, COLUMNS, shuffle=1_500)
            alone = dpsco.train(a_surveyed_plan(), dpsco.stream(rows), key=KEY)
            found[f"{workers} workers, shuffle 1500, surveyed"] = bool(
                np.array_equal(surveyed.model.coef, alone.model.coef) and surveyed.health == alone.health
            )
            models[workers] = train(a_plan(loud), shards(folder), client, key=KEY).model.coef
            found["listening"] = listening()
    found["exact model"] = in_process(folder, 0, loud).tolist()
    found["models without noise"] = [model.tolist() for model in models.values()]
    found["assumptions"] = result.report.assumptions
    return found


@dataclass(frozen=True)
class DeadlyOnce:
    """An oracle that kills its own process with SIGKILL in the middle of round 3, once."""

    flag: str

    def answer(self, query: Any, batch: Any) -> Any:
        if query.step == 3:
            try:
                os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return LinearOracle(dpsco.Logistic(), intercept=True).answer(query, batch)


def killed(folder: Path, scratch: Path) -> dict[str, Any]:
    """A worker dies in the middle of a round."""
    flag = scratch / "died"
    with local_cluster(2) as client:
        model = train(a_plan(), shards(folder), client, key=KEY, oracle=DeadlyOnce(str(flag))).model.coef
    return {"died": flag.exists(), "same": np.array_equal(model, in_process(folder))}


@dataclass(frozen=True)
class Deadly:
    """An oracle that no worker survives from round 2 on."""

    def answer(self, query: Any, batch: Any) -> Any:
        if query.step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return LinearOracle(dpsco.Logistic(), intercept=True).answer(query, batch)


def hopeless(folder: Path, scratch: Path) -> dict[str, Any]:
    """Every worker dies over the same rows; then the run goes on without that oracle."""
    keep = scratch / "checkpoint"
    with local_cluster(1) as client:
        try:
            train(a_plan(), shards(folder), client, key=KEY, oracle=Deadly(), checkpoint=keep)
        except ClusterError as error:
            message = str(error)
        model = train(a_plan(), shards(folder), client, key=KEY, checkpoint=keep, resume=True).model.coef
    return {"error": message, "same": np.array_equal(model, in_process(folder))}


def unreadable(folder: Path, scratch: Path) -> dict[str, Any]:
    """A file is damaged while a run is under way; mended, the run goes on; or it counts as zero rows."""
    copy = shutil.copytree(folder, scratch / "copy")
    part, keep = copy / "part-2.parquet", scratch / "checkpoint"
    found: dict[str, Any] = {}
    with local_cluster(1) as client:
        rows, zero = shards(copy), shards(copy, unreadable="zero")
        part.write_bytes(b"PAR1 not any more PAR1")
        try:
            train(a_plan(), rows, client, key=KEY, checkpoint=keep)
        except DataError as error:
            found["stopped"] = str(error)
        found["released"] = (keep / "released.bin").stat().st_size
        report = train(a_plan(), zero, client, key=KEY).report
        found["missing"], found["planned"] = report.rows_missing, report.rows_planned
        shutil.copy(folder / part.name, part)
        model = train(a_plan(), shards(copy), client, key=KEY, checkpoint=keep, resume=True).model.coef
    found["same"] = np.array_equal(model, in_process(folder))
    return found


def from_store(folder: Path, scratch: Path, server: Path) -> dict[str, Any]:
    """The same rows from an S3 server on loopback: a cluster, one process, the command."""
    from pyarrow import fs

    from dpsco.cli import main

    address = "http://127.0.0.1:5050"
    secrets = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
    os.environ |= secrets | {"AWS_ENDPOINT_URL": address, "AWS_DEFAULT_REGION": "us-east-1"}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([server, "-H", "127.0.0.1", "-p", "5050"], **quiet)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(address, timeout=1).close()
                break
            time.sleep(0.1)
        store = fs.S3FileSystem(endpoint_override="127.0.0.1:5050", scheme="http", allow_bucket_creation=True)
        store.create_dir("bucket")
        fs.copy_files(str(folder), "bucket/table", destination_filesystem=store)
        with local_cluster(2) as client:
            model = train(a_plan(), shards("s3://bucket/table", 1_500), client, key=KEY).model.coef
        alone = in_process("s3://bucket/table", 1_500)
        options = "--label bought --classes no,yes --features x0,x1 --epsilon 1 --delta 1e-6"
        options += " --local-cluster 1 --json --out"
        code = main(["fit", "s3://bucket/table", *options.split(), str(scratch / "model.json")])
        missing = main(["fit", "s3://bucket/nothing", *options.split(), str(scratch / "none.json")])
        wanted = in_process(folder, 1_500)
        same = [np.array_equal(wanted, model), np.array_equal(wanted, alone)]
        return {"same": same, "fit": code, "nothing there": missing}
    finally:
        process.kill()
        process.wait()


def with_tls(folder: Path, scratch: Path) -> dict[str, Any]:
    """A scheduler and a worker of their own, configured as docs/cluster.md says; the command joins them."""
    page = Path(__file__).parents[3] / "docs" / "cluster.md"
    block = page.read_text().split("```yaml")[1].split("```")[0]
    (scratch / "dask.yaml").write_text(textwrap.dedent(block))
    certificates(scratch, ("scheduler", "worker", "client"))
    trusted = os.environ | {"DASK_CONFIG": str(scratch / "dask.yaml")}
    address = "tls://127.0.0.1:8786"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "tls://127.0.0.1", "--port", "8786"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--host", "tls://127.0.0.1"]
    options = "--label bought --classes no,yes --features x0,x1 --epsilon 1 --delta 1e-6 --json --out model.json"
    fit = [sys.executable, "-m", "dpsco.cli", "fit", str(folder), *options.split(), "--cluster", address]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": scratch}
    closed = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    running = [
        subprocess.Popen([*command, *closed, *more], env=trusted, **quiet)
        for command, more in ((scheduler, ()), (worker, ("--nthreads", "2")))
    ]
    try:
        done = subprocess.run(fit, env=trusted, **quiet)
        found = {"fit": done.returncode, "listening": listening()}
        found["without certificates"] = subprocess.run(fit, **quiet).returncode
        found["parameters"] = len(json.loads((scratch / "model.json").read_text())["parameters"])
        return found
    finally:
        for process in running:
            process.terminate()
            process.wait()


def certificates(folder: Path, names: tuple[str, ...]) -> None:
    """An authority and a certificate for each name, in ``folder``."""
    key = ["openssl", "req", "-newkey", "rsa:2048", "-nodes"]
    own = ["-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca-key.pem", "-out", "ca.pem"]
    run: dict[str, Any] = {"cwd": folder, "check": True, "capture_output": True}
    subprocess.run([*key, *own], **run)
    signed = ["openssl", "x509", "-req", "-days", "2", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial"]
    for name in names:
        subprocess.run([*key, "-subj", f"/CN={name}", "-keyout", f"{name}-key.pem", "-out", f"{name}.csr"], **run)
        subprocess.run([*signed, "-in", f"{name}.csr", "-out", f"{name}.pem"], **run)


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    print(json.dumps(globals()[name](*map(Path, arguments))))
