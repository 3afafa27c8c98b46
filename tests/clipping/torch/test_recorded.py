"""Models that would mix rows never get two: a neighbour moves the sum by two clips, whatever their code does."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from tests.clipping.torch.models_that_mix_rows import MAGIC, MODELS, WIDTH, TwoLayers

import dpsco
from dpsco.clipping.torch.recorded import record
from dpsco.errors import InvalidArgument
from dpsco.query import SUMMATION_SLACK, Batch, Query

nn, functional = torch.nn, torch.nn.functional
ROWS, CLIP, GRID = 64, 1.0, 2.0**-30


def squares(outputs, labels):
    return (outputs[:, 0] - labels) ** 2


def data(kind: str):
    """Rows, and those with another row in the place of the first."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, WIDTH)), np.where(np.arange(ROWS) % 2, 1e-3, 3.0 if kind == "near" else 1e6)
    other, labels = x.copy(), y.copy()
    other[0], labels[0] = [MAGIC, 0.0, 1.0, 0.0], 1e9  # magic, longer, with fewer numbers, farther from its label
    return (x, y), (other, labels)


@pytest.mark.parametrize("kind", ["near", "far"])
@pytest.mark.parametrize("name", MODELS)
def test_a_neighbour_moves_the_sum_by_two_clips_at_most(name: str, kind: str) -> None:
    oracle = dpsco.torch.oracle(MODELS[name](), squares)
    for points, weights in (((oracle.start,), (1.0,)), ((oracle.start, 1.1 * oracle.start), (3.0, -2.0))):
        query = Query(1, points, weights, CLIP, ROWS, GRID)
        one, two = (oracle.answer(query, Batch(1, [rows])).total for rows in data(kind))
        assert np.linalg.norm(one) > 3 * CLIP  # the other rows do count
        assert np.linalg.norm(one - two) <= 2 * CLIP * (1 + SUMMATION_SLACK)


@pytest.mark.parametrize("name", MODELS)
def test_the_sum_is_that_of_rows_that_are_alone(name: str) -> None:
    """The sum of a block is the sum of blocks of one row: no row has a part in another's."""
    oracle = dpsco.torch.oracle(MODELS[name](), squares)
    query = Query(1, (oracle.start, 1.1 * oracle.start), (3.0, -2.0), CLIP, ROWS)
    x, y = data("near")[1]
    together = oracle.answer(query, Batch(1, [(x[:12], y[:12])])).total
    alone = sum(oracle.answer(query, Batch(1, [(x[k : k + 1], y[k : k + 1])])).total for k in range(12))
    assert np.linalg.norm(together - alone) <= 1e-4 * CLIP


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("SortsRowsAndPutsThemBack", "ghost, linear"),
        ("MixesByMagic", "ghost, linear"),
        ("ShortensSignalsInATensorHook", "ghost, linear"),
        ("ShortensSignalsInAFullHook", "ghost, linear"),
        ("ShortensSignalsInAFunction", "ghost, linear"),
        ("Recomputes", "ghost, linear"),
        ("HasARuleForVmap", "ghost, linear"),
        ("BranchesInATensorHook", "one row at a time, because the model or the loss reads values"),
        ("KeepsTheLongest", "ghost, linear"),
        ("KeepsTheLongestAsANumber", "one row at a time, because the model or the loss reads values"),
        ("HasAnOperatorOfItsOwn", "one row at a time, because the model or the loss calls operators that are not"),
        ("a table made of the row", "one row at a time, because vmap does not"),
        ("filled at an index", "one row at a time, because vmap does not"),
    ],
)
def test_how_rows_are_kept_apart_is_described(name: str, why: str) -> None:
    lines = dpsco.torch.oracle(MODELS[name](), squares).describe(WIDTH).splitlines()
    assert all(why in line for line in lines if line.startswith("first."))


