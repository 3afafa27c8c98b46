"""Properties, for whatever hypothesis comes up with: clipping, plans, streams, checkpoints."""

from __future__ import annotations

import itertools
import math
import pickle
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dpsco
from dpsco.clipping.bound import clip_scale, row_norms
from dpsco.query import Batch, Query

ANY = st.floats(width=64, allow_nan=True, allow_infinity=True)
BOUNDED = st.floats(min_value=-1e3, max_value=1e3)
CLIPS = st.floats(min_value=1e-100, max_value=1e100)


@settings(max_examples=100)
@given(arrays(np.float64, (3, 5), elements=ANY), CLIPS)
def test_a_clipped_row_is_never_longer_than_the_clip(rows: np.ndarray, clip: float) -> None:
    """In exact arithmetic, for rows of any float64 at all."""
    norms = row_norms(rows)
    usable = norms <= 1e150
    rows[~usable], norms[~usable] = 0.0, 0.0
    factor, _ = clip_scale(norms, clip, rows.shape[1])
    for row, scale in zip(rows, factor, strict=True):
        exact = sum((Fraction(v) * Fraction(scale)) ** 2 for v in row.tolist())
        assert exact <= Fraction(clip) ** 2 or float(np.max(np.abs(row))) < 1e-280


@settings(max_examples=60)
@given(arrays(np.float64, (4, 3), elements=ANY), arrays(np.float64, 4, elements=ANY), st.integers(1, 50))
def test_whatever_a_gradient_function_returns_a_row_moves_the_sum_by_at_most_the_clip(rows, values, t) -> None:
    oracle = dpsco.PerExample(lambda x, features, label: features * label + x)
    query = Query(t, (np.ones(3), -np.ones(3)), (t + 1.0, -float(t)), 0.5, 10, 2.0**-20)
    whole = oracle.answer(query, Batch(t, [(rows, values)])).total
    without = oracle.answer(query, Batch(t, [(rows[1:], values[1:])])).total
    assert np.linalg.norm(whole - without) <= 0.5 + math.sqrt(3) * 2.0**-20 + 1e-12


@st.composite
def plans(draw: st.DrawFn) -> dpsco.Plan:
    losses = [dpsco.Logistic(), dpsco.Huber(0.5), dpsco.SmoothedHinge(), dpsco.Softmax(3), dpsco.CustomLoss()]
    problem = dpsco.Problem(
        draw(st.sampled_from(losses)), dpsco.L2Ball(draw(st.floats(0.1, 100))), draw(st.integers(1, 9)),
        intercept=draw(st.booleans()),
    )  # fmt: skip
    adjacency = draw(st.sampled_from(["zero-out", "replace", "add-remove"]))
    budget = dpsco.Budget(draw(st.floats(0.05, 10)), draw(st.floats(1e-9, 1e-2)), adjacency, draw(st.integers(1, 4)))
    rounds = draw(st.integers(1, 12))
    mechanism = draw(st.sampled_from(["sqrt", "tree", "independent", "honaker"]))
    method = dpsco.AcceleratedSRGD(
        rounds=rounds, beta=draw(st.floats(1e-3, 10)), clip=draw(st.floats(1e-3, 1e3)), mechanism=mechanism
    )
    return dpsco.Plan(problem, rounds * draw(st.integers(1, 99)), budget, method)


@settings(max_examples=60)
@given(plans())
def test_a_plan_survives_json_and_pickle_and_its_noise_pays_for_its_promise(plan: dpsco.Plan) -> None:
    for copy in (dpsco.Plan.from_json(plan.to_json()), pickle.loads(pickle.dumps(plan))):  # noqa: S301
        assert copy == plan
        assert copy.digest() == plan.digest()
        assert copy.schedule.calibration == plan.schedule.calibration
    noise = plan.schedule.calibration
    mu = plan.schedule.mechanism.sensitivity * noise.difference / noise.sigma
    assert mu <= plan.budget.mu / plan.budget.records
    assert noise.difference >= plan.budget.clips_apart * plan.clip


