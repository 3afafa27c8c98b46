"""Run on D, replay on D' with the released outputs frozen: what reaches release moves by no more than was declared.

A replay gives the algorithm the very values that the run on D released, so both runs ask the same queries, as in
the proof of adaptive composition. Control flow, warnings, queries, report and error types must be the same too.
"""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpsco import (
    AcceleratedSRGD,
    Budget,
    CustomLoss,
    Huber,
    L2Ball,
    Logistic,
    PerExample,
    Plan,
    Problem,
    SmoothedHinge,
    Softmax,
    Squared,
    Stream,
    stream,
    train,
)
from dpsco.clipping import Oracle
from dpsco.query import Clipped, Query, Released
from dpsco.run import watching

N, P, T = 1200, 4, 3  # 400 rows per round: a whole block of 256 and a short one
Rows = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass
class Run:
    """Everything a run shows, and what it handed to release."""

    sums: list[np.ndarray] = dataclasses.field(default_factory=list)
    queries: list[bytes] = dataclasses.field(default_factory=list)
    released: list[np.ndarray] = dataclasses.field(default_factory=list)
    warned: list[str] = dataclasses.field(default_factory=list)
    error: type[BaseException] | None = None
    report: Any = None
    trace: Any = None
    model: Any = None

    def __call__(self, query: Query, clipped: Clipped, released: Released) -> None:
        self.queries.append(query.digest())
        self.sums.append(clipped.total.copy())
        self.released.append(released.value)


def observe(
    plan: Plan, rows: Callable[[], Stream], frozen: Run | None = None, oracle: Oracle | None = None, start: Any = None
) -> Run:
    """Train; with ``frozen`` the released values are those of that run."""
    run, replay = Run(), None if frozen is None else frozen.released
    with watching(run, replay=replay), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = train(plan, rows(), oracle=oracle, start=start)
            report = dataclasses.asdict(result.report)
            report.pop("run_id")
            run.report, run.trace, run.model = report, result.trace, result.model.coef.tobytes()
        except Exception as error:
            run.error = type(error)
    run.warned = sorted(str(warning.message) for warning in caught)
    return run


def assert_indistinguishable_but_for_the_noise(plan: Plan, one: Run, other: Run, *, rounds_apart: int = 1) -> float:
    """The largest distance of the sums, as a share of what was declared."""
    assert one.error is other.error is None
    assert one.warned == other.warned == []
    assert one.queries == other.queries
    assert one.report == other.report
    assert one.trace == other.trace
    assert one.model == other.model
    distances = [float(np.linalg.norm(a - b)) for a, b in zip(one.sums, other.sums, strict=True)]
    assert sum(d > 0 for d in distances) <= rounds_apart
    assert max(distances) <= plan.schedule.calibration.difference
    return max(distances) / plan.schedule.calibration.difference


LOSSES = [Logistic(), Squared(label_bound=1e9), Huber(width=0.5), SmoothedHinge(), Softmax(classes=3)]


def plan_for(loss: Any, adjacency: str, *, clip: float = 0.3, n: int = N) -> Plan:
    problem = Problem(loss, L2Ball(5.0), P)
    return Plan(
        problem=problem,
        n=n,
        budget=Budget(1.0, 1e-6, adjacency),
        method=AcceleratedSRGD(rounds=T, beta=0.25, clip=clip),
    )


def data(seed: int = 0, n: int = N) -> Rows:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, P)) * np.exp(rng.normal(size=(n, 1))), rng.integers(0, 2, n).astype(float)


