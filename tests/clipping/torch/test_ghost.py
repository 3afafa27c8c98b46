"""Ghost differences equal per-example differences, on random networks of every supported layer."""

# ruff: noqa: E501  (a network a line)
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dpsco.torch
from dpsco.clipping.torch.ghost_rules import embedding
from dpsco.clipping.torch.terms import Table
from dpsco.query import Batch, Query

ROWS = 12

pytestmark = pytest.mark.filterwarnings("ignore:Using padding=.same.")


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


class Residual(nn.Module):
    """A sequence model with a skip, an in-place activation, a position table and a layer without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(7, 6, padding_idx=3), nn.Embedding(5, 6)
        self.norm, self.mix, self.out = nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.gain = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.places(torch.arange(5).expand(len(x), 5))
        h = h + self.gain * nn.functional.relu_(self.mix(self.norm(h)))
        return self.out(h.mean(1))


class Twice(nn.Module):
    """One layer used twice, another whose weight is used outside it, a third that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.last, self.idle = nn.Linear(20, 20), nn.Linear(20, 3), nn.Linear(20, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.step(torch.tanh(self.step(x))))
        return self.last(h) + 0.1 * (h @ self.last.weight.T).square()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.cell(x.unflatten(1, (5, 4)))[0][:, -1])


class Multihead(nn.Module):
    """Attention with causal masks; places or rows first, projections frozen, or keys of another input."""

    def __init__(self, *, batch_first: bool = True, frozen: bool = False, other: bool = False) -> None:
        super().__init__()
        self.mix, self.out = nn.MultiheadAttention(4, 2, batch_first=batch_first), nn.Linear(20, 3)
        self.mix.in_proj_weight.requires_grad_(not frozen)
        self.other = other

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.unflatten(1, (5, 4))
        keys = torch.tanh(h) if self.other else h
        if not self.mix.batch_first:
            h = keys = h.transpose(0, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=x.dtype)
        mixed = h + self.mix(h, keys, keys, need_weights=self.other, attn_mask=mask)[0]
        return self.out((mixed if self.mix.batch_first else mixed.transpose(0, 1)).flatten(1))


class Encoder(nn.Module):
    """A small transformer encoder of tokens: two layers, the first with the norm before, and a table of places."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(7, 4), nn.Parameter(0.1 * torch.randn(5, 4))
        parts = (nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True, norm_first=k == 0) for k in range(2))
        self.layers, self.out = nn.Sequential(*parts), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers(self.tokens(x) + self.places).mean(1))


class Attention(nn.Module):
    """Two heads of attention made of linear layers, each of which has a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out, self.last = (nn.Linear(4, 4) for _ in range(5))
        self.norm, self.score = nn.RMSNorm(4), nn.Linear(20, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x.unflatten(1, (5, 4)))
        q, k, v = (layer(h).unflatten(2, (2, 2)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.score((h + self.last(torch.tanh(self.out(mixed)))).flatten(1))


def tied() -> nn.Module:
    one, two = nn.Linear(20, 20), nn.Linear(20, 20)
    two.weight = one.weight
    return nn.Sequential(one, nn.Tanh(), two, nn.Tanh(), nn.Linear(20, 3))


def two_d(*layers: nn.Module, channels: int) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (2, 6, 6)), *layers, nn.Flatten(), nn.LazyLinear(3))