def test_a_pickled_plan_holds_its_fields_and_no_noise() -> None:
    """What is calibrated is made anew by whoever reads the pickle: an old sigma must not travel."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), 3)
    plan = dpsco.Plan(problem, 90, dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=3, beta=1.0, clip=1.0))
    assert plan.schedule.calibration.sigma > 0
    state = plan.__getstate__()
    assert "schedule" not in state
    assert b"Calibration" not in pickle.dumps(plan)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 40), max_size=12).filter(any), st.integers(1, 7), st.integers(1, 20))
def test_rows_reach_their_round_once_and_in_order_however_they_are_cut(pieces, rounds, size) -> None:
    problem = dpsco.Problem(dpsco.CustomLoss(), dpsco.L2Ball(1.0), 1)
    plan = dpsco.Plan(
        problem,
        rounds * size,
        dpsco.Budget(math.inf, 1e-6),
        dpsco.AcceleratedSRGD(rounds=rounds, beta=1.0, clip=math.inf),
    )
    rows = np.arange(sum(pieces), dtype=float)[:, None]
    edges = np.cumsum([0, *pieces])
    chunks = [(rows[a:b], np.zeros(b - a)) for a, b in itertools.pairwise(edges)]
    seen = []
    stream = dpsco.stream(iter(chunks))
    for batch in stream.open(plan.layout):
        found = [x[:, 0] for x, _ in batch.chunks]
        seen.append(np.concatenate(found) if found else np.zeros(0))
    assert len(seen) == rounds
    for t, batch in enumerate(seen):
        assert np.array_equal(batch, np.arange(t * size, min((t + 1) * size, len(rows))).clip(0))


class Stop(Exception):
    pass


@settings(max_examples=12)
@given(st.integers(1, 6), st.data())
def test_a_run_stopped_anywhere_and_resumed_is_the_undisturbed_one(rounds: int, data: st.DataObject) -> None:
    stops = data.draw(st.lists(st.integers(0, rounds - 1), max_size=3))
    name = data.draw(st.sampled_from(["sqrt", "tree", "independent"]))
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 2)
    plan = dpsco.Plan(
        problem,
        rounds * 5,
        dpsco.Budget(1.0, 1e-6),
        dpsco.AcceleratedSRGD(rounds=rounds, beta=1.0, clip=1.0, mechanism=name),
    )
    rows = np.random.default_rng(0).standard_normal((rounds * 5, 2))

    def run(stop: int | None = None, **how: object) -> bytes:
        def strike(at: dpsco.Round) -> None:
            if at.step == stop:
                raise Stop

        stream = dpsco.stream(rows, (rows[:, 0] > 0).astype(float))
        return dpsco.train(plan, stream, key=bytes(32), on_round=strike, **how).model.coef.tobytes()  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as folder:
        for stop in stops:
            with pytest.raises(Stop):
                run(stop, checkpoint=Path(folder) / "run", resume=True)
        assert run(checkpoint=Path(folder) / "run", resume=True) == run()


def test_a_secret_is_written_beside_a_planted_link_and_never_through_it(tmp_path) -> None:
    """secret.json replaced by a link to somebody's file: the next write replaces the link, not the file behind it."""
    from dpsco.json_files import write_sealed

    victim = tmp_path / "victim"
    victim.write_text("mine")
    for planted in ("secret.json", "secret.json.new"):
        (tmp_path / planted).symlink_to(victim)
        write_sealed(tmp_path / "secret.json", {"key": "00"}, mode=0o600)
        assert victim.read_text() == "mine"
        assert not (tmp_path / "secret.json").is_symlink()
        assert (tmp_path / "secret.json").stat().st_mode & 0o777 == 0o600
        (tmp_path / "secret.json").unlink()
