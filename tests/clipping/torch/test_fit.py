"""``dpsco.torch.fit``: rows of any shape from arrays and loaders, trained in place, odd rows count as zero."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from tests.clipping.torch.pictures import (
    BUDGET,
    CLASSES,
    DECLARED,
    KEY,
    SHAPE,
    N,
    Rows,
    cross_entropy,
    network,
    pictures,
    weights,
)
from torch import nn
from torch.utils.data import (
    DataLoader,
    TensorDataset,
)

import dpsco
import dpsco.torch
from dpsco import Budget, DataError, InvalidArgument


def test_a_module_is_trained_in_place_and_the_report_comes_back() -> None:
    model, (X, y) = network(), pictures(3000)
    plan = dpsco.plan_network(sum(p.numel() for p in model.parameters()), 3000, Budget(8.0, 1e-5))
    result = dpsco.torch.fit(model, cross_entropy, (X, y), plan=plan, classes=CLASSES, key=KEY)
    np.testing.assert_allclose(weights(model), result.model.coef, rtol=1e-6, atol=1e-7)
    fresh, wanted = pictures(1000, seed=1)
    assert np.mean(model(torch.from_numpy(fresh)).argmax(1).numpy() == wanted) > 0.8
    assert result.report.epsilon == 8.0


def test_it_is_the_run_of_an_oracle_on_flat_rows() -> None:
    model, (X, y) = network(), pictures()
    flat = nn.Sequential(nn.Unflatten(1, SHAPE), *copy.deepcopy(model))
    oracle = dpsco.torch.oracle(flat, cross_entropy)
    plan = dpsco.plan_network(oracle.size, N, Budget(8.0, 1e-5), start=oracle.tensors)
    rows = dpsco.stream(X.reshape(N, -1), y, shuffle=True)
    expected = dpsco.train(plan, rows, oracle=oracle, start=oracle.start, key=KEY)
    result = dpsco.torch.fit(model, cross_entropy, (X, y), **BUDGET, key=KEY)
    assert result.plan == plan
    assert result.model.coef.tobytes() == expected.model.coef.tobytes()


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_streams_and_chunks_give_the_same_model(workers: int) -> None:
    X, y = pictures()
    table = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))

    def joined(batch: list[Any]) -> Any:
        return torch.stack([x for x, _ in batch]), torch.tensor([label for _, label in batch])

    sources: list[tuple[Any, dict[str, Any]]] = [
        (DataLoader(table, batch_size=50, num_workers=workers), {}),
        (DataLoader(Rows(), batch_size=70, num_workers=workers), {"input_shape": SHAPE}),
        (DataLoader(table, batch_size=64, collate_fn=joined), {"input_shape": SHAPE}),
        ([(X[:100], y[:100]), (X[100:].astype(np.float64), y[100:].tolist())], {"input_shape": SHAPE}),
        (dpsco.stream(X.reshape(N, -1), y), {"input_shape": SHAPE}),
    ]
    found = []
    for data, more in sources:
        model = network()
        dpsco.torch.fit(model, cross_entropy, data, n=N, **DECLARED, **more, key=KEY)
        found.append(weights(model).tobytes())
    assert len(set(found)) == 1


ODD: dict[str, Any] = {
    "another shape": (torch.zeros(2, 3), 1),
    "another type": (torch.full(SHAPE, 1j), 1),
    "no number": (torch.full(SHAPE, np.nan), 1),
    "float64": (torch.full(SHAPE, 1e300, dtype=torch.float64), 1),
    "no label": (torch.zeros(SHAPE), None),
    "an unknown class": (torch.zeros(SHAPE), CLASSES),
    "no pair": None.__class__,
    "text": ("a", "b"),
}


@pytest.mark.parametrize("name", ODD)
def test_one_odd_row_of_a_loader_counts_as_zero_and_changes_no_other(name: str) -> None:
    totals = []
    for odd in ((torch.full(SHAPE, torch.inf), 0), ODD[name]):
        model, seen = network(), dpsco.Diagnostics()
        loader = DataLoader(Rows(odd), batch_size=50)
        dpsco.torch.fit(model, cross_entropy, loader, n=N, input_shape=SHAPE, **DECLARED, key=KEY, diagnostics=seen)
        assert sum(seen.zeroed_rows) == 1
        totals.append(weights(model).tobytes())
    assert totals[0] == totals[1]


def test_the_number_of_rows_is_declared_and_no_length_decides_it() -> None:
    loader = DataLoader(Rows(), batch_size=50)
    with pytest.raises(InvalidArgument, match="n="):
        dpsco.torch.fit(network(), cross_entropy, loader, input_shape=SHAPE, **DECLARED)
    result = dpsco.torch.fit(network(), cross_entropy, loader, input_shape=SHAPE, n=900, **DECLARED)
    assert result.plan.n == 900
    with pytest.raises(InvalidArgument, match="input_shape"):
        dpsco.torch.fit(network(), cross_entropy, loader, n=N, **DECLARED)


def test_frozen_parameters_cost_nothing_and_do_not_change() -> None:
    """Last layer only, and a low-rank change of a frozen layer."""

    class LowRank(nn.Module):
        def __init__(self, layer: nn.Linear) -> None:
            super().__init__()
            self.layer = layer.requires_grad_(False)
            self.down, self.up = nn.Linear(layer.in_features, 1, bias=False), nn.Linear(1, layer.out_features)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + self.up(self.down(x))

    for make in (lambda m: m, lambda m: nn.Sequential(*m[:3], LowRank(m[3]))):
        model = network()
        model[0].requires_grad_(False)
        model = make(model)
        trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
        before = copy.deepcopy(model)
        result = dpsco.torch.fit(model, cross_entropy, pictures(), **BUDGET, key=KEY)
        assert result.model.coef.size == result.plan.problem.dimension == trainable
        for (name, p), old in zip(model.named_parameters(), before.parameters(), strict=True):
            assert torch.equal(p, old) != p.requires_grad, name


def test_outputs_are_compared_with_classes_before_a_row_is_read() -> None:
    class Untouchable(Rows):
        def __getitem__(self, place: int) -> Any:
            raise AssertionError("a row was read")

    loader = DataLoader(Untouchable(), batch_size=50)
    with pytest.raises(InvalidArgument, match="classes=10 outputs, got 3"):
        dpsco.torch.fit(network(), cross_entropy, loader, n=N, input_shape=SHAPE, classes=10, **BUDGET)
    X, y = pictures()
    with pytest.raises(DataError, match="0 to 2"):
        dpsco.torch.fit(network(), cross_entropy, (X, y + 1), **BUDGET)

    def squared(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - labels).square()

    with pytest.raises(InvalidArgument, match="leave classes out"):
        dpsco.torch.fit(network(), squared, (X, y), classes=3, **BUDGET)


def test_tokens_need_no_type() -> None:
    """An embedding takes whole numbers: synthetic rows show it. Tokens beyond 2^24 keep their digits."""
    X, y = pictures()
    tokens = (X.reshape(N, -1) > 0).astype(np.int32)
    model = nn.Sequential(nn.Embedding(2, 4), nn.Flatten(), nn.Linear(64, CLASSES))
    before = weights(model)
    dpsco.torch.fit(model, cross_entropy, (tokens, y), **BUDGET)
    assert not np.array_equal(weights(model), before)
    assert dpsco.torch.oracle(model, cross_entropy).row_type(16) == "float64"


def test_a_model_is_left_alone_unless_the_run_ends() -> None:
    model, (X, y) = network(), pictures()
    before = weights(model)

    def stop(_: dpsco.Round) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dpsco.torch.fit(model, cross_entropy, (X, y), **BUDGET, on_round=stop)
    assert np.array_equal(weights(model), before)


def test_a_loader_of_classes_needs_their_number_and_a_loss_comes_before_the_data() -> None:
    """Two outputs for three classes: without a declaration a third of the rows would count as zero."""
    loader = DataLoader(Rows(), batch_size=50)
    narrow = nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES - 1))
    with pytest.raises(InvalidArgument, match="Expected classes="):
        dpsco.torch.fit(narrow, cross_entropy, loader, n=N, input_shape=SHAPE, **BUDGET)
    with pytest.raises(InvalidArgument, match="got 2"):
        dpsco.torch.fit(narrow, cross_entropy, loader, n=N, input_shape=SHAPE, **DECLARED)
    with pytest.raises(InvalidArgument, match="function of"):
        dpsco.torch.fit(network(), pictures(), cross_entropy, **BUDGET)

    def squared(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - labels) ** 2

    assert dpsco.torch.fit(narrow, squared, loader, n=N, input_shape=SHAPE, **BUDGET).report.private


def test_models_of_words_are_planned_by_how_far_noise_moves_their_outputs() -> None:
    """A mean of short embeddings averages noise; the same model with longer weights behind it does not."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 50, (400, 12)), rng.integers(0, 2, 400)

    def words(times: float) -> nn.Module:
        torch.manual_seed(0)
        table, out = nn.Embedding(50, 8), nn.Linear(8, 2)
        nn.init.normal_(table.weight, std=0.1)
        nn.init.constant_(out.weight, 0.1 * times)
        return nn.Sequential(table, nn.AvgPool2d((12, 1)), nn.Flatten(), out)

    chosen = []
    for times in (1.0, 10.0):
        oracle = dpsco.torch.oracle(words(times), cross_entropy, input_shape=(12,))
        change = oracle.output_change(12)
        assert change is not None
        assert change(0.0) == 0.0
        torch.manual_seed(int(times))  # no draw of the caller matters
        assert change(0.2) == change(0.2) > change(0.1) > 0.0
        plan = dpsco.plan_network(oracle.size, 400, Budget(8.0, 1e-5), start=oracle.tensors, outputs=change)
        assert dpsco.torch.fit(words(times), cross_entropy, (X, y), **BUDGET, key=KEY).plan == plan
        chosen.append(plan.method.step_size)
    assert chosen[0] > 1.5 * chosen[1]
    assert dpsco.torch.oracle(network(), cross_entropy, input_shape=SHAPE).output_change(16) is None