NETWORKS: dict[str, tuple[int, Callable[[], nn.Module]]] = {
    "linear": (20, lambda: nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3))),
    "linear, in place": (20, lambda: nn.Sequential(nn.Linear(20, 30), nn.ReLU(inplace=True), nn.Linear(30, 3))),
    "wide linear": (60, lambda: nn.Sequential(nn.Linear(60, 50, bias=False), nn.Tanh(), nn.Linear(50, 40), nn.Tanh(), nn.Linear(40, 3))),
    "positions": (20, lambda: nn.Sequential(nn.Unflatten(1, (5, 4)), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3), nn.Flatten(), nn.Linear(15, 3))),
    "few positions, wide": (120, lambda: nn.Sequential(nn.Unflatten(1, (2, 60)), nn.Linear(60, 60), nn.Tanh(), nn.Linear(60, 60), nn.Flatten(), nn.Linear(120, 3))),
    "layer norm": (20, lambda: nn.Sequential(nn.Linear(20, 12), nn.LayerNorm(12), nn.Tanh(), nn.Linear(12, 3))),
    "layer norm, two sizes": (20, lambda: nn.Sequential(nn.Unflatten(1, (2, 5, 2)), nn.LayerNorm((5, 2)), nn.Flatten(), nn.Linear(20, 3))),
    "rms norm": (20, lambda: nn.Sequential(nn.Linear(20, 12), nn.RMSNorm(12), nn.Tanh(), nn.Linear(12, 3))),
    "group norm": (72, lambda: two_d(nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.Tanh(), channels=6)),
    "instance norm": (72, lambda: two_d(nn.Conv2d(2, 6, 3), nn.InstanceNorm2d(6, affine=True), nn.Tanh(), channels=6)),
    "convolution": (72, lambda: two_d(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 2, stride=2), nn.Tanh(), channels=3)),
    "convolution, dilated": (72, lambda: two_d(nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1)), nn.Tanh(), channels=4)),
    "convolution, same": (72, lambda: two_d(nn.Conv2d(2, 4, (2, 4), padding="same"), nn.Tanh(), channels=4)),
    "convolution, reflected": (72, lambda: two_d(nn.Conv2d(2, 4, 3, padding=(1, 2), padding_mode="reflect"), nn.Tanh(), channels=4)),
    "convolution, circular": (72, lambda: two_d(nn.Conv2d(2, 4, 3, padding="same", padding_mode="circular"), nn.Tanh(), channels=4)),
    "convolution, groups": (72, lambda: two_d(nn.Conv2d(2, 4, 3, groups=2), nn.Tanh(), nn.Conv2d(4, 4, 2, groups=4), channels=4)),
    "convolution 1d": (20, lambda: nn.Sequential(nn.Unflatten(1, (2, 10)), nn.Conv1d(2, 4, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))),
    "convolution 3d": (64, lambda: nn.Sequential(nn.Unflatten(1, (1, 4, 4, 4)), nn.Conv3d(1, 3, 2), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))),
    "embedding": (5, Residual),
    "transposed convolution": (72, lambda: two_d(nn.ConvTranspose2d(2, 3, 2), nn.Tanh(), channels=3)),
    "attention": (20, lambda: nn.Sequential(nn.Unflatten(1, (5, 4)), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), nn.Flatten(), nn.Linear(20, 3))),
    "multihead attention": (20, Multihead),
    "attention, evaluated": (20, lambda: nn.Sequential(nn.Unflatten(1, (5, 4)), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Flatten(), nn.Linear(20, 3)).eval()),
    "attention, places first": (20, lambda: Multihead(batch_first=False)),
    "attention, frozen": (20, lambda: Multihead(frozen=True)),
    "attention to another input": (20, lambda: Multihead(other=True)),
    "encoder of tokens": (5, Encoder),
    "attention of linear layers": (20, Attention),
    "batch norm, evaluated": (20, lambda: nn.Sequential(nn.Linear(20, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).eval()),
    "twice": (20, Twice),
    "tied": (20, tied),
    "recurrent": (20, Recurrent),
}  # fmt: skip

WITHOUT_RULE = {
    "embedding": {"gain"},
    "transposed convolution": {"1.weight", "1.bias"},
    "attention to another input": {"mix.in_proj_weight", "mix.in_proj_bias"},
    "encoder of tokens": {"places"},
    "batch norm, evaluated": {"1.weight", "1.bias"},
    "twice": {"step.weight", "step.bias", "last.weight", "last.bias", "idle.weight", "idle.bias"},
    "tied": {"0.weight", "0.bias", "2.bias"},
    "recurrent": {f"cell.{n}" for n in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")},
}
"""Parameters without a ghost rule; ``describe`` must list them."""


def network(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, np.ndarray, np.ndarray, dict[str, Any]]:
    """A network, rows that suit it, labels and options of its oracle."""
    torch.manual_seed(3)
    width, make = NETWORKS[name]
    model = make().to(dtype)
    rng = np.random.default_rng(4)
    tokens = name in ("embedding", "encoder of tokens")
    rows = rng.integers(0, 7, (ROWS, width)) if tokens else rng.normal(size=(ROWS, width))
    with torch.no_grad():
        model(
            torch.as_tensor(rows[:2]) if tokens else torch.as_tensor(rows[:2], dtype=dtype)
        )  # lazy layers find their size
    return model, rows, rng.integers(0, 3, ROWS), {"inputs": torch.int64} if tokens else {}


def question(start: np.ndarray, step: int, clip: float, **more: Any) -> Query:
    rng = np.random.default_rng(5)
    points = (start + 0.05 * rng.normal(size=start.size), start + 0.05 * rng.normal(size=start.size))
    if step == 0:
        return Query(0, points[:1], (1.0,), clip, ROWS, **more)
    return Query(step, points, (step + 1.0, -float(step)), clip, ROWS, **more)


def by_hand(
    model: nn.Module, query: Query, rows: np.ndarray, labels: np.ndarray, options: dict[str, Any]
) -> np.ndarray:
    """Clipped differences by one ordinary backward pass for each row and point."""
    oracle = dpsco.torch.oracle(model, cross_entropy, **options)
    x = torch.as_tensor(rows, dtype=options.get("inputs", next(model.parameters()).dtype))
    differences = np.zeros((len(labels), oracle.size))
    for weight, point in zip(query.weights, query.points, strict=True):
        at = oracle.load(point)
        for k in range(len(labels)):
            at.zero_grad()
            cross_entropy(at(x[k : k + 1]), torch.as_tensor(labels[k : k + 1])).sum().backward()
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in at.parameters() if p.requires_grad]
            differences[k] += weight * torch.cat([g.double().flatten() for g in grads]).numpy()
    norms = np.linalg.norm(differences, axis=1, keepdims=True)
    return np.sum(differences * np.minimum(1.0, query.clip / norms), axis=0)


