"""A PyTorch model trains like any other, keeps its types, and is refused if it would mix rows."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import dpsco
import dpsco.torch
from dpsco import Budget, DataError, InvalidArgument
from dpsco.planning.network_plan import plan_network
from dpsco.query import Batch, Query

WIDTH, CLASSES = 5, 3


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, n)
    return rng.normal(size=(n, WIDTH)) + 3.0 * np.eye(CLASSES, WIDTH)[labels], labels


class Mixed(nn.Module):
    """A frozen layer, a buffer, tied weights, two floating types."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.one, self.two = nn.Linear(WIDTH, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.last = nn.Linear(4, CLASSES).double()
        self.frozen.requires_grad_(False)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.two(torch.tanh(self.one(self.frozen(x) - self.shift)))).double())


def test_training_learns_and_leaves_the_model_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    before = copy.deepcopy(model.state_dict())
    oracle = dpsco.torch.oracle(model, cross_entropy)
    features, labels = rows(3000)
    plan = plan_network(oracle.size, 3000, Budget(8.0, 1e-5))
    result = dpsco.train(plan, dpsco.stream(features, labels), oracle=oracle, start=oracle.start, key=bytes(32))
    fresh, wanted = rows(1000, seed=1)
    trained = oracle.load(result.model)
    accuracy = np.mean(trained(torch.tensor(fresh, dtype=torch.float32)).argmax(1).numpy() == wanted)
    assert accuracy > 0.8
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert any("oracle" in line for line in result.report.assumptions)


def test_weights_come_back_as_they_came() -> None:
    torch.manual_seed(1)
    model = Mixed()
    oracle = dpsco.torch.oracle(model, cross_entropy)
    moved = oracle.start + 1.0
    came, back = model.state_dict(), oracle.weights(moved)
    assert list(came) == list(back)
    for name, value in came.items():
        assert (back[name].dtype, back[name].shape) == (value.dtype, value.shape)
        trained = "frozen" not in name and name != "shift"
        assert torch.allclose(back[name], value + trained)
    assert oracle.size == 4 * 4 + 4 + 4 + 4 * CLASSES + CLASSES
    model.load_state_dict(back)
    assert np.allclose(dpsco.torch.oracle(model, cross_entropy).start, moved)
    with pytest.raises(InvalidArgument, match="weights"):
        oracle.load(moved[:-1])


def test_frozen_tied_and_mixed_parameters_train() -> None:
    oracle = dpsco.torch.oracle(Mixed(), cross_entropy)
    features, labels = rows(50)
    query = Query(0, (oracle.start,), (1.0,), 1e9, 50)
    at = oracle.load(oracle.start)
    cross_entropy(at(torch.tensor(features, dtype=torch.float32)), torch.tensor(labels)).sum().backward()
    expected = torch.cat([p.grad.double().flatten() for p in at.parameters() if p.requires_grad]).numpy()
    answer = oracle.answer(query, Batch(0, [(features, labels)]))
    assert np.allclose(answer.total, expected, rtol=0, atol=1e-4)
    assert "shared" in oracle.describe(WIDTH)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + torch.randn(CLASSES)


class Counting(Noisy):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += x.sum()
        return self.layer(x)


class Centring(Noisy):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x - x.mean(0))