def test_the_change_of_outputs_is_that_of_a_linear_map_without_what_rows_share() -> None:
    """Embeddings summed by a frozen head of ones: an output moves by sigma times the sum over 12 words, less its mean.

    Over rows of 12 of 400 words the deviation is sigma sqrt(12); 64 rows and two draws know it to a tenth.
    """
    table = nn.Embedding(400, 1)

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.shift = table, nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table(x).sum(1) + self.shift

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] - labels) ** 2

    change = dpsco.torch.oracle(Sum(), loss, input_shape=(12,)).output_change(12)
    assert change is not None
    assert change(0.3) == pytest.approx(0.3 * np.sqrt(12), rel=0.2)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about what is deprecated
def test_a_model_that_cannot_be_copied_is_refused_by_name() -> None:
    model = torch.nn.utils.weight_norm(torch.nn.Linear(3, 2))
    model(torch.ones(1, 3))
    with pytest.raises(dpsco.InvalidArgument, match="deepcopy"):
        dpsco.torch.oracle(model, torch.nn.functional.cross_entropy)


def test_arguments_that_contradict_each_other_are_refused() -> None:
    data = pictures()
    plan = dpsco.plan_network(5, N, Budget(1.0, 1e-5))
    for words, arguments in {
        "epsilon": {"epsilon": 1.0},
        "leave them out": {"plan": plan, "n": N},
        "parameters": {"plan": plan},
    }.items():
        with pytest.raises(InvalidArgument, match=words):
            dpsco.torch.fit(network(), cross_entropy, data, **arguments)
    with pytest.raises(InvalidArgument, match="pair"):
        dpsco.torch.fit(network(), cross_entropy, data[0], input_shape=SHAPE, **DECLARED)
    with pytest.raises(DataError, match="shape"):
        dpsco.torch.fit(network(), cross_entropy, data, input_shape=(1, 2, 8), **DECLARED)
    with pytest.raises(DataError, match="numbers, input_shape"):
        dpsco.torch.oracle(network(), cross_entropy, input_shape=SHAPE).describe(17)


def test_a_transformer_encoder_learns_what_no_place_says_alone() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (6_000, 5))
    y = (X == 0).any(1) ^ (X == 1).any(1)
    torch.manual_seed(0)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.out = nn.Embedding(6, 8), nn.Linear(8, 2)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.layer(self.tokens(x)).mean(1))

    model = Encoder()
    loss = nn.functional.cross_entropy
    result = dpsco.torch.fit(model, loss, (X[:5_000], y[:5_000].astype(int)), epsilon=3.0, delta=1e-5, key=KEY)
    with torch.no_grad():
        found = model(torch.from_numpy(X[5_000:])).argmax(1).numpy() == y[5_000:]
    assert np.mean(found) > 0.75  # a guess: 0.54; logistic regression on the counts of tokens, not private: 0.63
    assert result.plan.problem.parameters == sum(p.numel() for p in model.parameters())
