"""Surveys of more columns than a matrix is made for: sparse rows, a size per column, one budget for both stages."""

from __future__ import annotations

import dataclasses
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.run.test_surveyed import KEY, Seen, exact_distance_squared

import dpsco
from dpsco.audit import audit
from dpsco.clipping.diagonal_map import DiagonalMap
from dpsco.methods import InGeometry, Surveyed
from dpsco.planning.federation_costs import device_costs
from dpsco.rows.csr import CsrRows
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.run import Run, watching
from dpsco.run.train import library_oracle

N, WIDTH, SURVEYED = 3000, 2100, 600
BUDGET = dpsco.Budget(2.0, 1e-5)
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(50.0), WIDTH, intercept=True)
METHOD = Surveyed(rounds=4, rows=SURVEYED, kind="diagonal")
PLAN = dpsco.Plan(PROBLEM, N, BUDGET, METHOD)
BOXED = dataclasses.replace(PROBLEM, domain=dpsco.Box(-3.0, 3.0))
PLANS = {
    "zero-out": PLAN,
    "replace": dataclasses.replace(PLAN, budget=dpsco.Budget(2.0, 1e-5, "replace")),
    "box": dataclasses.replace(PLAN, problem=BOXED),
    "softmax": dataclasses.replace(PLAN, problem=dataclasses.replace(PROBLEM, loss=dpsco.Softmax(3))),
    "no intercept": dataclasses.replace(PLAN, problem=dataclasses.replace(PROBLEM, intercept=False)),
}


def words(n: int = N, width: int = WIDTH, seed: int = 0, stored: int = 20) -> tuple[csr_array, np.ndarray]:
    """Rows like texts: columns of falling frequency, values of norm 1."""
    rng, world = np.random.default_rng(seed), np.random.default_rng(99)
    edges = np.cumsum(1 / np.arange(1.0, width + 1))
    column = np.searchsorted(edges / edges[-1], rng.random((n, stored)))
    row = np.repeat(np.arange(n), stored)
    place, times = np.unique(row * width + column.ravel(), return_counts=True)
    row, column = place // width, place % width
    values = times / np.sqrt(np.bincount(row, times.astype(float) ** 2))[row]
    ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    rows = csr_array((values, column, ends), shape=(n, width))
    scores = 4 * (rows @ world.standard_normal(width))
    return rows, (scores + rng.logistic(size=n) > 0).astype(float)


def with_row(rows: csr_array, place: int, values: list[float], columns: list[int]) -> CsrRows:
    lo, hi = rows.indptr[place], rows.indptr[place + 1]
    data = np.concatenate([rows.data[:lo], values, rows.data[hi:]])
    indices = np.concatenate([rows.indices[:lo], np.array(columns, dtype=np.int64), rows.indices[hi:]])
    ends = rows.indptr.astype(np.int64)
    ends[place + 1 :] += len(values) - (hi - lo)
    return CsrRows(data, indices.astype(np.int64), ends, rows.shape[1])


ODD_ROWS = {
    "ordinary": ([3.0, -1.0], [1, 7]),
    "huge": ([1e149, -1e149], [1, 2000]),
    "nan": ([np.nan, 1.0], [1, 7]),
    "one place twice": ([0.9, 0.9], [7, 7]),
    "columns that fall": ([0.9, 0.9], [2000, 7]),
    "empty": ([], []),
}


def observe(plan: dpsco.Plan, rows: object, labels: np.ndarray, frozen: Seen | None = None) -> Seen:
    seen = Seen()
    scipy = rows.to_scipy() if isinstance(rows, CsrRows) else rows
    with watching(seen, replay=None if frozen is None else frozen.released):
        result = dpsco.train(plan, dpsco.stream(scipy, labels, non_finite="zero"), key=KEY)
    report = dataclasses.replace(result.report, run_id="", reason="")
    seen.shown = (report, result.trace, result.counts, result.model.coef.tobytes(), result.health)
    return seen


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("position", [7, SURVEYED + 40])
def test_one_sparse_row_moves_one_sum_of_one_stage_by_no_more_than_the_noise_covers(name: str, position: int) -> None:
    plan = PLANS[name]
    rows, labels = words()
    first = observe(plan, rows, labels)
    later = Run(plan, oracle=library_oracle(plan), key=KEY)
    later._enter_second_stage(first.released[0])
    covered = [plan.schedule.calibration.at(0), *([later._stage.schedule.most_noise] * (len(first.sums) - 1))]
    gone = observe(plan, with_row(rows, position, [np.nan], [0]), labels, first)
    base = first if plan.budget.adjacency == "replace" else gone
    farthest = 0.0
    for values, columns in ODD_ROWS.values():
        other = observe(plan, with_row(rows, position, values, columns), labels, first)
        assert other.queries == base.queries
        assert other.shown == base.shown
        moved = [t for t, (a, b) in enumerate(zip(base.sums, other.sums, strict=True)) if np.any(a != b)]
        assert len(moved) <= 1
        for t in moved:
            assert (t == 0) == (position < SURVEYED)
            square = exact_distance_squared(base.sums[t], other.sums[t])
            assert square <= Fraction(covered[t].difference) ** 2
            farthest = max(farthest, float(square) ** 0.5 / covered[t].difference)
    assert farthest > 0.2


