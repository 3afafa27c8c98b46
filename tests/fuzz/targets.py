"""What is fuzzed: every reader of a file of ours or of a user's. Only errors of dpsco may come out.

A sealed file is tried twice: as bytes (the seal must catch everything), and as JSON that is sealed anew, so that the
fuzzer gets past the checksum to the code that reads the content.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dpsco
from dpsco.accounting.account import Account
from dpsco.errors import DpscoError
from dpsco.json_files import canonical, write_sealed
from dpsco.pages.guarantee_in_words import guarantee_in_words
from dpsco.release.ledger import open_folder
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns
from dpsco.run.model_file import SavedModel
from dpsco.run.report import PrivacyReport

LARGEST = 20_000  # a plan may ask for as many rounds as its author likes; the fuzzer has less time


@dataclass(frozen=True)
class Target:
    """``read(data, folder)`` reads; ``seeds`` are valid inputs; ``structured`` inputs are JSON."""

    read: Callable[[bytes, Path], object]
    seeds: Callable[[], list[bytes]]
    structured: bool = False


def attempt(name: str, data: bytes, folder: Path) -> bool:
    """Whether the input was taken; False if it was refused as it should be, and any other error goes through."""
    try:
        TARGETS[name].read(data, folder)
    except DpscoError:
        return False
    return True


# --- models, plans, reports, accounts ----------------------------------------------------------------


def _result() -> dpsco.Result:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(2.0), 2, intercept=True)
    plan = dpsco.Plan(problem, 40, dpsco.Budget(1.0, 1e-5), dpsco.AcceleratedSRGD(rounds=2, beta=1.0, clip=1.5))
    return dpsco.train(plan, dpsco.stream(np.ones((40, 2)), np.ones(40)))


def _model_bytes() -> bytes:
    import tempfile

    columns = PublicColumns(["a"], ranges={"a": (0, 1)}, hashed={"b": 1})
    with tempfile.TemporaryDirectory() as folder:
        saved = SavedModel(_result(), Labels("y", ("0", "1")), columns, 1.0)
        return saved.write(Path(folder) / "model.json").read_bytes()


def _read_model(data: bytes, folder: Path) -> object:
    path = folder / "model.json"
    path.write_bytes(data)
    saved = SavedModel.read(path)
    shown = str(saved.result.report), saved.result.plan.explain(), guarantee_in_words(saved.result.report)
    shown = *shown, str(saved.table)
    return saved.predict(np.zeros((1, saved.result.plan.problem.dimension))), shown


def _read_resealed_model(data: bytes, folder: Path) -> object:
    payload = _json(data)
    plan = payload.get("plan")
    if isinstance(plan, dict):
        _small(plan)
    payload.pop("check", None)
    write_sealed(folder / "sealed.json", payload)
    return _read_model((folder / "sealed.json").read_bytes(), folder)


def _read_plan(data: bytes, folder: Path) -> object:
    text = data.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        _small(found)
    plan = dpsco.Plan.from_json(text)
    return plan.explain(), plan.digest(), dpsco.Plan.from_json(plan.to_json()) == plan


def _read_report(data: bytes, folder: Path) -> object:
    report = PrivacyReport.from_json(data.decode("utf-8", "replace"))
    return str(report), report.to_markdown(), report.to_json()


def _read_account(data: bytes, folder: Path) -> object:
    payload = _json(data)
    payload.pop("check", None)
    path = folder / "account.json"
    write_sealed(path, payload)
    account = Account(path, limit=dpsco.Budget(3.0, 1e-6))
    return account.mu, account.epsilon, account.runs


def _account() -> bytes:
    limit = {"adjacency": "zero-out", "records": 1, "epsilon": 3.0, "delta": 1e-6}
    return canonical({"format": 2, **limit, "runs": [{"id": "a", "mu": 0.2, "log_float_loss": -50.0}]})


# --- checkpoints ---------------------------------------------------------------------------------------


_KEY = bytes(range(32))


def _checkpoint() -> list[bytes]:
    """A folder of three files, one after the other, each with its length before it."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_folder(folder, {"plan": "x"}, "d" * 64, 2, 3, _KEY, resume=False) as ledger:
            ledger.record(0, bytes(32))
            ledger.store(0, np.ones(2))
        parts = [(folder / part).read_bytes() for part in ("run.json", "secret.json", "released.bin")]
    return [b"".join(len(part).to_bytes(4, "little") + part for part in parts)]