ODD_ROWS: dict[str, tuple[list[float], float]] = {
    "zero": ([0.0] * P, 0.0),
    "ordinary": ([3.0, -1.0, 2.0, 0.5], 1.0),
    "huge": ([1e149, -1e149, 0.0, 0.0], 1.0),
    "beyond huge": ([1e308, 1e308, -1e308, 1.0], 0.0),
    "subnormal": ([5e-324, 1e-310, 0.0, 0.0], 1.0),
    "small": ([1e-160, 1e-200, 0.0, 0.0], 1.0),
    "mixed": ([1e140, 1e-140, 1.0, -1.0], 0.0),
    "nan": ([np.nan, 0.0, 0.0, 1.0], 1.0),
    "inf": ([np.inf, -np.inf, 0.0, 0.0], 0.0),
    "label nan": ([1.0, 1.0, 1.0, 1.0], np.nan),
    "label inf": ([1.0, 1.0, 1.0, 1.0], -np.inf),
    "label unknown": ([1.0, 1.0, 1.0, 1.0], 77.0),
    "label huge": ([1.0, 1.0, 1.0, 1.0], 1e300),
}
PLACES = [0, 255, 256, 399, 400, 777, N - 1]


def with_row(rows: Rows, place: int, name: str) -> Rows:
    features, labels = rows[0].copy(), rows[1].copy()
    features[place], labels[place] = ODD_ROWS[name]
    return features, labels


def as_arrays(rows: Rows) -> Callable[[], Stream]:
    return lambda: stream(*rows, non_finite="zero")


def as_chunks(rows: Rows) -> Callable[[], Stream]:
    """Chunks of uneven sizes, empty ones among them."""
    edges = [0, 1, 1, 300, 301, 700, 1100, len(rows[1])]
    return lambda: stream((rows[0][a:b], rows[1][a:b]) for a, b in itertools.pairwise(edges))


def as_single_rows(rows: Rows) -> Callable[[], Stream]:
    return lambda: stream(zip(rows[0], rows[1], strict=True), items="rows")


STREAMS = {"arrays": as_arrays, "chunks": as_chunks, "single rows": as_single_rows}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_one_row_zeroed_or_replaced_moves_the_sums_by_at_most_the_declared_difference(loss: Any, kind: str) -> None:
    """Every odd row takes the place of an ordinary one (replace), or of a zero row (zero-out), at edges of blocks."""
    make = STREAMS[kind]
    replace, zero_out = plan_for(loss, "replace"), plan_for(loss, "zero-out")
    rng = np.random.default_rng(1)
    base = data()
    reference = observe(replace, make(base))
    largest = 0.0
    for name in ODD_ROWS:
        place = int(rng.choice(PLACES))
        changed = observe(replace, make(with_row(base, place, name)), reference)
        largest = max(largest, assert_indistinguishable_but_for_the_noise(replace, reference, changed))
        zeroed = observe(zero_out, make(with_row(base, place, "zero")))
        full = observe(zero_out, make(with_row(base, place, name)), zeroed)
        largest = max(largest, assert_indistinguishable_but_for_the_noise(zero_out, zeroed, full))
    assert largest > 0.5  # the bound is not vacuous: some row comes near it


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_opposite_rows_come_close_to_twice_the_clip_under_replace(loss: Any) -> None:
    """The factor 2 is needed: a row and its mirror image differ by almost 2 C, and never by more than declared."""
    plan = plan_for(loss, "replace", clip=0.01)
    base = data(2)
    pairs = [with_row(base, 5, "ordinary"), with_row(base, 5, "ordinary")]
    pairs[1][0][5] *= -1.0
    if loss.kind in ("squared", "huber"):
        for pair in pairs:
            pair[1][5] = 50.0
    one = observe(plan, as_arrays(pairs[0]))
    other = observe(plan, as_arrays(pairs[1]), one)
    assert assert_indistinguishable_but_for_the_noise(plan, one, other) > 0.95
    assert max(np.linalg.norm(a - b) for a, b in zip(one.sums, other.sums, strict=True)) > 1.9 * plan.clip


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_a_row_deleted_and_the_whole_data_set_streamed_again_moves_one_round_only(loss: Any) -> None:
    """Add-remove with ids: the other rows stay in their rounds, and their contributions stay the same bit for bit."""
    plan = plan_for(loss, "add-remove")
    base, ids = data(3), [f"person {k}" for k in range(N)]
    rng = np.random.default_rng(4)
    for name in ODD_ROWS:
        place = int(rng.choice(PLACES))
        features, labels = with_row(base, place, name)
        with_it = observe(plan, lambda: stream(features, labels, ids=ids, non_finite="zero"))  # noqa: B023
        fewer = [np.delete(values, place, axis=0) for values in (features, labels)]
        left = ids[:place] + ids[place + 1 :]
        without = observe(plan, lambda: stream(*fewer, ids=left, non_finite="zero"), with_it)  # noqa: B023
        assert_indistinguishable_but_for_the_noise(plan, with_it, without)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace", "add-remove"])