def test_a_sparse_row_that_is_there_or_not_moves_one_sum_of_one_stage() -> None:
    plan = dataclasses.replace(PLAN, budget=dpsco.Budget(2.0, 1e-5, "add-remove"))
    rows, labels = words()
    ids = np.arange(N)

    def without(gone: list[int], frozen: Seen | None = None) -> Seen:
        seen, keep = Seen(), np.setdiff1d(ids, gone)
        with watching(seen, replay=None if frozen is None else frozen.released):
            dpsco.train(plan, dpsco.stream(rows[keep], labels[keep], ids=keep, non_finite="zero"), key=KEY)
        return seen

    first = without([])
    later = Run(plan, oracle=library_oracle(plan), key=KEY)
    later._enter_second_stage(first.released[0])
    covered = [plan.schedule.calibration.at(0), *([later._stage.schedule.most_noise] * (len(first.sums) - 1))]
    stages = set()
    for gone in (0, 5, 17, 600, 1200, 2999):
        other = without([gone], first)
        assert other.queries == first.queries
        moved = [t for t, (a, b) in enumerate(zip(first.sums, other.sums, strict=True)) if np.any(a != b)]
        assert len(moved) <= 1
        for t in moved:
            assert exact_distance_squared(first.sums[t], other.sums[t]) <= Fraction(covered[t].difference) ** 2
            stages.add(t > 0)
    assert stages == {False, True}


def test_the_rounds_behind_the_survey_scale_columns_by_their_sizes() -> None:
    rows, labels = words(20_000)
    plan = dpsco.plan(PROBLEM, n=20_000, budget=dpsco.Budget(8.0, 1e-5), survey="diagonal", rounds=6)
    run = Run(plan, oracle=library_oracle(plan), key=KEY)
    run.push(rows, labels)
    assert run.complete
    row_map, shape = run.second.map, run.geometry
    assert isinstance(row_map, DiagonalMap)
    assert shape.axes
    assert shape.p == WIDTH + 1
    sizes = np.asarray(rows.multiply(rows).mean(axis=0)).ravel()
    np.testing.assert_allclose(shape.column_sizes[:5] ** 2, sizes[:5], rtol=0.2)
    assert np.all(np.diff(row_map.scales[[0, 1, 3, 10]]) > 0)  # frequent words have small scales
    assert 3 < shape.above_noise < 500
    assert shape.sizes[:-1].sum() == pytest.approx(1.0, rel=0.3)  # noise has been taken off, column by column


def test_a_wide_survey_learns_more_than_the_plain_plan() -> None:
    (rows, labels), (fresh, truth) = words(40_000), words(20_000, seed=1)

    def loss(**options: object) -> float:
        plan = dpsco.plan(PROBLEM, n=40_000, budget=BUDGET, rounds=8, **options)  # type: ignore[arg-type]
        model = dpsco.train(plan, dpsco.stream(rows, labels), key=KEY).model
        scores = fresh @ model.coef + model.intercept
        return float(np.mean(np.logaddexp(0.0, scores) - truth * scores))

    surveyed, plain = loss(survey="diagonal"), loss(survey="none")
    assert surveyed < plain - 0.005


def test_memory_is_that_of_columns_and_not_of_their_square() -> None:
    width = 30_000
    rows, labels = words(6000, width)
    problem = dataclasses.replace(PROBLEM, dimension=width)
    plan = dpsco.Plan(problem, 6000, BUDGET, dataclasses.replace(METHOD, rounds=3))
    tracemalloc.start()
    dpsco.train(plan, dpsco.stream(rows, labels), key=KEY)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400 * 8 * width  # a row of the square matrix per column would take 30,000


def test_pushes_and_chunks_give_the_bits_of_arrays() -> None:
    rows, labels = words()
    whole = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY).model.coef
    run = Run(PLAN, oracle=library_oracle(PLAN), key=KEY)
    for i in range(0, N, 700):
        run.push(rows[i : i + 700], labels[i : i + 700])
    np.testing.assert_array_equal(run.model.coef, whole)
    chunks = ((rows[i : i + 700], labels[i : i + 700]) for i in range(0, N, 700))
    np.testing.assert_array_equal(dpsco.train(PLAN, dpsco.stream(chunks, sparse=True), key=KEY).model.coef, whole)


