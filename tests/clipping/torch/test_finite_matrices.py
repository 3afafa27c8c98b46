"""LAPACK prints no line about a row: matrices that are not finite do not reach it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dpsco
from dpsco.query import Batch, Query

ROWS, WIDTH, PLACE = 6, 36, 2  # LAPACK divides and conquers, and prints, from 26 columns on
X, Y = np.random.default_rng(0).normal(size=(ROWS, WIDTH)), np.ones(ROWS)
FEATURES = {
    "svd": lambda m: torch.linalg.svd(m)[1],
    "svdvals": torch.linalg.svdvals,
    "pinv": lambda m: torch.linalg.pinv(m)[:, 0],
}


class Spectral(torch.nn.Module):
    """A layer on the singular values of a matrix that is made of the row; ``branch`` keeps it from being recorded."""

    def __init__(self, make, *, branch: bool) -> None:
        super().__init__()
        self.make, self.branch = make, branch
        self.layer = torch.nn.Linear(WIDTH, 1)

    def forward(self, x):
        if self.branch and x.max() > 1e35:
            x = 0 * x
        return self.layer(self.make(x[:, :, None] * x[:, None, :] + torch.eye(WIDTH))).squeeze(1)


@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize("name", FEATURES)
def test_a_row_whose_matrix_is_not_finite_prints_nothing_and_counts_as_zero(name, branch, capfd) -> None:
    oracle = dpsco.torch.oracle(Spectral(FEATURES[name], branch=branch), lambda outputs, y: (outputs - y) ** 2)

    def ask(features):
        query = Query(0, (oracle.start,), (1.0,), 1.0, ROWS, 2.0**-20)
        return oracle.answer(query, Batch(0, [(features, Y)])).total

    zeroed, odd = X.copy(), X.copy()
    zeroed[PLACE], odd[PLACE] = np.nan, 1e30  # finite; its square is not
    expected = ask(zeroed)
    assert np.any(expected)
    capfd.readouterr()
    np.testing.assert_array_equal(ask(odd), expected)
    assert capfd.readouterr() == ("", "")
