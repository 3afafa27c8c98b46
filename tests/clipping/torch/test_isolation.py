"""A row reaches the sum only through its own clipped difference, and never an error message or the model."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
import torch
from tests.clipping.torch import models_that_look as look
from tests.clipping.torch.models_that_look import WIDTH

import dpsco
from dpsco.clipping.torch.recorded import Program
from dpsco.errors import InvalidArgument
from dpsco.query import Batch, Query

nn, functional = torch.nn, torch.nn.functional
ROWS, CLIP, GRID, PLACE = 16, 1.0, 2.0**-30, 3
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(ROWS, WIDTH)), RNG.integers(0, 3, ROWS)


def ask(oracle, features=X, labels=Y, points=None):
    at = (oracle.start, 1.01 * oracle.start) if points is None else points
    return oracle.answer(Query(1, at, (2.0, -1.0), CLIP, ROWS, GRID), Batch(1, [(features, labels)]))


def changed(value):
    features = X.copy()
    features[PLACE] = value
    return features


def test_a_loaded_model_keeps_nothing_of_the_rows() -> None:
    """A module may store its input in an attribute; the trained model must not contain it."""
    oracle = dpsco.torch.oracle(look.Keeps(), functional.cross_entropy)
    ask(oracle)
    assert oracle.load(oracle.start).seen is None


def centred_labels(outputs, labels):
    return (outputs[:, 0] - (labels - labels.float().mean())) ** 2


def classes_of_the_batch(outputs, labels):
    return ((outputs - functional.one_hot(labels)) ** 2).sum(1)


def balanced(outputs, labels):
    return functional.cross_entropy(outputs, labels, reduction="none") / torch.bincount(labels)[labels]


@pytest.mark.parametrize("loss", [centred_labels, classes_of_the_batch, balanced])
def test_a_loss_that_looks_at_the_labels_of_other_rows_is_refused(loss) -> None:
    oracle = dpsco.torch.oracle(nn.Linear(WIDTH, 3), loss)
    with pytest.raises(InvalidArgument, match="depends on the other rows"):
        ask(oracle)


def test_a_model_that_mixes_rows_on_any_rows_is_refused() -> None:
    """Each row is computed by itself, so this model would train as another one."""
    with pytest.raises(InvalidArgument, match="depends on the other rows"):
        ask(dpsco.torch.oracle(look.RunningTotal(), functional.cross_entropy))


@pytest.mark.parametrize(
    ("model", "row"),
    [
        (look.TurnedByAnEmptyRow, [0.0, 0.0, 0.0, 0.0]),
        (look.TurnedByAShortRow, [1.0, 2.0, 0.0, 0.0]),
        (look.DividedByTheLongestWithoutPadding, [0.0, 0.0, 0.0, 1.0]),
        (look.ScaledByTheLongest, [99.0, 0.0, 0.0, 0.0]),
        (look.ShortenedByTheLongest, [1e6, 0.0, 0.0, 0.0]),
        (look.TurnedByALargeRow, [1e7, 0.0, 0.0, 0.0]),
    ],
)
def test_a_row_of_which_a_model_would_tell_the_others_moves_the_sum_by_one_clip(model, row) -> None:
    torch.manual_seed(0)
    oracle = dpsco.torch.oracle(model(), functional.cross_entropy)
    features = np.round(X, 1)
    features[features == 0.0] = 0.5
    odd, without = features.copy(), features.copy()
    odd[PLACE], without[PLACE] = row, np.nan
    moved = np.linalg.norm(ask(oracle, odd).total - ask(oracle, without).total)
    assert np.linalg.norm(ask(oracle, without).total) > CLIP  # the other rows do count
    assert 0 < moved <= CLIP * (1 + 2.0**-10) + np.sqrt(oracle.size) * GRID


@pytest.mark.parametrize("ghost", [True, False])
@pytest.mark.parametrize(
    "model",
    [
        look.TurnsSomeBatches,
        look.CountsSomeNumbers,
        look.ListsNumbers,
        look.CopiesNumbers,
        look.RepeatsByNumbers,
        look.SplitsAtNumbers,
        look.PacksByNumbers,
    ],
)
def test_a_model_that_reads_values_of_its_rows_sees_one_row_at_a_time(model, ghost) -> None:
    """A branch that synthetic rows do not take: the row that takes it decides about itself alone."""
    torch.manual_seed(0)
    oracle = dpsco.torch.oracle(model(), functional.cross_entropy, ghost=ghost)
    without = ask(oracle, changed(np.nan)).total
    moved = np.linalg.norm(ask(oracle, changed(1e7)).total - without)
    assert np.linalg.norm(without) > 2 * CLIP  # the other rows do count
    assert moved <= CLIP * (1 + 2.0**-10) + np.sqrt(oracle.size) * GRID
    assert "reads values of its rows" in oracle.describe(WIDTH)


def test_a_model_that_cuts_off_padding_sees_one_row_at_a_time() -> None:
    """The longest row of a batch sets the length of all: each row is computed at its own."""

    class Cuts(look.Linear):
        def forward(self, x):
            longest = max((x != 0).sum(1).tolist())
            return functional.linear(x[:, :longest], self.layer.weight[:, :longest], self.layer.bias) / longest

    oracle = dpsco.torch.oracle(Cuts(), functional.cross_entropy)
    short = X.copy()
    short[:, 2:] = 0
    long = short.copy()
    long[PLACE] = X[PLACE]
    moved = np.linalg.norm(ask(oracle, short).total - ask(oracle, long).total)
    assert 0 < moved <= 2 * CLIP * (1 + 2.0**-10) + np.sqrt(oracle.size) * GRID
    assert "reads values of its rows" in oracle.describe(WIDTH)


def test_ordinary_models_read_no_values() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Unflatten(1, (2, 4)), layer, nn.Conv1d(2, 3, 2), nn.GroupNorm(1, 3), nn.Flatten())
    assert "at a time" not in dpsco.torch.oracle(model, functional.cross_entropy).describe(8)


def test_a_model_that_writes_into_a_frozen_parameter_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="writes into"):
        ask(dpsco.torch.oracle(look.WritesAFrozenParameter(), functional.cross_entropy))


def test_a_table_that_is_shortened_in_place_is_refused() -> None:
    model = nn.Sequential(nn.Embedding(6, 4, max_norm=0.5), nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(InvalidArgument, match="max_norm"):
        dpsco.torch.oracle(model, functional.cross_entropy, inputs=torch.int64)


def test_a_random_loss_is_refused() -> None:
    def loss(outputs, labels):
        return functional.cross_entropy(outputs, labels, reduction="none") * (1 + torch.rand(()))

    with pytest.raises(InvalidArgument, match="random"):
        ask(dpsco.torch.oracle(nn.Linear(WIDTH, 3), loss))


def test_a_loss_that_keeps_state_is_refused() -> None:
    mean = [0.0]

    def loss(outputs, labels):
        each = functional.cross_entropy(outputs, labels, reduction="none")
        scaled, mean[0] = each / (1 + mean[0]), 0.9 * mean[0] + 0.1 * float(each.detach().mean())
        return scaled

    with pytest.raises(InvalidArgument, match="random"):
        ask(dpsco.torch.oracle(nn.Linear(WIDTH, 3), loss))


@pytest.mark.parametrize("error", [AssertionError, KeyError, ZeroDivisionError, ValueError, TypeError, SystemExit])
def test_a_row_that_makes_the_model_raise_counts_as_zero_whatever_it_raises(error) -> None:
    oracle = dpsco.torch.oracle(look.Raises(error), functional.cross_entropy)
    odd, missing = ask(oracle, changed(1e3)), ask(oracle, changed(np.nan))
    np.testing.assert_array_equal(odd.total, missing.total)
    assert (odd.zeroed_rows, missing.zeroed_rows) == (1, 1)
    assert ask(oracle, np.full_like(X, 1e3)).zeroed_rows == ROWS


def test_a_missing_row_is_taken_in_silence_by_a_model_that_raises_on_zeros() -> None:
    oracle = dpsco.torch.oracle(look.RaisesOnZeros(), functional.cross_entropy)
    whole, missing = ask(oracle), ask(oracle, changed(np.nan))
    assert missing.zeroed_rows == 1
    assert 0 < np.linalg.norm(whole.total - missing.total) <= CLIP * (1 + 2.0**-10) + np.sqrt(oracle.size) * GRID


def test_a_row_that_fails_at_the_second_point_alone_counts_as_zero() -> None:
    oracle = dpsco.torch.oracle(look.RaisesAtTheSecondPoint(), functional.cross_entropy)
    points = oracle.start, oracle.start + 10.0
    odd, missing = ask(oracle, changed(1e3), points=points), ask(oracle, changed(np.nan), points=points)
    np.testing.assert_array_equal(odd.total, missing.total)
    assert odd.zeroed_rows == 1


class Bilinear(nn.Module):
    """``_trilinear`` has no batching rule."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(5, 3), nn.Bilinear(3, 3, 3)

    def forward(self, x):
        mean = self.words(x).mean(1)
        return self.layer(mean, mean)


