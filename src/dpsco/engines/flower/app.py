"""Flower apps that need no code: ``dpsco.engines.flower.app:server`` and ``dpsco.engines.flower.app:client``.

Run configuration (``flwr run --run-config``), for both:

    plan         file: ``Plan.to_json()``, what everybody agreed on
    roster       file: JSON of client -> round, in place of the hash
of the server:
    model        file to write: the model with its plan and report, as ``dpsco predict`` and ``dpsco report`` read it
    unit         "client" (default) or "example"
    nodes        nodes to wait for before round 0 (default 1)
    timeout      seconds that a round waits for answers (default 600)
    checkpoint   folder that survives a killed server; a run begun there goes on
    account      file of an ``Account`` to charge before the first release
    attendance   file to write: counts of every round as JSON, NOT PRIVATE, readable by its owner
    key          64 hexadecimal digits that fix the noise, for research: the report then says "not private"

Node configuration of a client (``flower-supernode --node-config``), which goes before the run's:

    rows         .npz file with ``features`` (rows, dimension) and ``labels`` (rows,); with ``ids`` (rows,), the client
                 each row belongs to, if the node hosts several: text, or whole numbers below 2^53. A row without an id
                 counts for nobody. "{partition-id}" in the name is the node's, in simulations
    client       id of the node's only client, where the file has no ids
    plan, roster where they are on this machine
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsco.accounting.account import Account
from dpsco.engines.flower.assignment import Assignment, Hashed, Roster
from dpsco.engines.flower.client import Gradients
from dpsco.engines.flower.linear_gradients import linear_gradients
from dpsco.engines.flower.server import Attendance, serve
from dpsco.engines.flower.transport import FlowerNodes, client_app, flwr
from dpsco.errors import DataError, InvalidArgument
from dpsco.json_files import canonical, check_writable, write_atomic
from dpsco.planning.plan import Plan
from dpsco.problem import Loss
from dpsco.rows.cells import id_text
from dpsco.rows.containers import column_texts
from dpsco.rows.file_stream import Labels
from dpsco.rows.outputs import check_apart
from dpsco.run.model_file import SavedModel

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

    client: ClientApp
    server: ServerApp

__all__ = ["client", "server"]


@cache
def __getattr__(name: str) -> Any:
    """Make an app when Flower asks for it: this module loads without Flower."""
    if name == "client":
        return client_app(clients, assignment=lambda context: _assignment(_of_node(context)))
    if name == "server":
        app = flwr("serverapp").ServerApp()
        app.main()(main)
        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main(grid: Grid, context: Context) -> None:
    """Wait for nodes, train, write the model. The operator's log shows the counts of every round, NOT PRIVATE."""
    config = context.run_config
    model = _path(config, "model")
    counts = _path(config, "attendance") if config.get("attendance") else None
    checkpoint = Path(str(config["checkpoint"])) if config.get("checkpoint") else None
    given = {name: Path(str(config[name])) for name in ("plan", "roster", "account") if config.get(name)}
    check_apart({"model": model, "attendance": counts}, given, checkpoint=checkpoint)
    for path in (model, *([counts] if counts else []), *([checkpoint / "federation.json"] if checkpoint else [])):
        check_writable(path, str(path))
    key, account = _key(config), Account(given["account"]) if "account" in given else None
    attendance = Attendance(on_round=_log)
    plan, nodes = _plan(config), FlowerNodes(grid, float(config.get("timeout", 600.0)))
    nodes.wait(int(config.get("nodes", 1)), nodes.timeout)
    try:
        result = serve(
            plan,
            nodes,
            unit=str(config.get("unit", "client")),
            assignment=_assignment(config),
            checkpoint=checkpoint,
            resume=checkpoint is not None and (checkpoint / "federation.json").exists(),
            key=key,
            account=account,
            attendance=attendance,
            on_round=lambda done: print(f"dpsco: round {done.step + 1} of {plan.rounds} released", flush=True),  # noqa: T201
        )
    finally:
        if counts is not None:
            write_atomic(counts, canonical({"NOT PRIVATE": attendance.rounds}), mode=0o600)
    labels = _labels(plan.problem.loss)
    SavedModel(result, labels, plan.problem.dimension, plan.problem.feature_norm).write(model)


def _log(step: int, seen: Counter[str]) -> None:
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(seen.items())) or "nobody answered"
    print(f"dpsco: NOT PRIVATE, for the operator: round {step + 1}: {counts}", flush=True)  # noqa: T201


def clients(context: Context) -> Mapping[str, Gradients]:
    """Return the clients of a node, from the file that its configuration names."""
    config = _of_node(context)
    problem = _plan(config).problem
    try:
        with np.load(_path(config, "rows"), allow_pickle=False) as file:
            rows = {name: file[name] for name in file.files}
        features, labels = rows["features"], rows["labels"]
        ids: Any = rows["ids"] if "ids" in rows else [str(config["client"])]
    except (OSError, ValueError, KeyError):
        raise DataError(
            "Expected the node's rows= to be an .npz file of arrays 'features' and 'labels', with 'ids' in it or "
            "client= in the node's configuration. Arrays of Python objects or of times are not read: NumPy makes them "
            "where a cell is None or a time. Write an empty text or NaN for a missing id, and NaN for a missing label."
        ) from None
    names, of_row = column_texts(_own_ids(ids), of="id")
    if "ids" not in rows:  # the node has its client also without a row: no row decides whether it answers
        of_row = np.repeat(of_row, len(labels))
    groups = np.split(np.argsort(of_row, kind="stable"), np.cumsum(np.bincount(of_row, minlength=len(names)))[:-1])
    return {
        name: linear_gradients(problem, features[rows], labels[rows])
        for name, rows in zip(names, groups, strict=True)
        if name
    }


def _own_ids(ids: Any) -> Any:
    """Return ids of which no row decides about another's.

    A missing id makes whole numbers float64, in which those from 2^53 on are no longer told apart. Refused by type, as
    elsewhere before a run begins, it would leave all others of its node out of a run that goes on. So numbers are read
    one by one, and large ones are no ids in any type.
    """
    if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iufc":
        return ids
    return [id_text(complex(number)) for number in ids.tolist()]


def _of_node(context: Context) -> Mapping[str, Any]:
    return {**context.run_config, **context.node_config}


def _labels(loss: Loss) -> Labels:
    """Return what a score of the model file means: targets as they are, or classes 0, 1, ..."""
    if not loss.class_count:
        return Labels("label", bound=1.0)
    return Labels("label", classes=tuple(map(str, range(loss.class_count))))


def _assignment(config: Mapping[str, Any]) -> Assignment:
    if not config.get("roster"):
        return Hashed()
    return Roster(json.loads(_path(config, "roster").read_text(encoding="utf-8")))


def _key(config: Mapping[str, Any]) -> bytes | None:
    try:
        return bytes.fromhex(str(config["key"])) if config.get("key") else None
    except ValueError:
        raise InvalidArgument("Expected key= to be 64 hexadecimal digits.") from None


def _plan(config: Mapping[str, Any]) -> Plan:
    return Plan.from_json(_path(config, "plan").read_text(encoding="utf-8"))


def _path(config: Mapping[str, Any], name: str) -> Path:
    if not config.get(name):
        raise InvalidArgument(f"Expected {name}= in the configuration: it names a file.")
    return Path(str(config[name]).replace("{partition-id}", str(config.get("partition-id", ""))))