def test_an_intercept_is_covered_by_the_same_clip(adjacency: str) -> None:
    """Zero-out with an intercept: a row that does not count (NaN) is the zero row, a row of zeros is not."""
    problem = Problem(Logistic(), L2Ball(5.0), P, intercept=True)
    plan = Plan(
        problem=problem, n=N, budget=Budget(1.0, 1e-6, adjacency), method=AcceleratedSRGD(rounds=T, beta=0.25, clip=0.3)
    )
    base, ids = data(18), list(range(N))
    for name in ODD_ROWS:
        rows = with_row(base, 256, name)
        if adjacency == "add-remove":
            fewer = tuple(np.delete(values, 256, axis=0) for values in rows)
            makes = [
                lambda rows=rows: stream(*rows, ids=ids, non_finite="zero"),
                lambda rows=fewer: stream(*rows, ids=ids[:256] + ids[257:], non_finite="zero"),
            ]
        else:
            makes = [as_arrays(rows), as_arrays(with_row(base, 256, "nan" if adjacency == "zero-out" else "ordinary"))]
        one = observe(plan, makes[0])
        assert_indistinguishable_but_for_the_noise(plan, one, observe(plan, makes[1], one))


def test_order_of_rows_does_not_matter_under_add_remove() -> None:
    """Neighbours are sets of rows: any order of them gives the same sums, bit for bit."""
    plan = plan_for(Logistic(), "add-remove")
    features, labels = data(5)
    ids = np.arange(N)
    shuffled = np.random.default_rng(6).permutation(N)
    one = observe(plan, lambda: stream(features, labels, ids=ids))
    other = observe(plan, lambda: stream(features[shuffled], labels[shuffled], ids=ids[shuffled]), one)
    assert_indistinguishable_but_for_the_noise(plan, one, other, rounds_apart=0)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_the_existence_of_the_first_row_changes_nothing_visible_under_add_remove(rows: int) -> None:
    plan = plan_for(Logistic(), "add-remove")
    features, labels = data(8, rows)
    more = [np.concatenate([values, np.ones((1, *values.shape[1:]))]) for values in (features, labels)]
    one = observe(plan, lambda: stream(features, labels, ids=list(range(rows))))
    other = observe(plan, lambda: stream(*more, ids=list(range(rows + 1))), one)
    assert_indistinguishable_but_for_the_noise(plan, one, other)


def test_ids_are_refused_where_a_swapped_row_would_move_to_another_round() -> None:
    """Under replace a row brings its id along; two rounds change and, with blocks by position, all their rounding."""
    features, labels = data()
    for adjacency in ("replace", "zero-out"):
        run = observe(plan_for(Logistic(), adjacency), lambda: stream(features, labels, ids=range(N)))
        assert run.error is not None
        assert run.sums == []


def test_positions_are_refused_under_add_remove() -> None:
    """Deleting one row would shift every later batch."""
    features, labels = data()
    for make in STREAMS.values():
        run = observe(plan_for(Logistic(), "add-remove"), make((features, labels)))
        assert run.error is not None
        assert run.sums == []