@pytest.mark.parametrize("name", NETWORKS)
def test_ghost_equals_vmap_and_equals_one_backward_pass_a_row(name: str) -> None:
    model, rows, labels, options = network(name)
    ghost = dpsco.torch.oracle(model, cross_entropy, **options)
    plain = dpsco.torch.oracle(model, cross_entropy, ghost=False, **options)
    for step, clip in ((0, 0.7), (1, 0.9), (60, 20.0), (7, 1e9)):
        query = question(ghost.start, step, clip)
        answers = [oracle.answer(query, Batch(step, [(rows, labels)])) for oracle in (ghost, plain)]
        expected = by_hand(model, query, rows, labels, options)
        scale = np.linalg.norm(expected)
        for answer in answers:
            assert np.linalg.norm(answer.total - expected) <= 1e-10 * scale
        assert answers[0].clipped_rows == answers[1].clipped_rows
        assert answers[0].rows == ROWS


@pytest.mark.parametrize("name", NETWORKS)
def test_what_has_no_rule_says_so(name: str) -> None:
    model, rows, _, options = network(name)
    lines = dpsco.torch.oracle(model, cross_entropy, **options).describe(rows.shape[1]).splitlines()[:-1]
    assert {line.split(":")[0] for line in lines if ": ghost" not in line} == WITHOUT_RULE.get(name, set())
    assert all("(" in line for line in lines if ": ghost" not in line)


@pytest.mark.parametrize("name", ["linear", "few positions, wide", "layer norm", "convolution", "embedding"])
def test_float32_models_agree_to_float32(name: str) -> None:
    model, rows, labels, options = network(name, torch.float32)
    ghost = dpsco.torch.oracle(model, cross_entropy, **options)
    for step, clip in ((0, 0.7), (1, 0.9)):
        query = question(ghost.start, step, clip)
        expected = by_hand(model.double(), query, rows, labels, options)
        total = ghost.answer(query, Batch(step, [(rows, labels)])).total
        assert np.linalg.norm(total - expected) <= 1e-5 * np.linalg.norm(expected)
        model.float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_words_that_repeat_are_added_up_row_by_row(dtype: torch.dtype) -> None:
    """20 places of 4 words, the padding word among them: every word comes several times, one row has a single word."""
    torch.manual_seed(3)
    table = nn.Embedding(4, 3, padding_idx=2)
    model = nn.Sequential(table, nn.Tanh(), nn.Flatten(), nn.Linear(60, 3)).to(dtype)
    rng = np.random.default_rng(4)
    rows, labels = rng.integers(0, 4, (ROWS, 20)), rng.integers(0, 3, ROWS)
    rows[1] = 3
    oracle, options = dpsco.torch.oracle(model, cross_entropy, inputs=torch.int64), {"inputs": torch.int64}
    assert "0.weight: ghost" in oracle.describe(20)
    query = question(oracle.start, 7, 0.9)
    expected = by_hand(model.double(), query, rows, labels, options)
    total = oracle.answer(query, Batch(7, [(rows, labels)])).total
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    assert np.linalg.norm(total - expected) <= tolerance * np.linalg.norm(expected)


def test_the_sum_at_a_word_does_not_depend_on_the_words_of_other_rows() -> None:
    rng = np.random.default_rng(0)
    index, d = torch.from_numpy(rng.integers(0, 3, (70, 9))), torch.from_numpy(rng.normal(size=(70, 9, 5)))
    together = Table.of(index, d.float()).d
    for row in range(70):
        alone = Table.of(index[row : row + 1], d[row : row + 1].float()).d
        assert torch.equal(alone[0], together[row])
        first = [index[row].tolist().index(word) for word in index[row].unique()]
        assert set(alone[0].abs().sum(1).nonzero().flatten().tolist()) == set(first)