def test_a_row_that_fails_adds_no_line_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """``vmap`` warned in each pass of an operator without a rule: one unknown word made 5 lines 81."""
    oracle = dpsco.torch.oracle(Bilinear(), functional.cross_entropy)
    words = RNG.integers(0, 5, (ROWS, WIDTH))
    ask(oracle, words)
    capfd.readouterr()
    words[PLACE, 0] = 9
    assert ask(oracle, words).zeroed_rows == 1
    assert capfd.readouterr() == ("", "")


def test_rows_that_fail_together_are_computed_apart(monkeypatch) -> None:
    oracle = dpsco.torch.oracle(look.Linear(), functional.cross_entropy)
    expected, on_rows = ask(oracle), Program.on_rows

    def failing(self, shared, rows, labels, *, together):
        if together and len(rows) > 5:
            raise RuntimeError(f"rows {rows}")
        return on_rows(self, shared, rows, labels, together=together)

    monkeypatch.setattr(Program, "on_rows", failing)
    assert np.allclose(ask(oracle).total, expected.total, rtol=0, atol=1e-5)


def test_rows_that_never_succeed_together_end_in_an_error_without_them(monkeypatch) -> None:
    oracle = dpsco.torch.oracle(look.Linear(), functional.cross_entropy)
    ask(oracle)
    on_rows = Program.on_rows

    def failing(self, shared, rows, labels, *, together):
        if len(rows) > 5:
            raise RuntimeError(f"rows {rows}")
        return on_rows(self, shared, rows, labels, together=together)

    monkeypatch.setattr(Program, "on_rows", failing)
    with pytest.raises(InvalidArgument) as caught:
        ask(oracle)
    assert "tensor" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_model_sees_no_row_of_the_data_and_never_more_than_one() -> None:
    seen = []

    class Looks(look.Linear):
        def before(self, x):
            seen.append(x.clone())
            return x

    class LooksAndReads(Looks):
        def before(self, x):
            return super().before(x) if float(x.sum()) != 0.5 else -x

    for model in (Looks, LooksAndReads):
        oracle = dpsco.torch.oracle(model(), functional.cross_entropy)
        oracle.describe(WIDTH)
        seen.clear()
        ask(oracle)
        assert all(len(x) == 1 for x in seen)
        assert len(seen) == (0 if model is Looks else 2 * ROWS)


