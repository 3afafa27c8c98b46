"""Operators under ``vmap``: what a row does to places and to numbers without a dimension stays with the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dpsco
from dpsco.clipping.torch.recorded import record
from dpsco.errors import InvalidArgument
from dpsco.query import SUMMATION_SLACK, Batch, Query

nn, functional, aten = torch.nn, torch.nn.functional, torch.ops.aten
ROWS, WIDTH, PLACE, CLIP, GRID = 16, 16, 3, 1.0, 2.0**-30
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(ROWS, WIDTH)), RNG.integers(0, 3, ROWS)
X[8:] += 20.0
ODD = (0.0, -1.0, 2.0, 100.0, 1e6, 1e20, 1e38)


class Model(nn.Module):
    """Two layers; ``between`` does nothing out of the ordinary to synthetic rows, which are in [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(WIDTH, 16), nn.Linear(16, 3)
        self.table = nn.Parameter(torch.randn(10, 16))

    def between(self, x: Any, h: Any) -> Any:
        return h

    def forward(self, x: Any) -> Any:
        return self.last(self.between(x, self.first(x)))


def is_odd(x: Any) -> Any:
    return (x.sum() > 50.0).long()


class RollsANumber(Model):
    """Under vmap torch takes the dimension of the rows for that of the number."""

    def between(self, x, h):
        return h + torch.roll((x - 10).relu().sum(), 1)


class MovesCheckedWords(Model):
    """The derivative of a table uses indices that were checked and then changed."""

    def between(self, x, h):
        words = x.detach().long().clamp(0, 9).clone()
        found = functional.embedding(words, self.table)
        words.data.add_(10 * is_odd(x))
        return h + found.sum(1)


class MovesPooledPlaces(Model):
    """The derivative of pooling adds at the places that pooling found, changed since."""

    def between(self, x, h):
        pooled, places = functional.max_pool2d(h.view(-1, 1, 4, 4), 2, return_indices=True)
        places.data.add_(16 * is_odd(x))
        return pooled.flatten(1).repeat(1, 4)


def total(oracle, features):
    query = Query(1, (oracle.start, 1.01 * oracle.start), (2.0, -1.0), CLIP, ROWS, GRID)
    return oracle.answer(query, Batch(1, [(features, Y)])).total


@pytest.mark.parametrize("model", [Model, RollsANumber, MovesCheckedWords])
def test_a_row_moves_the_sum_by_one_clip_at_most(model: type[Model]) -> None:
    oracle = dpsco.torch.oracle(model(), functional.cross_entropy, inputs=torch.float32, labels=torch.int64)
    assert ("one row" in oracle.describe(WIDTH)) == (model is not Model)
    missing = X.copy()
    missing[PLACE] = np.nan
    without = total(oracle, missing)
    for value in ODD:
        odd = X.copy()
        odd[PLACE] = value
        assert np.linalg.norm(total(oracle, odd) - without) <= CLIP * (1 + SUMMATION_SLACK)


def test_places_of_pooling_that_the_model_changes_are_refused() -> None:
    """The derivative writes at them without a check: into another row, or into memory of anything else."""
    oracle = dpsco.torch.oracle(MovesPooledPlaces(), functional.cross_entropy, inputs=torch.float32, labels=torch.int64)
    with pytest.raises(InvalidArgument, match="places of its own"):
        oracle.describe(WIDTH)


@pytest.mark.parametrize("size", [4, 8])
def test_places_of_another_picture_are_refused(size: int) -> None:
    def pooled(shared: Any, row: Any, label: Any) -> list[Any]:
        picture, large = row.view(1, 1, 4, 4), row.view(1, 1, 4, 4).repeat(1, 1, size // 4, size // 4)
        _, places = aten.max_pool2d_with_indices(large, [size // 2] * 2, [size // 2] * 2)
        back = aten.max_pool2d_with_indices_backward
        return [back(torch.ones(1, 1, 2, 2), picture, [2, 2], [2, 2], [0, 0], [1, 1], False, places)]

    if size == 4:
        assert not record(pooled, [], torch.rand(16), torch.zeros(())).apart
    else:
        with pytest.raises(InvalidArgument, match="places of its own"):
            record(pooled, [], torch.rand(16), torch.zeros(()))


TOGETHER: dict[str, Any] = {
    "mm": lambda h: h @ h.mT,
    "softmax": lambda h: h.softmax(-1) + h.log_softmax(-1),
    "norms": lambda h: functional.layer_norm(h, h.shape[-1:]) + h.norm(dim=-1, keepdim=True),
    "roll": lambda h: h.roll(1, -1) + h.flip(-1),
    "moments": lambda h: h.mean() + h.var() + h.logsumexp(0) + h.median(),
    "convolution": lambda h: functional.conv1d(h[:, None], h[:1, None]),
    "pooling": lambda h: functional.max_pool1d(h[None], 2) + functional.avg_pool1d(h[None], 2),
    "spectrum": lambda h: torch.fft.rfft(h).abs(),
    "distances": lambda h: torch.cdist(h, 2 * h),
    "padding": lambda h: functional.pad(h[None], (1, 1), mode="reflect"),
    "losses": lambda h: functional.mse_loss(h, h.detach() ** 2) + functional.smooth_l1_loss(h, h.detach() ** 2),
}
APART: dict[str, Any] = {
    "a rolled number": lambda h: h.sum().roll(1),
    "softmax of a number": lambda h: h.sum().softmax(0),
    "a sorted number": lambda h: h.sum().sort().values,
    "an exponential of matrices": lambda h: torch.linalg.matrix_exp(h @ h.mT),
}


@pytest.mark.parametrize("value", [0.0, 1e4, 1e30, float("inf"), float("nan")])
@pytest.mark.parametrize("name", [*TOGETHER, *APART])
def test_a_row_leaves_the_bits_of_the_others_as_they_are(name: str, value: float) -> None:
    function = (TOGETHER | APART)[name]

    def both(shared: Any, row: Any, label: Any) -> list[Any]:
        h = row.detach().requires_grad_()
        made = function(h)
        return [made.detach(), *torch.autograd.grad((made * made.detach()).sum(), h)]

    rows = torch.rand((6, 3, 4), generator=torch.Generator().manual_seed(0))
    program = record(both, [], rows[0].clone(), torch.zeros(()))
    assert program.apart == (name in APART)
    odd = rows.clone()
    odd[2] = value
    kept = torch.arange(6) != 2
    for one, other in zip(
        *(program.on_rows([], each, torch.zeros(6), together=True) for each in (rows, odd)), strict=True
    ):
        assert torch.equal(one[kept], other[kept])
