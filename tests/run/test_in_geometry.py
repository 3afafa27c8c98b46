"""A geometry is used again: no rows, no round, no budget; and other methods run in the geometry of a survey."""

from __future__ import annotations

import dataclasses
import pickle
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.engines.dask import layout
from dpsco.engines.flower import LocalNodes, linear_gradients, serve
from dpsco.methods import InGeometry
from dpsco.methods.surveyed import LATER
from dpsco.run import Run, watching
from dpsco.run.train import library_oracle

N, P, KEY = 3_000, 4, bytes(range(32))
SCALES = np.array([1.0, 0.2, 0.05, 0.6])
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(50.0), P, feature_norm=3.0, intercept=True)
BUDGET = dpsco.Budget(2.0, 1e-5)


def rows(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, P)) * SCALES
    return features, (features / SCALES @ [1.0, -1.0, 0.5, 0.0] + rng.logistic(size=n) > 0).astype(float)


@pytest.fixture(scope="module")
def first() -> dpsco.Result:
    plan = dpsco.plan(PROBLEM, n=N, budget=BUDGET, rounds=6, survey="full")
    return dpsco.train(plan, dpsco.stream(*rows(seed=5)), key=KEY)


@pytest.fixture(scope="module")
def shape(first: dpsco.Result) -> dpsco.Geometry:
    """The geometry of a seeded run, which the tests take as public."""
    assert first.geometry is not None
    return dataclasses.replace(first.geometry, source="public rows")


@pytest.fixture(scope="module")
def plan(shape: dpsco.Geometry) -> dpsco.Plan:
    return dpsco.plan(PROBLEM, n=N, budget=BUDGET, rounds=5, geometry=shape)


def test_a_plan_in_a_known_geometry_has_no_survey_and_keeps_its_promise_of_rounds(plan) -> None:
    assert isinstance(plan.method, InGeometry)
    result = dpsco.train(plan, dpsco.stream(*rows()), key=KEY)
    assert result.report.rounds == plan.rounds == len(result.trace) <= 5
    assert result.report.mu == BUDGET.mu
    assert result.report.rows_planned > N - 5
    assert plan.predicted_excess is not None
    assert "known geometry" in plan.explain()
    features, labels = rows(20_000, 9)
    assert np.mean(result.model.predict(features) == labels) > 0.7


def test_plans_and_geometries_are_exact_in_json_and_part_of_the_identity(plan, shape, tmp_path: Path) -> None:
    again = dpsco.Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest() == plan.digest()
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301
    assert dpsco.Geometry.from_dict(shape.to_dict()) == shape
    assert dpsco.Geometry.load(shape.save(tmp_path / "geometry.json")) == shape
    other = dataclasses.replace(shape, sizes=shape.sizes * (1 + 1e-9))
    assert other != shape
    assert dpsco.plan(PROBLEM, n=N, budget=BUDGET, rounds=5, geometry=other).digest() != plan.digest()
    raw = (tmp_path / "geometry.json").read_bytes()
    (tmp_path / "geometry.json").write_bytes(raw.replace(b'"rest"', b'"ruse"'))
    with pytest.raises(dpsco.CheckpointError):
        dpsco.Geometry.load(tmp_path / "geometry.json")
    for broken in (
        {"format": 3},
        {"source": ""},
        {"source": None},
        {"rest": -1.0},
        {"sizes": shape.to_dict()["scale"]},
        {"noise": float("nan")},
    ):
        changed = {**shape.to_dict(), **broken}
        if "sizes" in broken:
            changed["directions"] = changed["scale"]
        with pytest.raises(dpsco.InvalidArgument):
            dpsco.Geometry.from_dict(changed)


def test_a_geometry_prints_scales_and_spectrum(first) -> None:
    text = str(first.geometry)
    assert "size of columns" in text
    assert "spectrum" in text
    assert repr(first.geometry).startswith("Geometry(columns=5, above_noise=")
    seen = first.geometry.column_sizes
    assert seen.shape == (P,)
    np.testing.assert_allclose(seen[[0, 3]], SCALES[[0, 3]], rtol=0.5)


def test_public_rows_give_a_geometry() -> None:
    features, labels = rows(5_000, 7)
    shape = dpsco.public_geometry(features, feature_norm=3.0, intercept=True)
    np.testing.assert_allclose(shape.column_sizes, SCALES, rtol=0.05)
    made = dpsco.plan(PROBLEM, n=N, budget=BUDGET, rounds=5, geometry=shape)
    model = dpsco.train(made, dpsco.stream(*rows()), key=KEY).model
    assert np.mean(model.predict(features) == labels) > 0.7
    with pytest.raises(dpsco.DataError, match="usable"):
        dpsco.public_geometry(np.full((3, 2), np.nan))


