"""What a row leaves behind reaches no other row: in unset memory, in settings of torch, in a loss with state."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
import torch

import dpsco
from dpsco.clipping.torch.passes import fixed_settings
from dpsco.errors import InvalidArgument
from dpsco.query import Batch, Query

nn, functional = torch.nn, torch.nn.functional
ROWS, WIDTH, CLIP, PLACE = 64, 400, 1.0, 5
X, Y = 20.0 + np.random.default_rng(0).normal(size=(ROWS, WIDTH)), np.ones(ROWS)


def ask(oracle, features=X):
    return oracle.answer(Query(1, (oracle.start,), (1.0,), CLIP, ROWS, 0.0), Batch(1, [(features, Y)])).total


def changed(value):
    features = X.copy()
    features[PLACE] = value
    return features


def squares(outputs, labels):
    return (outputs - labels) ** 2


class HalfSet(nn.Module):
    """Sets ten numbers of a new tensor, and uses the others where x > 10, which no synthetic row is."""

    def __init__(self, make, *, branch: bool) -> None:
        super().__init__()
        self.layer, self.make, self.branch = nn.Linear(WIDTH, 1), make, branch

    def forward(self, x):
        h = self.make(x)
        h[:, :10] = x[:, :10]
        if self.branch and float(x.detach().sum()) > 1e30:
            h = 2 * h
        mixed = torch.where(x > 10, h, x).nan_to_num(0.0, 0.0, 0.0).clamp(-10, 10)
        return self.layer(mixed).squeeze(1)


@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        torch.empty_like,
        lambda x: x.new_empty(x.shape),
        lambda x: torch.empty(x.shape),
        lambda x: torch.empty_strided((len(x), WIDTH), (WIDTH, 1)),
        lambda x: torch.empty_permuted((len(x), WIDTH), (1, 0)),
        lambda x: torch.Tensor(len(x), WIDTH),
        lambda x: torch.zeros(0).resize_(len(x), WIDTH),
    ],
)
def test_memory_that_a_model_leaves_unset_holds_no_other_row(make, branch) -> None:
    torch.manual_seed(0)
    oracle = dpsco.torch.oracle(HalfSet(make, branch=branch), squares)
    before = ask(oracle)
    np.testing.assert_array_equal(ask(oracle), before)
    for value in (0.0, 15.0, -3.0):
        assert np.linalg.norm(ask(oracle, changed(value)) - before) <= 2 * CLIP * (1 + 2.0**-10)


class ChangesSettings(nn.Module):
    def __init__(self, change) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(WIDTH, 1), change

    def forward(self, x):
        if float(x.detach().max()) > 1e4:
            self.change()
        return self.layer(x * torch.tensor(1.0).to(x)).squeeze(1) * (1 if torch.tensor(1.0).dtype == x.dtype else -1)


@pytest.mark.parametrize(
    "change", [lambda: torch.set_grad_enabled(False), lambda: torch.set_default_dtype(torch.float64)]
)
def test_a_row_that_changes_settings_changes_them_for_itself(change) -> None:
    torch.manual_seed(0)
    oracle = dpsco.torch.oracle(ChangesSettings(change), squares)
    without = ask(oracle, changed(np.nan))
    assert np.linalg.norm(without) > 2 * CLIP  # the other rows do count
    assert np.linalg.norm(ask(oracle, changed(1e5)) - without) <= CLIP * (1 + 2.0**-10)
    assert torch.get_default_dtype() == torch.float32


class Remembers:
    """A loss that cannot be copied and gives the next row what the last one left."""

    def __init__(self) -> None:
        self.lock, self.factor = threading.Lock(), 1.0

    def __call__(self, outputs, labels):
        factor, self.factor = self.factor, 1.0 if float(outputs.detach().sum()) < 1e3 else -1.0
        return factor * squares(outputs, labels)


def test_a_loss_that_cannot_be_copied_and_reads_values_is_refused() -> None:
    oracle = dpsco.torch.oracle(nn.Sequential(nn.Linear(WIDTH, 1), nn.Flatten(0)), Remembers())
    with pytest.raises(InvalidArgument, match="cannot be copied"):
        ask(oracle)


def test_a_loss_that_cannot_be_copied_is_accepted_if_its_operators_are_recorded() -> None:
    class Locked:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __call__(self, outputs, labels):
            return squares(outputs, labels)

    oracle = dpsco.torch.oracle(nn.Sequential(nn.Linear(WIDTH, 1), nn.Flatten(0)), Locked())
    assert np.linalg.norm(ask(oracle)) > CLIP


def test_sums_are_right_where_float32_products_may_be_rounded_to_bfloat16() -> None:
    """Torch then refuses to say how it multiplies; the sum is computed in float64."""
    torch.manual_seed(0)
    oracle = dpsco.torch.oracle(nn.Sequential(nn.Linear(WIDTH, 1), nn.Flatten(0)), squares)
    expected, kept = ask(oracle), torch.backends.mkldnn.matmul.fp32_precision
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        np.testing.assert_allclose(ask(oracle), expected, rtol=0, atol=0.05)
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = kept


def test_warnings_stay_off_while_any_thread_computes_and_return_after_the_last() -> None:
    """Each thread restored the settings that it had found: those of the process while another computed, or none."""
    entered, left = threading.Event(), threading.Event()
    before, seen = list(warnings.filters), []

    def other() -> None:
        with fixed_settings(torch.device("cpu")):
            entered.set()
            left.wait(20)
            with warnings.catch_warnings(record=True) as shown:
                warnings.warn("a row", stacklevel=1)
            seen.append(len(shown))

    thread = threading.Thread(target=other)
    with fixed_settings(torch.device("cpu")):
        thread.start()
        entered.wait(20)
    left.set()
    thread.join()
    assert seen == [0]
    assert warnings.filters == before


def test_an_operator_that_computes_with_unset_memory_is_refused() -> None:
    """Two passes over the same rows differed: freed memory decided the order of columns in ``lstsq``."""

    class Solves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, 1)

        def forward(self, x):
            odd = (x.detach().amax() - 1).relu().clamp(max=1)  # 0 for synthetic rows
            square = x.detach().view(-1, 20, 20)
            return self.layer(x + odd * torch.linalg.lstsq(square, square.mT).solution.flatten(1)).squeeze(1)

    with pytest.raises(InvalidArgument, match="lstsq"):
        ask(dpsco.torch.oracle(Solves(), squares))
