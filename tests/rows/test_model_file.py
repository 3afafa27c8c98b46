"""The model file: it comes back bit for bit, or it is refused."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

import dpsco
from dpsco.json_files import canonical, write_sealed
from dpsco.rows.file_stream import Labels
from dpsco.rows.public_columns import PublicColumns
from dpsco.run.model_file import SavedModel

COLUMNS = PublicColumns(["a"], ranges={"b": (0, 2)}, categories={"c": ["x", "y"]})


def trained(loss: dpsco.problem.Loss, *, intercept: bool = True, epsilon: float = 1.0) -> dpsco.Result:
    rng = np.random.default_rng(0)
    problem = dpsco.Problem(loss, dpsco.L2Ball(5.0), 4, intercept=intercept)
    clip = 1.0 if math.isfinite(epsilon) else math.inf
    plan = dpsco.Plan(problem, 200, dpsco.Budget(epsilon, 1e-5), dpsco.AcceleratedSRGD(rounds=4, beta=0.5, clip=clip))
    return dpsco.train(plan, dpsco.stream(rng.standard_normal((200, 4)), rng.integers(0, 2, 200)))


def saved(loss=None, **more) -> SavedModel:
    return SavedModel(
        trained(dpsco.Logistic() if loss is None else loss, **more), Labels("y", ("no", "yes")), COLUMNS, 1.5
    )


CASES = {
    "logistic": lambda: saved(),
    "no intercept": lambda: saved(intercept=False),
    "hinge": lambda: saved(dpsco.SmoothedHinge()),
    "softmax": lambda: SavedModel(trained(dpsco.Softmax(3)), Labels("y", ("a", "b", "c")), COLUMNS, 1.0),
    "huber": lambda: SavedModel(trained(dpsco.Huber()), Labels("y", bound=7.0), 4, 1.0),
    "without noise": lambda: saved(epsilon=math.inf),
}


@pytest.mark.parametrize("case", CASES)
def test_it_comes_back_bit_for_bit(case, tmp_path) -> None:
    model = CASES[case]()
    back = SavedModel.read(model.write(tmp_path / "deep" / "model.json"))
    rows = np.random.default_rng(1).standard_normal((50, 4)).astype(np.float32)
    np.testing.assert_array_equal(back.scores(rows), model.scores(rows))
    np.testing.assert_array_equal(back.predict(rows), model.predict(rows))
    assert back.result.plan == model.result.plan
    assert back.result.report == model.result.report
    assert back.result.trace == model.result.trace
    assert (back.labels, back.columns, back.feature_norm) == (model.labels, model.columns, model.feature_norm)
    if case in ("logistic", "softmax"):
        np.testing.assert_allclose(back.probabilities(rows).sum(axis=1), 1.0)
        best = np.array(back.labels.classes)[np.argmax(back.probabilities(rows), axis=1)]
        np.testing.assert_array_equal(best, back.predict(rows))
    elif case in ("hinge", "huber"):
        assert back.probabilities(rows) is None


def test_it_is_plain_json_without_a_secret(tmp_path) -> None:
    path = saved().write(tmp_path / "model.json")
    data = json.loads(path.read_bytes())
    assert data["plan"]["budget"]["epsilon"] == 1.0
    assert data["report"]["private"]
    assert not {"key", "secret", "fingerprints"} & set(data)
    assert path.read_bytes() == canonical(data)


def test_any_flipped_byte_is_refused(tmp_path) -> None:
    path = saved().write(tmp_path / "model.json")
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 150):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(dpsco.CheckpointError, match=r"model\.json"):
            SavedModel.read(path)
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(dpsco.CheckpointError):
            SavedModel.read(path)


DAMAGE = {
    "version": {"format": 4},
    "version of other fields": {"format": 2},
    "short": {"parameters": [0.0]},
    "text": {"parameters": ["0"] * 5},
    "infinite": {"parameters": [1e999] * 5},
    "trace": {"trace": [[0, 1.0]]},
    "norm": {"feature_norm": "1"},
    "long norm": {"feature_norm": 10**400},
    "classes": {"label": {"column": "y", "classes": ["a", "b", "c"], "bound": None}},
    "label": {"label": {"column": "y"}},
    "columns": {"columns": 3},
    "schema": {"columns": {"features": []}},
    "plan": {"plan": {}},
    "report": {"report": {}},
    "table": {"coefficients": {"rows": []}},
    "table of text": {"coefficients": "none"},
    "table without estimates": {
        "coefficients": {"level": 0.95, "loss": "logistic", "notes": [], "why": "x", "rows": [{"name": "a"}] * 5}
    },
    "table with a class in one row": {
        "coefficients": {
            "level": 0.95,
            "loss": "logistic",
            "notes": [],
            "why": "x",
            "rows": [{"name": "a", "estimate": 1.0}] * 4 + [{"name": "a", "estimate": 1.0, "class": "b"}],
        }
    },
    "short table": {"coefficients": {"level": 0.95, "loss": "logistic", "notes": [], "why": "x", "rows": []}},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_with_a_valid_seal_and_wrong_content_is_refused(damage, tmp_path) -> None:
    path = saved().write(tmp_path / "model.json")
    data = json.loads(path.read_bytes())
    del data["check"]
    try:
        write_sealed(path, {**data, **DAMAGE[damage]})
    except ValueError:
        return  # JSON itself has no such number
    with pytest.raises(dpsco.CheckpointError, match="not a model"):
        SavedModel.read(path)


def test_the_table_comes_back_and_a_file_without_one_is_read(tmp_path) -> None:
    model = saved()
    path = model.write(tmp_path / "model.json")
    back = SavedModel.read(path)
    assert back.table == model.table
    assert [row["name"] for row in back.table.rows] == ["a", "b", "c=x", "c=y", "intercept"]
    coef, intercept = COLUMNS.original_units(model.result.model.coef / 1.5, model.result.model.intercept)
    np.testing.assert_allclose([row["estimate"] for row in back.table.rows], [*coef, intercept])
    data = json.loads(path.read_bytes())
    older = {name: value for name, value in data.items() if name not in ("check", "coefficients")}
    write_sealed(path, {**older, "format": 2})
    again = SavedModel.read(path)
    assert again.table == model.table  # the estimates; its reason names what a file does not keep
    assert "survey" in again.table.why


def test_missing_and_extra_fields_are_refused(tmp_path) -> None:
    path = saved().write(tmp_path / "model.json")
    data = json.loads(path.read_bytes())
    del data["check"]
    for changed in ({**data, "extra": 1}, {k: v for k, v in data.items() if k != "trace"}):
        write_sealed(path, changed)
        with pytest.raises(dpsco.CheckpointError):
            SavedModel.read(path)
    with pytest.raises(dpsco.CheckpointError, match="Check the path"):
        SavedModel.read(tmp_path / "none.json")


def test_a_report_of_another_plan_is_refused(tmp_path) -> None:
    """Each report is one that a run made; it is not that of the plan in the file."""
    model = saved()
    plan = model.result.plan

    def report_of(**changes: object) -> dpsco.PrivacyReport:
        rng = np.random.default_rng(0)
        other = dataclasses.replace(plan, **changes)
        ids = range(400) if other.budget.adjacency == "add-remove" else None
        return dpsco.train(other, dpsco.stream(rng.standard_normal((400, 4)), rng.integers(0, 2, 400), ids=ids)).report

    others = {
        "smaller epsilon": report_of(budget=dpsco.Budget(0.5, 1e-5)),
        "smaller delta": report_of(budget=dpsco.Budget(1.0, 1e-7)),
        "more records": report_of(budget=dpsco.Budget(1.0, 1e-5, records=2)),
        "adjacency": report_of(budget=dpsco.Budget(1.0, 1e-5, "add-remove")),
        "more rows": report_of(n=400),
        "method": report_of(method=dpsco.DPFTRL(rounds=4, clip=1.0)),
    }
    path = tmp_path / "model.json"
    for report in others.values():
        dataclasses.replace(model, result=dataclasses.replace(model.result, report=report)).write(path)
        with pytest.raises(dpsco.CheckpointError, match="intact but not a model"):
            SavedModel.read(path)
    weaker = report_of(budget=dpsco.Budget(2.0, 1e-5))  # of a whole that the run is a part of
    dataclasses.replace(model, result=dataclasses.replace(model.result, report=weaker)).write(path)
    assert SavedModel.read(path).result.report == weaker


def test_nesting_of_any_depth_is_refused(tmp_path) -> None:
    """Reading, checking and writing have limits of their own: a depth between two of them is refused too."""
    path = tmp_path / "model.json"
    data = json.loads(saved().write(path).read_text())
    whole = json.dumps({**data, "geometry": "HERE"})
    for depth in (*range(880, 1_010), 2_000, 10_000, 100_000):
        path.write_text(whole.replace('"HERE"', "[" * depth + "]" * depth))
        with pytest.raises(dpsco.CheckpointError, match="damaged"):
            SavedModel.read(path)
