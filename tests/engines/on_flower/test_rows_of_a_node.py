"""The file of a node in the app without code: no row decides which clients of its node answer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco import DataError
from dpsco.engines.flower import app

ROWS, WIDTH = 12, 3
FEATURES = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
LABELS = np.arange(ROWS) % 2
IDS = np.arange(ROWS) // 2
X = np.full(WIDTH, 0.1)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), WIDTH)
    method = dpsco.AcceleratedSRGD(rounds=2, beta=0.25, clip=1.0)
    budget = dpsco.Budget(1.0, 1e-6, adjacency="add-remove")
    (tmp_path / "plan.json").write_text(dpsco.Plan(problem, 6, budget, method).to_json())
    return tmp_path / "plan.json"


def gradients(plan: Path, **arrays: Any) -> dict[str, Any]:
    """Return the gradients of each client that the node answers for."""
    file = plan.parent / "rows.npz"
    np.savez(file, **{"features": FEATURES, "labels": LABELS, "ids": IDS} | arrays)
    context: Any = SimpleNamespace(run_config={"plan": str(plan)}, node_config={"rows": str(file)})
    return {name: own(X) for name, own in app.clients(context).items()}


def without(row: int, ids: Any, missing: Any, dtype: Any = None) -> Any:
    """Return the column as NumPy makes it, with one cell missing."""
    return np.array([missing if k == row else cell for k, cell in enumerate(ids.tolist())], dtype=dtype)


@pytest.mark.parametrize("ids", [IDS, IDS.astype(np.uint64), IDS.astype(np.int16), IDS + 2**52, -IDS])
def test_a_missing_id_takes_the_id_of_its_row_alone(ids: np.ndarray, plan: Path) -> None:
    """NumPy makes all of them float64 then."""
    whole, odd = gradients(plan, ids=ids), gradients(plan, ids=without(5, ids, np.nan))
    assert len(whole) == 6
    assert list(odd) == list(whole)
    victim = str(ids[5])
    for name in whole:
        expected = whole[name][:1] if name == victim else whole[name]
        np.testing.assert_array_equal(odd[name], expected)


def test_large_numbers_are_no_ids_whatever_their_type(plan: Path) -> None:
    """Beside a missing id they would be floats that several people share."""
    ids = IDS + np.where(IDS < 2, 0, 2**60)
    whole, odd = gradients(plan, ids=ids), gradients(plan, ids=without(9, ids, np.nan))
    assert list(whole) == list(odd) == ["0", "1"]
    assert list(gradients(plan, ids=ids.astype(str))) == [str(k) for k in dict.fromkeys(ids.tolist())]


def test_a_number_with_a_point_is_no_id(plan: Path) -> None:
    assert list(gradients(plan, ids=np.where(np.arange(ROWS) == 4, 0.5, IDS))) == ["0", "1", "2", "3", "4", "5"]
    assert list(gradients(plan, ids=np.where(IDS == 4, np.inf, IDS))) == ["0", "1", "2", "3", "5"]


def test_a_complex_number_is_no_id_and_leaves_the_others_theirs(plan: Path) -> None:
    assert list(gradients(plan, ids=without(4, IDS, 3 + 1j))) == ["0", "1", "2", "3", "4", "5"]
    assert list(gradients(plan, ids=np.where(IDS == 4, 1j, IDS))) == ["0", "1", "2", "3", "5"]


@pytest.mark.parametrize("name", ["ids", "labels"])
def test_python_objects_are_refused_with_the_remedy(name: str, plan: Path) -> None:
    column = {"ids": IDS, "labels": LABELS}[name]
    with pytest.raises(DataError, match="NaN for a missing label"):
        gradients(plan, **{name: without(5, column, None)})