def test_a_geometry_that_does_not_fit_is_refused(shape) -> None:
    for problem, why in (
        (dataclasses.replace(PROBLEM, feature_norm=1.0), "feature_norm"),
        (dataclasses.replace(PROBLEM, dimension=P + 1), "columns"),
        (dataclasses.replace(PROBLEM, intercept=False, dimension=P + 1), "intercept"),
        (dataclasses.replace(PROBLEM, domain=dpsco.Simplex()), "domain"),
    ):
        with pytest.raises(dpsco.InvalidArgument, match=why):
            dpsco.plan(problem, n=N, budget=BUDGET, geometry=shape)
    for wrong in ({"survey": "full"}, {"rule": "theorem-2"}, {"mechanism": "tree"}, {"method": "snowball-sgd"}):
        with pytest.raises(dpsco.InvalidArgument):
            dpsco.plan(PROBLEM, n=N, budget=BUDGET, geometry=shape, **wrong)
    with pytest.raises(dpsco.InvalidArgument, match="Geometry"):
        dpsco.plan(PROBLEM, n=N, budget=BUDGET, geometry="last")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "options", "watch"),
    [(np.inf, {}, False), (2.0, {"key": KEY}, False), (2.0, {}, True), (2.0, {}, False)],
)
def test_a_geometry_is_as_private_as_the_run_that_released_it(epsilon: float, options: Any, watch: bool) -> None:
    made = dpsco.plan(PROBLEM, n=N, budget=dpsco.Budget(epsilon, 1e-5), rounds=3, survey="full")
    with watching(lambda *seen: None) if watch else nullcontext():
        result = dpsco.train(made, dpsco.stream(*rows()), **options)
    seen = result.geometry
    assert seen is not None
    again = dpsco.Geometry.from_dict(seen.to_dict())
    assert again.source == seen.source
    assert ("NOT PRIVATE" in str(seen)) != result.report.private
    if result.report.private:
        assert result.report.run_id in str(seen)
        reused = dpsco.Plan.from_json(dpsco.plan(PROBLEM, n=N, budget=BUDGET, rounds=3, geometry=again).to_json())
        report = dpsco.train(reused, dpsco.stream(*rows())).report
        assert any("geometry" in line and result.report.run_id in line for line in report.assumptions)
        assert "except: the geometry is that of an earlier run" in report.headline
    else:
        with pytest.raises(dpsco.InvalidArgument, match="not private"):
            dpsco.plan(PROBLEM, n=N, budget=BUDGET, rounds=3, geometry=again)
        free = dpsco.plan(PROBLEM, n=N, budget=dpsco.Budget(np.inf, 1e-5), rounds=3, geometry=again)
        with pytest.raises(dpsco.InvalidArgument, match="not private"):
            dataclasses.replace(free, budget=BUDGET)


def test_rows_that_are_called_public_are_an_assumption_of_the_report(plan: dpsco.Plan) -> None:
    report = dpsco.train(plan, dpsco.stream(*rows())).report
    assert any("geometry is public" in line and "public rows" in line for line in report.assumptions)
    assert "except" not in report.headline


def observed(plan: dpsco.Plan, data: tuple[np.ndarray, np.ndarray], frozen: Any = None) -> tuple[Any, ...]:
    sums, released, queries = [], [], []

    def observer(query: Any, clipped: Any, value: Any) -> None:
        sums.append(clipped.total.copy())
        released.append(value.value)
        queries.append(query.digest())

    with watching(observer, replay=frozen):
        result = dpsco.train(plan, dpsco.stream(*data, non_finite="zero"), key=KEY)
    report = dataclasses.replace(result.report, run_id="", reason="")
    return sums, released, (report, queries, result.model.coef.tobytes(), result.trace)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("method", LATER)
def test_one_row_moves_one_sum_by_no_more_than_the_noise_covers(shape, method: str, adjacency: str) -> None:
    budget = dpsco.Budget(2.0, 1e-5, adjacency)
    plan = dpsco.plan(PROBLEM, n=N, budget=budget, rounds=5, geometry=shape, method=method)
    features, labels = rows()
    base = observed(plan, (features, labels))
    difference = Fraction(plan.schedule.most_noise.difference)
    for place in (3, 1_400, N - 1):
        for odd, label in (([9.0, -9.0, 9.0, 1.0], 1.0), ([1e149] * 4, 0.0), ([np.nan] * 4, 1.0)):
            zeroed, changed, targets = features.copy(), features.copy(), labels.copy()
            zeroed[place], changed[place], targets[place] = np.nan, odd, label
            one = base if adjacency == "replace" else observed(plan, (zeroed, labels), base[1])
            two = observed(plan, (changed, targets), base[1])
            assert one[2] == two[2]
            moved = [(a, b) for a, b in zip(one[0], two[0], strict=True) if np.any(a != b)]
            assert len(moved) <= 1
            for a, b in moved:
                square = sum((Fraction(float(x)) - Fraction(float(y))) ** 2 for x, y in zip(a, b, strict=True))
                assert square <= difference**2


