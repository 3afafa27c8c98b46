"""What a layer sees at the place of a row is that row's alone, in the pass forward and in the pass backward."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import dpsco
from dpsco.errors import InvalidArgument
from dpsco.query import SUMMATION_SLACK, Batch, Query

nn, functional = torch.nn, torch.nn.functional
ROWS, WIDTH, CLIP, GRID = 256, 4, 1.0, 2.0**-30


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(WIDTH, 8), nn.Linear(8, 2)

    def between(self, h):
        return h

    def forward(self, x):
        return self.last(self.between(torch.tanh(self.first(x))))


class SortsRowsByLength(TwoLayers):
    """No output depends on another row, but row k of the first layer is not row k of the batch."""

    def forward(self, x):
        order = (x != 0).sum(1).argsort(descending=True, stable=True)
        return self.last(torch.tanh(self.first(x[order]))[order.argsort()])


def shortened(signal):
    length = signal.norm()
    return signal if length <= 1e3 else signal * (1e3 / length)  # reads a value


class ShortensSignalsInAHook(TwoLayers):
    def between(self, h):
        if h.requires_grad:
            h.register_hook(shortened)
        return h


class Shortened(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, signal):
        length = signal.norm()
        return torch.where(length <= 1e3, signal, signal * (1e3 / length))  # by tensors alone


class ShortensSignalsInAFunction(TwoLayers):
    def between(self, h):
        return Shortened.apply(h)


class ExpertsOfACapacity(nn.Module):
    """The first rows of a batch that choose an expert fill it; later ones are dropped."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.experts = nn.Linear(WIDTH, 4), nn.Parameter(torch.randn(4, WIDTH, 2))

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        chosen = functional.one_hot(shares.argmax(1), 4).to(x.dtype)
        before = (chosen.cumsum(0) - 1) * chosen
        kept = chosen * (before < max(8, math.ceil(1.25 * len(x) / 4)))
        return torch.einsum("re,ri,eio->ro", kept * shares, x, self.experts)


def squares(outputs, labels):
    return (outputs[:, 0] - labels) ** 2


def rows_and_neighbour(far: float):
    """Rows of which every second one is ``far`` from its label; the neighbour has another row in place of row 0."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, WIDTH)), np.where(np.arange(ROWS) % 2, 1e-3, far)
    other, labels = x.copy(), y.copy()
    other[0, 0], labels[0] = 0.0, 1e9  # shorter than all others, and farther from its label
    return (x, y), (other, labels)


@pytest.mark.parametrize(
    ("model", "far"),
    [(SortsRowsByLength, 1e6), (ShortensSignalsInAHook, 3.0), (ShortensSignalsInAFunction, 3.0)],
)
def test_a_row_that_layers_see_elsewhere_or_beside_others_moves_the_sum_by_two_clips(model, far: float) -> None:
    oracle = dpsco.torch.oracle(model(), squares)
    for points, weights in (((oracle.start,), (1.0,)), ((oracle.start, 1.1 * oracle.start), (3.0, -2.0))):
        query = Query(1, points, weights, CLIP, ROWS, GRID)
        one, two = (oracle.answer(query, Batch(1, [rows])).total for rows in rows_and_neighbour(far))
        assert np.linalg.norm(one - two) <= 2 * CLIP * (1 + SUMMATION_SLACK)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (SortsRowsByLength, "depends on the other rows"),
        (ShortensSignalsInAFunction, "depends on the other rows"),
        (ShortensSignalsInAHook, "one row at a time"),
    ],
)
def test_the_first_layer_of_such_a_model_has_no_ghost_rule(model, why: str) -> None:
    lines = dpsco.torch.oracle(model(), squares).describe(WIDTH).splitlines()
    assert all(why in line for line in lines if line.startswith("first."))


class SortsRowsOfWords(nn.Module):
    """Rows by their number of words; ``padding`` is the word that does not count."""

    def __init__(self, words: int, padding: int, *, descending: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Embedding(words, 8), nn.Linear(8, 2)
        self.padding, self.descending = padding, descending

    def forward(self, x):
        order = (x != self.padding).sum(1).argsort(descending=self.descending, stable=True)
        return self.last(torch.tanh(self.first(x[order])).sum(1)[order.argsort()])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("words", "padding"), [(12, 2), (12, 7), (12, 11), (900, 3), (900, 899)])
def test_a_word_that_orders_rows_shows_in_any_table(words: int, padding: int, descending: bool) -> None:
    oracle = dpsco.torch.oracle(SortsRowsOfWords(words, padding, descending=descending), squares)
    assert "depends on the other rows" in oracle.describe(WIDTH).splitlines()[0]
    rng = np.random.default_rng(0)
    x, y = rng.integers(3, 7, (ROWS, WIDTH)).astype(float), np.where(np.arange(ROWS) % 2, 1e-3, 1e6)
    other, labels = x.copy(), y.copy()
    x[0], other[0], labels[0] = 6, padding, 1e9
    query = Query(1, (oracle.start,), (1.0,), CLIP, ROWS, GRID)
    one, two = (oracle.answer(query, Batch(1, [rows])).total for rows in ((x, y), (other, labels)))
    assert np.linalg.norm(one - two) <= 2 * CLIP * (1 + SUMMATION_SLACK)


def test_ordinary_layers_of_words_keep_their_ghost_rules() -> None:
    model = nn.Sequential(nn.Embedding(12, 8, padding_idx=5), nn.Flatten(), nn.Linear(8 * WIDTH, 2))
    lines = dpsco.torch.oracle(model, squares).describe(WIDTH).splitlines()
    assert all("ghost" in line for line in lines[:3])


def test_ordinary_layers_keep_their_ghost_rules() -> None:
    lines = dpsco.torch.oracle(TwoLayers(), squares).describe(WIDTH).splitlines()
    assert all("ghost, linear" in line for line in lines[:4])


def test_experts_that_drop_rows_beyond_a_capacity_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="depends on the other rows"):
        dpsco.torch.oracle(ExpertsOfACapacity(), squares).describe(WIDTH)