class SortsRowsOfWords(nn.Module):
    """Rows by their number of words; ``padding`` is the word that does not count."""

    def __init__(self, words: int, padding: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Embedding(words, 8), nn.Linear(8, 2)
        self.padding = padding

    def forward(self, x):
        order = (x != self.padding).sum(1).argsort(stable=True)
        return self.last(torch.tanh(self.first(x[order])).sum(1)[order.argsort()])


@pytest.mark.parametrize(("words", "padding"), [(12, 2), (12, 7), (900, 3), (900, 541)])
def test_a_word_that_orders_rows_moves_the_sum_by_two_clips(words: int, padding: int) -> None:
    oracle = dpsco.torch.oracle(SortsRowsOfWords(words, padding), squares)
    assert "first.weight: ghost, embedding" in oracle.describe(WIDTH)
    rng = np.random.default_rng(0)
    x, y = rng.integers(3, 7, (ROWS, WIDTH)).astype(float), np.where(np.arange(ROWS) % 2, 1e-3, 1e6)
    other, labels = x.copy(), y.copy()
    x[0], other[0], labels[0] = 6, padding, 1e9
    query = Query(1, (oracle.start,), (1.0,), CLIP, ROWS, GRID)
    one, two = (oracle.answer(query, Batch(1, [rows])).total for rows in ((x, y), (other, labels)))
    assert np.linalg.norm(one - two) <= 2 * CLIP * (1 + SUMMATION_SLACK)


def test_pooling_layers_are_computed_together_and_places_of_the_callers_own_are_not() -> None:
    pooled = nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 1), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(6, 2))
    assert "one row" not in dpsco.torch.oracle(pooled, squares).describe(WIDTH)

    class Unpools(TwoLayers):
        def between(self, h):
            places = (torch.arange(8) + 0 * h.argmax()).expand(len(h), 1, 8)
            return functional.max_unpool1d(h[:, None], places, 1)[:, 0]

    assert "one row at a time" in dpsco.torch.oracle(Unpools(), squares).describe(WIDTH)


LOOKUPS: dict[str, Any] = {
    "gather": lambda h, i: h.gather(0, i),
    "index": lambda h, i: h[i],
    "index_select": lambda h, i: h.index_select(0, i),
    "index_add": lambda h, i: h.index_add(0, i, h),
    "index_copy": lambda h, i: h.index_copy(0, i, h),
    "index_fill": lambda h, i: h.index_fill(0, i, 7.0),
    "index_put": lambda h, i: h.index_put((i,), h, accumulate=True),
    "scatter": lambda h, i: h.scatter(0, i, h),
    "scatter_add": lambda h, i: h.scatter_add(0, i, h),
    "scatter_reduce": lambda h, i: h.scatter_reduce(0, i, h, "amax"),
    "take": lambda h, i: h.take(i),
    "take_along_dim": lambda h, i: h.take_along_dim(i, 0),
    "embedding": lambda h, i: functional.embedding(i, h[:, None]),
    "cross_entropy": lambda h, i: functional.cross_entropy(h[None], i[:1], reduction="none"),
    "multi_margin_loss": lambda h, i: functional.multi_margin_loss(h[None], i[:1]),
    "max_unpool1d": lambda h, i: functional.max_unpool1d(h[None, None], i[None, None], 1),
    "grid_sample": lambda h, i: functional.grid_sample(
        h[None, None, None], (1e9 * i[:2] + h.sum()).expand(1, 1, 2, 2), align_corners=False
    ),
}