def _read_checkpoint(data: bytes, folder: Path) -> object:
    place = folder / "run"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name in ("run.json", "secret.json", "released.bin"):
        size = int.from_bytes(data[:4], "little")
        part, data = data[4 : 4 + size], data[4 + size :]
        if name == "released.bin":
            (place / name).write_bytes(part)
            continue
        try:  # sealed anew where it can be
            payload = _json(part)
            payload.pop("check", None)
            write_sealed(place / name, payload)
        except DpscoError:
            (place / name).write_bytes(part)
    with open_folder(place, {"plan": "x"}, "d" * 64, 2, 3, _KEY, resume=True) as ledger:
        return [ledger.value(step) for step in range(3)], ledger.complete


# --- users' files ----------------------------------------------------------------------------------------


def _read_rows(name: str, columns: Any) -> Callable[[bytes, Path], object]:
    def read(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        if isinstance(columns, int):
            return [x.shape for x, _ in FileRows(path, Labels("y", ("0", "1")), columns)]
        from dpsco.rows.file_stream import open_source

        source: Any = open_source(path)
        return source.count(), [x.shape for x, _ in FileRows(path, Labels("y", ("0", "1")), columns)]

    return read


def _npz() -> list[bytes]:
    found = []
    for dtype in (np.float64, np.float16, np.int8):
        buffer = io.BytesIO()
        np.savez(buffer, X=np.ones((3, 2), dtype=dtype), y=np.array([0, 1, 1]))
        found.append(buffer.getvalue())
    buffer = io.BytesIO()
    np.savez_compressed(buffer, X=np.ones((3, 2)), y=np.array(["0", "1", "x"]))
    return [*found, buffer.getvalue()]


_CSV = [
    b"a,b,y\n1,x,0\n2,y,1\n",
    b'"a","b, c",y,a2\r\n1,"q""x",1\r\n',
    b"\xef\xbb\xbfa,b,y\n1e-3, x ,1\n\n.5,,0",
    b'a,b,"y"\n',
]


def _json(data: bytes) -> dict[str, Any]:
    try:
        payload = json.loads(data)
        json.dumps(payload, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise DpscoError from None
    if not isinstance(payload, dict):
        raise DpscoError
    return payload


def _small(plan: dict[str, Any]) -> None:
    def size(value: Any) -> float:
        return abs(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0

    problem = plan.get("problem")
    numbers = [plan.get("rounds"), problem.get("dimension") if isinstance(problem, dict) else 0]
    loss = problem.get("loss") if isinstance(problem, dict) else None
    numbers += list(loss.values()) if isinstance(loss, dict) else []
    if any(size(number) > LARGEST for number in numbers) or (
        plan.get("mechanism") in ("dense", "workload", "auto", "blt") and size(plan.get("rounds")) > 64
    ):
        raise DpscoError


_TABLE = PublicColumns(["a"], categories={"b": ["x", "y"]})

TARGETS = {
    "model": Target(_read_model, lambda: [_model_bytes()]),
    "model, sealed anew": Target(_read_resealed_model, lambda: [_model_bytes()], structured=True),
    "plan": Target(_read_plan, lambda: [_result().plan.to_json().encode()], structured=True),
    "report": Target(_read_report, lambda: [_result().report.to_json().encode()], structured=True),
    "account, sealed anew": Target(_read_account, lambda: [_account()], structured=True),
    "checkpoint": Target(_read_checkpoint, _checkpoint),
    "libsvm": Target(_read_rows("rows.svm", 3), lambda: [b"1 1:0.5 3:2\n0 2:1e-3\n", b"0\n1 1:1 1:2\n"]),
    "npz": Target(_read_rows("rows.npz", 2), _npz),
    "csv": Target(_read_rows("rows.csv", _TABLE), lambda: _CSV),
    "tsv": Target(_read_rows("rows.tsv", _TABLE), lambda: [text.replace(b",", b"\t") for text in _CSV]),
}