def test_a_file_of_sparse_rows_is_surveyed_like_its_rows(tmp_path: Path) -> None:
    rows, labels = words()
    path = tmp_path / "rows.libsvm"
    with path.open("w", encoding="utf-8") as file:
        for k, label in enumerate(labels.astype(int).tolist()):
            part = slice(rows.indptr[k], rows.indptr[k + 1])
            pairs = zip(rows.indices[part].tolist(), rows.data[part].tolist(), strict=True)
            file.write(" ".join([str(label), *(f"{j + 1}:{value!r}" for j, value in pairs)]) + "\n")
    read = FileRows(path, Labels("label", ("0", "1")), WIDTH)
    found = dpsco.train(PLAN, dpsco.stream(read), key=KEY)
    whole = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY)
    assert found.geometry is not None
    assert whole.geometry is not None
    assert found.geometry.axes
    np.testing.assert_allclose(found.geometry.sizes, whole.geometry.sizes, rtol=1e-3, atol=1e-9)  # read as float32
    assert found.report.rounds == whole.report.rounds


def test_a_checkpoint_goes_on_behind_a_wide_survey(tmp_path: Path) -> None:
    rows, labels = words()
    whole = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY).model.coef

    class Stop(Exception):
        pass

    def stop(seen: object) -> None:
        if seen.step == 1:  # type: ignore[attr-defined]
            raise Stop

    with pytest.raises(Stop):
        dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY, checkpoint=tmp_path / "run", on_round=stop)
    again = dpsco.train(PLAN, dpsco.stream(rows, labels), key=KEY, checkpoint=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(again.model.coef, whole)


def test_a_wide_geometry_is_saved_printed_and_used_again(tmp_path: Path) -> None:
    rows, labels = words()
    result = dpsco.train(PLAN, dpsco.stream(rows, labels))
    shape = result.geometry
    assert shape is not None
    loaded = dpsco.Geometry.load(shape.save(tmp_path / "geometry.json"))
    assert loaded == shape
    assert loaded.axes
    assert "columns" in str(loaded)
    again = dpsco.plan(PROBLEM, n=N, budget=BUDGET, rounds=4, geometry=loaded)
    assert isinstance(again.method, InGeometry)
    assert isinstance(again.method.map, DiagonalMap)
    assert dpsco.Plan.from_json(again.to_json()) == again
    second = dpsco.train(again, dpsco.stream(rows, labels))
    assert second.report.private
    public = dpsco.public_geometry(rows, intercept=True)
    assert public.axes
    np.testing.assert_allclose(public.sizes[:-1], np.asarray(rows.multiply(rows).mean(axis=0)).ravel(), rtol=1e-9)
    np.testing.assert_allclose(public.mean[:-1], np.asarray(rows.mean(axis=0)).ravel(), rtol=1e-9)
    dense = dpsco.public_geometry(rows.toarray(), intercept=True)
    np.testing.assert_allclose(dense.sizes, public.sizes, rtol=1e-9)
    planned = dpsco.plan(PROBLEM, n=N, budget=BUDGET, geometry=public)
    assert isinstance(planned.method.map, DiagonalMap)


def test_what_a_wide_survey_does_not_allow_is_refused_before_the_first_row() -> None:
    for kind in ("full", "intervals"):
        with pytest.raises(dpsco.InvalidArgument, match="survey='diagonal'"):
            dpsco.plan(PROBLEM, n=N, budget=BUDGET, survey=kind)
    with pytest.raises(dpsco.InvalidArgument, match="columns"):
        dpsco.plan(PROBLEM, n=N, budget=BUDGET, survey="diagonal", method="objective-perturbation")
    with pytest.raises(dpsco.InvalidArgument, match="columns"):
        dpsco.plan(dataclasses.replace(PROBLEM, dimension=1 << 25), n=N, budget=BUDGET, survey="diagonal")
    rows, labels = words()
    result = dpsco.train(PLAN, dpsco.stream(rows, labels))
    with pytest.raises(dpsco.IntervalError, match="correlations"):
        result.standard_errors()


def test_a_release_that_shows_nothing_usable_gives_the_plain_plan_on_sparse_rows() -> None:
    run = Run(PLAN, oracle=library_oracle(PLAN), key=KEY)
    run._enter_second_stage(np.full(PLAN.schedule.sum_length, np.nan))
    row_map = run.second.map
    assert isinstance(row_map, DiagonalMap)
    assert np.all(row_map.scales == 1.0)


def test_an_audit_of_a_wide_survey_passes() -> None:
    small = dataclasses.replace(METHOD, rounds=2, rows=40)
    report = audit(dpsco.Plan(PROBLEM, 90, dpsco.Budget(8.0, 1e-5), small), seed=0, seconds=20.0)
    assert report.passed, str(report)
    assert {check.name: check.outcome for check in report.checks}["clip"] == "passed"


def test_a_device_of_a_wide_federation_downloads_one_number_per_column() -> None:
    survey, later = device_costs(PLAN)[:2]
    assert survey.bytes_up < 20 * WIDTH
    assert later.bytes_down < 40 * WIDTH