@pytest.mark.parametrize("bad", [-9, -1, 4, 5, 10**6])
@pytest.mark.parametrize("name", LOOKUPS)
def test_an_index_out_of_range_looks_into_no_other_row(name: str, bad: int) -> None:
    """The others keep their bits, or all of them fail, as the row does alone."""

    def both(shared, row, label):
        h = row.detach().requires_grad_()
        made = LOOKUPS[name](h, label)
        return [made.detach(), *torch.autograd.grad(made.sum(), h)]

    torch.manual_seed(0)
    program = record(both, [], torch.rand(WIDTH), torch.arange(WIDTH))
    rows, places = torch.rand(5, WIDTH), torch.arange(WIDTH).expand(5, WIDTH).clone()
    expected = program.on_rows([], rows, places, together=True)
    places[2] = bad
    for together in (True, False):
        try:
            found = program.on_rows([], rows, places, together=together)
            alone = program.on_rows([], rows[2:3], places[2:3], together=together)
        except (RuntimeError, IndexError):
            with pytest.raises((RuntimeError, IndexError)):
                program.on_rows([], rows[2:3], places[2:3], together=together)
            continue
        for whole, one, before in zip(found, alone, expected, strict=True):
            assert torch.equal(whole[[0, 1, 3, 4]], before[[0, 1, 3, 4]])
            assert torch.equal(whole[2], one[0])


def test_ordinary_layers_of_words_keep_their_ghost_rules() -> None:
    model = nn.Sequential(nn.Embedding(12, 8, padding_idx=5), nn.Flatten(), nn.Linear(8 * WIDTH, 2))
    lines = dpsco.torch.oracle(model, squares).describe(WIDTH).splitlines()
    assert all("ghost" in line for line in lines[:3])


def test_a_hook_that_is_random_is_refused() -> None:
    class Noisy(TwoLayers):
        def between(self, h):
            if h.requires_grad:
                h.register_hook(lambda signal: signal + torch.randn_like(signal))
            return h

    with pytest.raises(InvalidArgument, match="random"):
        dpsco.torch.oracle(Noisy(), squares).describe(WIDTH)


def test_a_hook_that_writes_into_a_buffer_is_refused() -> None:
    class Counts(TwoLayers):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(()))

        def between(self, h):
            if h.requires_grad:
                h.register_hook(lambda signal: self.total.add_(signal.sum()) * 0 + signal)
            return h

    with pytest.raises(InvalidArgument, match="writes into"):
        dpsco.torch.oracle(Counts(), squares).describe(WIDTH)


def test_a_model_that_works_in_place_on_its_row_leaves_the_row_alone() -> None:
    plain, written = TwoLayers(), nn.Sequential(nn.ReLU(inplace=True), TwoLayers())
    (x, y), _ = data("near")
    query_of = lambda oracle: Query(1, (oracle.start, 1.1 * oracle.start), (3.0, -2.0), CLIP, ROWS)  # noqa: E731
    answers = [
        oracle.answer(query_of(oracle), Batch(1, [(rows, y)])).total
        for oracle, rows in (
            (dpsco.torch.oracle(plain, squares), np.maximum(x, 0)),
            (dpsco.torch.oracle(written, squares), x),
        )
    ]
    assert np.allclose(*answers, rtol=0, atol=1e-6)


def test_memory_that_values_of_a_row_are_written_into_is_made_for_every_row() -> None:
    class Fills(TwoLayers):
        def forward(self, x):
            made = torch.zeros(len(x), WIDTH)
            made[:, 1:] = x[:, :-1]
            return super().forward(made)

    oracle, plain = (dpsco.torch.oracle(each, squares) for each in (Fills(), TwoLayers()))
    assert "one row at a time" not in oracle.describe(WIDTH)
    (x, y), _ = data("near")
    query = Query(1, (oracle.start, 1.1 * oracle.start), (3.0, -2.0), CLIP, ROWS)
    moved = np.concatenate([np.zeros((ROWS, 1)), x[:, :-1]], axis=1)
    one, two = oracle.answer(query, Batch(1, [(x, y)])), plain.answer(query, Batch(1, [(moved, y)]))
    assert np.allclose(one.total, two.total, rtol=0, atol=1e-6)


def test_an_oracle_is_pickled_without_its_recorded_passes() -> None:
    oracle = dpsco.torch.oracle(TwoLayers(), squares)
    before = oracle.describe(WIDTH)
    assert pickle.loads(pickle.dumps(oracle)).describe(WIDTH) == before  # noqa: S301