class OneForAll(Noisy):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sum(0)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "batch norm": (lambda: nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, CLASSES)), "statistics of the batch"),
    "batch norm without statistics": (
        lambda: nn.Sequential(nn.BatchNorm1d(WIDTH, track_running_stats=False), nn.Linear(WIDTH, CLASSES)).eval(),
        "statistics of the batch",
    ),
    "running instance norm": (
        lambda: nn.Sequential(nn.Unflatten(1, (1, 5)), nn.InstanceNorm1d(1, track_running_stats=True), nn.Flatten()),
        "running statistics",
    ),
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, CLASSES)), "random"),
    "dropout inside attention": (
        lambda: nn.Sequential(nn.Unflatten(1, (1, WIDTH)), nn.TransformerEncoderLayer(WIDTH, 1, 4, 0.1), nn.Flatten()),
        "random",
    ),
    "noise": (Noisy, "random"),
    "a buffer that is written": (Counting, "buffers"),
    "a mean over rows": (Centring, "other rows"),
    "one output for all": (OneForAll, "one output per row"),
    "nothing to train": (lambda: nn.Linear(WIDTH, CLASSES).requires_grad_(False), "trainable"),
    "another width": (lambda: nn.Linear(WIDTH + 1, CLASSES), "synthetic rows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_one_row_at_a_time_is_refused_before_a_row_is_used(name: str) -> None:
    make, words = REFUSED[name]
    features, labels = rows(6)

    def use() -> None:
        oracle = dpsco.torch.oracle(make(), cross_entropy)
        oracle.answer(Query(0, (oracle.start,), (1.0,), 1.0, 6), Batch(0, [(features, labels)]))

    with pytest.raises(InvalidArgument, match=words):
        use()


def test_a_loss_that_mixes_rows_is_refused() -> None:
    def mixing(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs - outputs.mean(0), labels)

    with pytest.raises(InvalidArgument, match="other rows"):
        dpsco.torch.oracle(nn.Linear(WIDTH, CLASSES), mixing).describe(WIDTH)


def test_dropout_and_batch_norm_pass_when_evaluated() -> None:
    layers = [nn.Linear(WIDTH, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, CLASSES)]
    lines = dpsco.torch.oracle(nn.Sequential(*layers).eval(), cross_entropy).describe(WIDTH)
    assert "3.weight: ghost" in lines


def test_rows_that_the_model_cannot_take_count_as_zero() -> None:
    """An unknown label makes cross-entropy fail; the error would reveal that the row is present."""
    oracle = dpsco.torch.oracle(nn.Linear(WIDTH, CLASSES), cross_entropy)
    features, labels = rows(30)
    query = Query(0, (oracle.start,), (1.0,), 1.0, 30)
    expected = oracle.answer(query, Batch(0, [(np.delete(features, [3, 9], axis=0), np.delete(labels, [3, 9]))]))
    labels[3], labels[9] = CLASSES, -1
    answer = oracle.answer(query, Batch(0, [(features, labels)]))
    assert answer.zeroed_rows == 2
    assert np.allclose(answer.total, expected.total, rtol=0, atol=1e-6)


def test_surroundings_change_nothing() -> None:
    torch.manual_seed(2)
    oracle = dpsco.torch.oracle(nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh(), nn.Linear(4, CLASSES)), cross_entropy)
    batch = Batch(0, [rows(20)])
    query = Query(1, (oracle.start, oracle.start + 0.1), (2.0, -1.0), 1.0, 20)
    state = torch.random.get_rng_state()
    expected = oracle.answer(query, batch).total
    assert torch.equal(state, torch.random.get_rng_state())
    for around in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)):
        with around:
            assert oracle.answer(query, batch).total.tobytes() == expected.tobytes()


def test_sparse_rows_are_refused() -> None:
    from scipy.sparse import csr_array

    oracle = dpsco.torch.oracle(nn.Linear(WIDTH, CLASSES), cross_entropy)
    problem = plan_network(oracle.size, 10, Budget(1.0, 1e-5), rounds=1)
    with pytest.raises(DataError, match="dense"):
        dpsco.train(problem, dpsco.stream(csr_array(np.eye(10, WIDTH)), np.zeros(10)), oracle=oracle)


def test_importing_dpsco_does_not_load_torch() -> None:
    code = "import sys, dpsco; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_layer_without_a_shape_is_refused_by_name() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 3))
    with pytest.raises(InvalidArgument, match=r"LazyLinear.*takes its shape from the first rows"):
        dpsco.torch.oracle(model, nn.functional.cross_entropy)
    model(torch.zeros(1, 5))
    dpsco.torch.oracle(model, nn.functional.cross_entropy)
