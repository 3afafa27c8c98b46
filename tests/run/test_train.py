"""The loop: what it promises, what it refuses, how it goes on after a stop."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pickle
import stat
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import dpsco
from dpsco.datasets import reference_problem
from dpsco.query import Batch, chunk_multiple
from dpsco.run import Run, watching

N, P, T = 2_000, 5, 8
PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=P)
BUDGET = dpsco.Budget(2.0, 1e-5)
PLAN = dpsco.Plan(PROBLEM, N, BUDGET, dpsco.AcceleratedSRGD(rounds=T, beta=0.2, clip=1.0))
KEY = bytes(range(32))


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    data = reference_problem(N, P, fresh=10)
    return data.features, data.labels


def test_a_run_gives_model_report_and_trace(rows) -> None:
    result = dpsco.train(PLAN, dpsco.stream(*rows))
    assert result.model.coef.shape == (P,)
    assert np.linalg.norm(result.model.coef) <= 4.0 + 1e-12
    assert set(np.unique(result.model.predict(rows[0]))) <= {0, 1}
    assert result.report.private
    assert (result.report.epsilon, result.report.mu) == (2.0, BUDGET.mu)
    assert [r.step for r in result.trace] == list(range(T))


def test_the_same_key_gives_the_same_model_and_no_key_another_one_each_time(rows) -> None:
    seeded = [dpsco.train(PLAN, dpsco.stream(*rows), key=KEY) for _ in range(2)]
    fresh = [dpsco.train(PLAN, dpsco.stream(*rows)).model.coef for _ in range(2)]
    assert np.array_equal(seeded[0].model.coef, seeded[1].model.coef)
    assert not np.array_equal(fresh[0], fresh[1])
    assert not seeded[0].report.private
    assert "NOT PRIVATE" in str(seeded[0].report)


def test_numpys_global_state_is_neither_read_nor_written(rows) -> None:
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = dpsco.train(PLAN, dpsco.stream(*rows)).model.coef
    np.random.seed(1)  # noqa: NPY002
    second = dpsco.train(PLAN, dpsco.stream(*rows)).model.coef
    assert not np.array_equal(first, second)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_softmax_returns_a_row_of_coefficients_for_each_class() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((300, 4)), rng.integers(0, 3, 300)
    problem = dpsco.Problem(dpsco.Softmax(3), dpsco.L2Ball(5.0), dimension=4)
    result = dpsco.train(
        dpsco.Plan(problem, 300, BUDGET, dpsco.AcceleratedSRGD(rounds=4, beta=0.5, clip=1.5)), dpsco.stream(x, y)
    )
    assert result.model.coef.shape == (3, 4)
    assert set(np.unique(result.model.predict(x))) <= {0, 1, 2}


def test_any_gradient_function_trains_and_equals_the_built_in_loss(rows) -> None:
    def gradient(x, a, y):
        return (1 / (1 + math.exp(-(a @ x))) - y) * a

    builtin = dpsco.train(PLAN, dpsco.stream(*rows), key=KEY)
    own = dpsco.train(PLAN, dpsco.stream(*rows), key=KEY, oracle=dpsco.PerExample(gradient))
    np.testing.assert_allclose(own.model.coef, builtin.model.coef, atol=1e-4)  # grids may round apart
    custom = dataclasses.replace(PLAN, problem=dataclasses.replace(PROBLEM, loss=dpsco.CustomLoss(1.0, 0.25)))
    dpsco.train(custom, dpsco.stream(*rows), oracle=dpsco.PerExample(gradient))
    with pytest.raises(dpsco.InvalidArgument, match="oracle"):
        dpsco.train(custom, dpsco.stream(*rows))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"start": [1.0]}, "start"),
        ({"start": [math.nan] * P}, "start"),
        ({"key": b"short"}, "32 bytes"),
        ({"key": 7}, "32 bytes"),
        ({"resume": True}, "checkpoint"),
    ],
)
def test_bad_arguments_are_refused_by_name_before_the_stream_is_used(rows, arguments, says) -> None:
    stream = dpsco.stream(*rows)
    with pytest.raises(dpsco.InvalidArgument, match=says):
        dpsco.train(PLAN, stream, **arguments)
    dpsco.train(PLAN, stream)


def test_arrays_are_not_a_stream(rows) -> None:
    with pytest.raises(dpsco.InvalidArgument, match="stream"):
        dpsco.train(PLAN, rows)  # type: ignore[arg-type]


def test_rows_not_finite_midstream_count_as_zero_and_are_tallied_privately(rows) -> None:
    features, labels = rows[0].copy(), rows[1].astype(float)
    features[3, 2], features[700, 0], labels[900] = math.nan, math.inf, 17.0
    chunks = ((features[i : i + 100], labels[i : i + 100]) for i in range(0, N, 100))
    private = dpsco.Diagnostics()
    spoiled = dpsco.train(PLAN, dpsco.stream(chunks), key=KEY, diagnostics=private)
    zeroed, kept = rows[0].copy(), rows[1]
    zeroed[[3, 700, 900]] = 0.0
    clean = dpsco.train(PLAN, dpsco.stream(zeroed, kept), key=KEY)
    assert np.array_equal(spoiled.model.coef, clean.model.coef)
    assert sum(private.zeroed_rows) == 3
    assert sum(private.rows) == N
    assert "not private" in repr(private)
    assert dataclasses.replace(spoiled.report, run_id="", rows_unread=0) == dataclasses.replace(clean.report, run_id="")


def test_missing_rows_keep_the_denominator_and_surplus_rows_are_never_read(rows) -> None:
    features, labels = rows
    short = dpsco.train(PLAN, dpsco.stream(features[:1500], labels[:1500]), key=KEY)
    padded = np.vstack([features[:1500], np.zeros((500, P))])
    full = dpsco.train(PLAN, dpsco.stream(padded, labels), key=KEY)
    assert np.array_equal(short.model.coef, full.model.coef)
    assert short.report.rows_missing == 500

    def endless():
        for i in range(0, N, 250):
            yield features[i : i + 250], labels[i : i + 250]
        raise AssertionError("a surplus chunk was read")

    assert dpsco.train(PLAN, dpsco.stream(endless())).report.rows_missing == 0
    more = dpsco.train(PLAN, dpsco.stream(np.vstack([features] * 2), np.hstack([labels] * 2)), key=KEY)
    assert more.report.rows_unread == N
    assert np.array_equal(more.model.coef, dpsco.train(PLAN, dpsco.stream(features, labels), key=KEY).model.coef)


def test_chunk_sizes_do_not_change_the_model(rows) -> None:
    features, labels = rows
    models = []
    for size in (1, 7, 100, 1999, N):
        chunks = ((features[i : i + size], labels[i : i + size]) for i in range(0, N, size))
        models.append(dpsco.train(PLAN, dpsco.stream(chunks), key=KEY).model.coef)
    models.append(dpsco.train(PLAN, dpsco.stream(features, labels), key=KEY).model.coef)
    singles = ((row, label) for row, label in zip(features, labels, strict=True))
    models.append(dpsco.train(PLAN, dpsco.stream(singles, items="rows"), key=KEY).model.coef)
    assert all(np.array_equal(models[0], model) for model in models)


# --- checkpoints --------------------------------------------------------------------------------


class Stopped(Exception):
    pass


def stop_after(step: int):
    def on_round(done: dpsco.Round) -> None:
        if done.step == step:
            raise Stopped

    return on_round


@pytest.mark.parametrize("stop", [0, 3, T - 1])
def test_resuming_gives_the_same_model_bit_for_bit(rows, tmp_path, stop) -> None:
    expected = dpsco.train(PLAN, dpsco.stream(*rows), key=KEY).model.coef
    with pytest.raises(Stopped):
        dpsco.train(PLAN, dpsco.stream(*rows), key=KEY, checkpoint=tmp_path, on_round=stop_after(stop))
    again = dpsco.train(PLAN, dpsco.stream(*rows), key=KEY, checkpoint=tmp_path, resume=True)
    assert np.array_equal(again.model.coef, expected)
    once_more = dpsco.train(PLAN, dpsco.stream(*rows), key=KEY, checkpoint=tmp_path, resume=True)
    assert np.array_equal(once_more.model.coef, expected)


def test_an_adaptive_plan_resumes_bit_for_bit_and_its_beta_follows_released_values(rows, tmp_path) -> None:
    method = dataclasses.replace(PLAN.method, beta=2.0, adaptive=True, clip=math.inf)
    plan = dataclasses.replace(PLAN, method=method, budget=dpsco.Budget(math.inf, 1e-3))
    expected = dpsco.train(plan, dpsco.stream(*rows), key=KEY).model.coef
    plain = dataclasses.replace(plan, method=dataclasses.replace(method, adaptive=False))
    fixed = dpsco.train(plain, dpsco.stream(*rows), key=KEY).model.coef
    assert np.linalg.norm(expected) > 1.5 * np.linalg.norm(fixed)  # beta fell, so the steps grew
    with pytest.raises(Stopped):
        dpsco.train(plan, dpsco.stream(*rows), key=KEY, checkpoint=tmp_path, on_round=stop_after(3))
    again = dpsco.train(plan, dpsco.stream(*rows), key=KEY, checkpoint=tmp_path, resume=True).model.coef
    assert np.array_equal(again, expected)


def test_a_checkpoint_is_not_overwritten_and_refuses_another_run(rows, tmp_path) -> None:
    with pytest.raises(Stopped):
        dpsco.train(PLAN, dpsco.stream(*rows), checkpoint=tmp_path, on_round=stop_after(2))
    with pytest.raises(dpsco.CheckpointError, match="resume=True"):
        dpsco.train(PLAN, dpsco.stream(*rows), checkpoint=tmp_path)
    other = dataclasses.replace(PLAN, method=dataclasses.replace(PLAN.method, beta=0.3))
    with pytest.raises(dpsco.CheckpointError, match="another run"):
        dpsco.train(other, dpsco.stream(*rows), checkpoint=tmp_path, resume=True)
    with pytest.raises(dpsco.CheckpointError, match="another run"):
        dpsco.train(PLAN, dpsco.stream(*rows), start=np.ones(P), checkpoint=tmp_path, resume=True)
    with pytest.raises(dpsco.CheckpointError, match="another run"):
        dpsco.train(PLAN, dpsco.stream(*rows), key=KEY, checkpoint=tmp_path, resume=True)
    dpsco.train(PLAN, dpsco.stream(*rows), checkpoint=tmp_path, resume=True)


def test_a_resumed_run_refuses_other_rows_for_rounds_it_has_released(rows, tmp_path) -> None:
    """Re-shuffled rows would put some of them into two rounds under one budget."""
    with pytest.raises(Stopped):
        dpsco.train(PLAN, dpsco.stream(*rows), checkpoint=tmp_path, on_round=stop_after(2))
    with pytest.raises(dpsco.LedgerError, match="other rows"):
        dpsco.train(PLAN, dpsco.stream(rows[0][::-1], rows[1][::-1]), checkpoint=tmp_path, resume=True)
    dpsco.train(PLAN, dpsco.stream(*rows), checkpoint=tmp_path, resume=True)


def test_a_gradient_function_cannot_write_into_the_state(rows) -> None:
    def in_place(x, a, y):
        x += a
        return a

    with pytest.raises(ValueError, match="read-only"):
        dpsco.train(PLAN, dpsco.stream(*rows), oracle=dpsco.PerExample(in_place))


def test_the_report_says_what_rests_on_the_callers_oracle(rows) -> None:
    own = dpsco.train(PLAN, dpsco.stream(*rows), oracle=dpsco.PerExample(lambda x, a, y: a)).report
    assert any("oracle" in line for line in own.assumptions)
    assert not any("oracle" in line for line in dpsco.train(PLAN, dpsco.stream(*rows)).report.assumptions)


def test_the_secret_is_its_owners_and_its_key_is_gone_after_the_last_round(rows, tmp_path) -> None:
    with pytest.raises(Stopped):
        dpsco.train(PLAN, dpsco.stream(*rows), checkpoint=tmp_path, on_round=stop_after(2))
    secret = tmp_path / "secret.json"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    key = json.loads(secret.read_text())["key"]
    assert len(bytes.fromhex(key)) == 32
    assert key not in (tmp_path / "run.json").read_text()
    result = dpsco.train(PLAN, dpsco.stream(*rows), checkpoint=tmp_path, resume=True)
    everything = b"".join(p.read_bytes() for p in tmp_path.iterdir() if p.is_file())
    assert key.encode() not in everything
    assert bytes.fromhex(key) not in everything
    assert bytes.fromhex(key) not in pickle.dumps(result)
    assert key not in result.report.to_json()


def test_an_account_is_charged_once_for_a_run_that_is_resumed(rows, tmp_path) -> None:
    account = dpsco.Account.create(tmp_path / "people.json", limit=dpsco.Budget(3.0, 1e-5))
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        dpsco.train(PLAN, dpsco.stream(*rows), checkpoint=folder, account=account, on_round=stop_after(2))
    assert account.epsilon == pytest.approx(2.0, rel=1e-9)
    dpsco.train(PLAN, dpsco.stream(*rows), checkpoint=folder, resume=True, account=account)
    assert account.epsilon == pytest.approx(2.0, rel=1e-9)
    dpsco.train(PLAN, dpsco.stream(*rows), account=account)
    assert 2.0 < account.epsilon < 3.0
    with pytest.raises(dpsco.AccountError, match="limit"):
        dpsco.train(PLAN, dpsco.stream(*rows), account=account)
    with pytest.raises(dpsco.AccountError, match="given key"):
        dpsco.train(PLAN, dpsco.stream(*rows), account=account, key=KEY)


# --- memory ---------------------------------------------------------------------------------------


def peak_of_streaming(n: int) -> int:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=16)
    plan = dpsco.Plan(problem, n, BUDGET, dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=1.0))
    chunk = (np.full((5_000, 16), 0.1, dtype=np.float32), np.ones(5_000, dtype=np.int8))
    tracemalloc.start()
    dpsco.train(plan, dpsco.stream(chunk for _ in range(n // 5_000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    peak_of_streaming(40_000)  # what is loaded on first use is not counted
    few, many = peak_of_streaming(100_000), peak_of_streaming(1_000_000)
    assert many - few < 8e6  # the rows themselves grew by 58 MB


def test_import_is_light() -> None:
    code = "import sys, dpsco; print(*sorted(m for m in sys.modules if '.' not in m))"
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    heavy = {"scipy", "mpmath", "rich", "numba", "sklearn", "matplotlib", "jinja2", "jax", "torch", "randomgen"}
    assert not heavy & set(loaded.stdout.split())


def test_a_watched_run_is_told_of_every_round_and_is_not_private(rows) -> None:
    seen = []
    with watching(lambda query, clipped, released: seen.append((query.step, clipped.total.copy(), released.value))):
        first = dpsco.train(PLAN, dpsco.stream(*rows))
    assert [step for step, _, _ in seen] == list(range(T))
    assert not first.report.private
    with watching(replay=[value for _, _, value in seen]):
        again = dpsco.train(PLAN, dpsco.stream(rows[0][::-1], rows[1][::-1]))
    assert np.array_equal(again.model.coef, first.model.coef)
    assert not again.report.private
    assert dpsco.train(PLAN, dpsco.stream(*rows)).report.private


def test_a_run_takes_rows_in_parts_and_sums_from_elsewhere() -> None:
    """Parts but the last hold whole blocks: ``chunk_multiple`` rows."""
    part = chunk_multiple(P)
    plan = dataclasses.replace(PLAN, n=3 * (part + 100), method=dataclasses.replace(PLAN.method, rounds=3))
    data = reference_problem(plan.n, P, fresh=10)
    rows = data.features, data.labels
    oracle, size = dpsco.LinearOracle(plan.problem.loss), plan.batch_size
    assert size == part + 100
    whole = dpsco.train(plan, dpsco.stream(*rows), oracle=oracle, key=KEY)
    for elsewhere in (False, True):
        with Run(plan, oracle=None if elsewhere else oracle, key=KEY) as run:
            while not run.complete:
                first = run.query.step * size
                for own in (slice(first, first + part), slice(first + part, first + size)):
                    batch = Batch(run.query.step, [(rows[0][own], rows[1][own])])
                    if elsewhere:
                        run.absorb_sum(oracle.answer(run.query, batch))
                    else:
                        run.absorb(batch)
                run.finish_round()
        assert np.array_equal(run.model.coef, whole.model.coef)
        assert run.trace == whole.trace
        assert run.counts == whole.counts
        with pytest.raises(dpsco.HorizonError):
            _ = run.query
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(run)