@pytest.mark.parametrize("value", [1e-42, 1e-20, 1e18, 3e38, 1e300, -np.inf])
def test_a_row_of_any_scale_moves_the_sum_by_one_clip_and_no_other_row(value: float) -> None:
    oracle = dpsco.torch.oracle(nn.Linear(WIDTH, 3), functional.cross_entropy)
    without = ask(oracle, changed(np.nan)).total
    moved = np.linalg.norm(ask(oracle, changed(value)).total - without)
    assert moved <= CLIP * (1 + 2.0**-10) + np.sqrt(oracle.size) * GRID


class Meets(look.Linear):
    """A model that is not safe in threads: rows pass through an attribute of the class."""

    meeting: threading.Barrier | None = None

    def before(self, x):
        Meets.scratch = x
        if self.meeting is not None:
            with suppress(threading.BrokenBarrierError):
                self.meeting.wait(0.05)  # two passes at a time would meet here
        return Meets.scratch if float(x.sum()) < 1e9 else x


def test_threads_that_share_an_oracle_get_the_sums_of_their_own_rows(monkeypatch) -> None:
    oracle = dpsco.torch.oracle(Meets(), functional.cross_entropy)
    sides = [(X, (oracle.start, 1.01 * oracle.start)), (-X, (2.0 * oracle.start, oracle.start))]
    alone = [ask(oracle, rows, points=points).total for rows, points in sides]
    monkeypatch.setattr(Meets, "meeting", threading.Barrier(2))
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(ask, oracle, rows, Y, points) for rows, points in sides]
    for future, total in zip(made, alone, strict=True):
        np.testing.assert_array_equal(future.result().total, total)