DEGENERATE: dict[str, Callable[[], Rows]] = {
    "duplicate rows": lambda: (np.tile(data(9, 1)[0], (N, 1)), np.ones(N)),
    "one class only": lambda: (data(10)[0], np.zeros(N)),
    "all rows zero": lambda: (np.zeros((N, P)), np.zeros(N)),
    "all rows nan": lambda: (np.full((N, P), np.nan), np.full(N, np.nan)),
    "short last batch": lambda: data(11, N - 150),
    "last batch empty": lambda: data(12, 2 * N // T),
    "one row in all": lambda: data(13, 1),
    "rows left over": lambda: data(14, N + 500),
}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data_sets_and_their_neighbours_look_alike(name: str, kind: str) -> None:
    base, make = DEGENERATE[name](), STREAMS[kind]
    plan = plan_for(Logistic(), "replace")
    reference = observe(plan, make(base))
    for place in (0, len(base[1]) - 1):
        for odd in ("nan", "ordinary", "label unknown", "subnormal"):
            changed = observe(plan, make(with_row(base, place, odd)), reference)
            assert_indistinguishable_but_for_the_noise(plan, reference, changed)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace", "add-remove"])
def test_a_gradient_function_of_the_users_is_covered_too(adjacency: str) -> None:
    """PerExample with a discontinuous, unbounded, sometimes non-finite function: privacy rests on the clip alone."""

    def gradient(x: np.ndarray, features: np.ndarray, label: float) -> np.ndarray:
        return np.sign(features) * 10.0 ** (3 * label) + x / features[0]

    problem = Problem(CustomLoss(), L2Ball(5.0), P)
    plan = Plan(
        problem=problem,
        n=300,
        budget=Budget(1.0, 1e-6, adjacency),
        method=AcceleratedSRGD(rounds=T, beta=1.0, clip=0.3),
    )
    base = data(15, 300)
    oracle = PerExample(gradient)
    for name in ODD_ROWS:
        place = 7
        rows = with_row(base, place, name)
        if adjacency == "add-remove":
            other_rows = tuple(np.delete(values, place, axis=0) for values in rows)
            ids = list(range(300))
            makes = [
                lambda rows=rows, ids=ids: stream(*rows, ids=ids, non_finite="zero"),
                lambda rows=other_rows, ids=ids: stream(*rows, ids=ids[:7] + ids[8:], non_finite="zero"),
            ]
        else:
            makes = [
                as_arrays(rows),
                as_arrays(with_row(base, place, "nan" if adjacency == "zero-out" else "ordinary")),
            ]
        one = observe(plan, makes[0], oracle=oracle)
        other = observe(plan, makes[1], one, oracle=oracle)
        assert_indistinguishable_but_for_the_noise(plan, one, other)


def test_numpy_error_settings_of_the_caller_do_not_make_a_row_visible() -> None:
    """np.seterr(all="raise") is common; a row must not decide whether it fires."""
    plan = plan_for(Softmax(classes=3), "replace")
    base = data(16)
    with np.errstate(all="raise"):
        reference = observe(plan, as_arrays(base))
        for name in ODD_ROWS:
            changed = observe(plan, as_arrays(with_row(base, 3, name)), reference)
            assert_indistinguishable_but_for_the_noise(plan, reference, changed)


def test_wide_and_narrow_number_types_make_no_row_visible() -> None:
    """float16, float32 with a signalling NaN, long double beyond float64, integers at their limits."""
    plan = plan_for(Squared(label_bound=2.0), "replace")
    odd: dict[Any, Any] = {
        np.float16: np.float16(65504),
        np.float32: np.array([0x7F800001], dtype=np.uint32).view(np.float32)[0],
        np.longdouble: np.longdouble("1e4000"),
        np.int64: np.iinfo(np.int64).min,
        np.uint8: 255,
    }
    for kind, value in odd.items():
        features, labels = np.round(data(17)[0]).clip(0, 9).astype(kind), data(17)[1].astype(kind)
        other, other_labels = features.copy(), labels.copy()
        other[300], other_labels[300] = value, value
        one = observe(plan, as_arrays((features, labels)))
        changed = observe(plan, as_arrays((other, other_labels)), one)
        assert_indistinguishable_but_for_the_noise(plan, one, changed)