def test_words_that_differ_between_the_points_are_added_where_each_point_has_them() -> None:
    rng = np.random.default_rng(1)
    layer = nn.Embedding(5, 3, padding_idx=4)
    words = [torch.from_numpy(rng.integers(0, 5, (70, 6))) for _ in range(2)]
    words[1][:, :2] = words[0][:, :2]
    signals = [torch.from_numpy(rng.normal(size=(70, 6, 3))) for _ in range(2)]
    scale = torch.from_numpy(rng.random(70))
    expected, total = torch.zeros(5, 3, dtype=torch.float64), torch.zeros(5, 3, dtype=torch.float64)
    for weight, index, signal in zip((8.0, -7.0), words, signals, strict=True):
        expected.index_add_(0, index.flatten(), (weight * scale[:, None, None] * signal).flatten(0, 1))
    expected[4] = 0.0
    embedding(layer, (8.0, -7.0), words, signals)["weight"].add_sum(scale, total, None)
    assert torch.allclose(total, expected, rtol=0, atol=1e-10)


def test_a_loss_of_one_number_is_asked_row_by_row() -> None:
    model, rows, labels, _ = network("linear")
    mean = dpsco.torch.oracle(model, nn.functional.cross_entropy)
    query = question(mean.start, 3, 1.0)
    expected = dpsco.torch.oracle(model, cross_entropy).answer(query, Batch(3, [(rows, labels)]))
    assert np.allclose(mean.answer(query, Batch(3, [(rows, labels)])).total, expected.total, rtol=0, atol=1e-12)


@pytest.mark.parametrize("memory", [1, 10_000, 1 << 20])
def test_a_bound_on_memory_changes_nothing_but_rounding(memory: int) -> None:
    model, rows, labels, _ = network("convolution")
    query = question(dpsco.torch.oracle(model, cross_entropy).start, 3, 1.0)
    expected = dpsco.torch.oracle(model, cross_entropy).answer(query, Batch(3, [(rows, labels)])).total
    small = dpsco.torch.oracle(model, cross_entropy, memory=memory).answer(query, Batch(3, [(rows, labels)])).total
    assert np.allclose(small, expected, rtol=0, atol=1e-11)


def test_sums_do_not_depend_on_how_the_batch_was_cut() -> None:
    model, _, _, _ = network("linear", torch.float32)
    oracle = dpsco.torch.oracle(model, cross_entropy)
    rng = np.random.default_rng(6)
    rows, labels = rng.normal(size=(5000, 20)).astype(np.float32), rng.integers(0, 3, 5000)
    query = question(oracle.start, 3, 0.5, grid=2.0**-30)
    cuts = [[0, 5000], [0, 1, 700, 4097, 5000], [*range(0, 5000, 500), 5000]]
    totals = [
        oracle.answer(query, Batch(3, [(rows[a:b], labels[a:b]) for a, b in itertools.pairwise(cut)])).total
        for cut in cuts
    ]
    assert totals[0].tobytes() == totals[1].tobytes() == totals[2].tobytes()


class UsesWeightsTwice(nn.Module):
    """The weights of a layer, once more, where x > 5: synthetic rows have a derivative of 0 there."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 40), nn.Linear(40, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x)) + nn.functional.relu(x - 5)[:, :3] * self.first.weight.sum()


def test_a_second_use_that_synthetic_rows_do_not_show_is_found() -> None:
    """The gradient of such a row was wrong by three quarters of its length."""
    torch.manual_seed(0)
    oracle = dpsco.torch.oracle(UsesWeightsTwice(), cross_entropy)
    row, label = torch.full((1, 4), 8.0), torch.tensor([1])
    query = Query(0, (oracle.start,), (1.0,), 1e9, 1)
    found = oracle.answer(query, Batch(0, [(row.numpy(), label.numpy())])).total
    model = oracle.load(oracle.start)
    expected = torch.autograd.grad(cross_entropy(model(row), label).sum(), list(model.parameters()))
    np.testing.assert_allclose(found, torch.cat([part.flatten() for part in expected]).numpy(), rtol=1e-4, atol=1e-5)
    assert "first.weight: vmap (its parameters are used elsewhere too)" in oracle.describe(4)
    assert "last.weight: ghost" in oracle.describe(4)