@pytest.mark.parametrize("method", LATER)
def test_every_method_runs_behind_a_survey_within_the_rounds_promised(method: str) -> None:
    plan = dpsco.plan(PROBLEM, n=N, budget=BUDGET, rounds=6, survey="full", method=method)
    assert plan.rounds == 6
    result = dpsco.train(plan, dpsco.stream(*rows()), key=KEY)
    assert len(result.trace) == result.report.rounds <= 6
    features, labels = rows(20_000, 9)
    assert np.mean(result.model.predict(features) == labels) > 0.65
    assert dpsco.Plan.from_json(plan.to_json()) == plan


def test_pushes_checkpoints_clusters_and_federations_give_the_model_of_one_process(plan, tmp_path, monkeypatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tests.engines.on_dask.test_surveyed import Here

    from dpsco.engines.dask import ParquetRows
    from dpsco.engines.dask import train as on_cluster
    from dpsco.rows.file_stream import FileRows, Labels

    features, labels = rows()
    whole = dpsco.train(plan, dpsco.stream(features, labels), key=KEY).model.coef
    run = Run(plan, oracle=library_oracle(plan), key=KEY)
    for i in range(0, N, 77):
        run.push(features[i : i + 77], labels[i : i + 77])
    np.testing.assert_array_equal(run.model.coef, whole)

    def stop(seen: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dpsco.train(plan, dpsco.stream(features, labels), key=KEY, checkpoint=tmp_path / "c", on_round=stop)
    again = dpsco.train(plan, dpsco.stream(features, labels), key=KEY, checkpoint=tmp_path / "c", resume=True)
    np.testing.assert_array_equal(again.model.coef, whole)

    table = {f"x{j}": features[:, j] for j in range(P)} | {"y": np.where(labels > 0, "yes", "no")}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet", row_group_size=700)
    columns = dpsco.PublicColumns([f"x{j}" for j in range(P)])
    monkeypatch.setattr(layout, "SHARD_BYTES", 20_000)
    form = (tmp_path / "rows.parquet", Labels("y", ("no", "yes")), columns)
    alone = dpsco.train(plan, dpsco.stream(FileRows(*form, feature_norm=3.0)), key=KEY)
    spread = on_cluster(plan, ParquetRows(*form, feature_norm=3.0), Here(), key=KEY)
    np.testing.assert_array_equal(spread.model.coef, alone.model.coef)

    by_id = dataclasses.replace(plan, budget=dpsco.Budget(2.0, 1e-5, "add-remove"))
    names = [f"d{i}" for i in range(N)]
    here = dpsco.train(by_id, dpsco.stream(features, labels, ids=names), key=KEY)
    nodes = LocalNodes([{name: linear_gradients(PROBLEM, features[i], labels[i]) for i, name in enumerate(names)}])
    np.testing.assert_array_equal(serve(by_id, nodes, key=KEY).model.coef, here.model.coef)


def test_a_start_of_the_problem_s_own_parameters_is_kept(plan) -> None:
    start = np.array([0.5, -1.0, 2.0, 0.1, -0.3])
    run = Run(plan, oracle=library_oracle(plan), start=start, key=KEY)
    np.testing.assert_allclose([*run.model.coef, run.model.intercept], start, rtol=1e-9)


def test_an_estimator_and_a_model_file_keep_the_geometry(tmp_path: Path) -> None:
    from dpsco.rows.file_stream import Labels
    from dpsco.run.model_file import SavedModel

    features, labels = rows(6_000)
    options: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "feature_norm": 3.0, "classes": [0, 1], "rounds": 6}
    one = dpsco.PrivateLogisticRegression(**options, survey="full").fit(features, labels)
    assert one.geometry_.feature_norm == 3.0
    two = dpsco.PrivateLogisticRegression(**options, geometry=one.geometry_).fit(features, labels)
    assert isinstance(two.plan_.method, InGeometry)
    assert two.score(features, labels) > 0.7
    with pytest.raises(dpsco.InvalidArgument, match="feature_norm"):
        dpsco.PrivateLogisticRegression(**{**options, "feature_norm": 2.0}, geometry=one.geometry_).fit(
            features, labels
        )
    plan = dpsco.plan(PROBLEM, n=N, budget=BUDGET, rounds=6, survey="full")
    result = dpsco.train(plan, dpsco.stream(*rows()), key=KEY)
    path = SavedModel(result, Labels("y", ("0", "1")), P, 3.0).write(tmp_path / "model.json")
    assert SavedModel.read(path).result.geometry == result.geometry
