"""No row moves the sum by more than the clip: exactly, row by row, and between neighbouring data sets."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dpsco.torch
from dpsco import Budget
from dpsco.clipping.torch.clipped_sum import BLOCK_ROWS, add_clipped, cancellation_limit
from dpsco.clipping.torch.terms import Outer
from dpsco.methods import AcceleratedSRGD
from dpsco.planning.network_plan import plan_network
from dpsco.query import SUMMATION_SLACK, Batch, Query

WIDTH = 4


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


def square(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs[:, 0] - labels).square() / 2


def network(kind: str, dtype: torch.dtype) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    if kind == "regression":
        return nn.Linear(WIDTH, 1).to(dtype), square
    if kind == "convolution":
        layers = [nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 2, padding=1), nn.GELU(), nn.Flatten(), nn.Linear(18, 3)]
        return nn.Sequential(*layers).to(dtype), cross_entropy
    # Wide enough for the product form: 2 K (in + out) < in out.
    layers = [nn.Linear(WIDTH, 20), nn.ReLU(), nn.LayerNorm(20), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3)]
    return nn.Sequential(*layers).to(dtype), cross_entropy


def squared_norm(vector: np.ndarray) -> Fraction:
    return sum((Fraction(value) ** 2 for value in vector.tolist()), Fraction(0))


def adversarial_rows(rng: np.random.Generator, count: int) -> np.ndarray:
    rows = rng.normal(size=(count, WIDTH))
    with np.errstate(all="ignore"):
        rows[1::5] *= 10.0 ** rng.uniform(-160, 160, rows[1::5].shape)
        rows[2::5] *= 10.0 ** rng.uniform(-45, 45, (len(rows[2::5]), 1))
        rows[3::5] = 5e-324 * rng.integers(0, 1 << 20, rows[3::5].shape)
    odd = rng.random(count) < 0.05
    rows[odd, 1] = rng.choice([np.nan, np.inf, -np.inf, 1.7e308], np.sum(odd))
    return rows


@pytest.mark.parametrize("ghost", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["ghost", "vmap"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", ["regression", "layers", "convolution"])
def test_no_row_exceeds_the_clip_in_exact_arithmetic(kind: str, dtype: torch.dtype, ghost: bool) -> None:
    rng = np.random.default_rng(1)
    model, loss = network(kind, dtype)
    oracle = dpsco.torch.oracle(model, loss, ghost=ghost)
    rows, worst = adversarial_rows(rng, 30), Fraction(0)
    labels = (
        rng.normal(size=30) * 10.0 ** rng.uniform(-150, 150, 30) if kind == "regression" else rng.integers(0, 3, 30)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(len(rows)):
            clip = (1e-100, 1e-10, 0.3, 1.0, 1e50)[k % 5]
            points = tuple(oracle.start + rng.normal(size=oracle.size) * 10.0 ** rng.integers(-9, 2) for _ in range(2))
            query = Query(1, points, (2.0 + k, -1.0 - k), clip, 10, rowwise=bool(k % 2))
            total = oracle.answer(query, Batch(1, [(rows[k : k + 1], labels[k : k + 1])])).total
            assert np.all(np.isfinite(total))
            worst = max(worst, squared_norm(total) / Fraction(clip) ** 2)
    assert 1 - Fraction(1, 10**5 if dtype == torch.float32 else 10**11) < worst <= 1


def test_terms_that_cancel_in_all_their_digits_neither_exceed_the_clip_nor_drown_the_sum() -> None:
    """u v' + u' v' with u' close to -u: the norm is far below that of the terms."""
    rng = np.random.default_rng(2)
    for digits in range(0, 60, 4):
        u = rng.normal(size=(1, 5))
        both = np.concatenate([u, -u * (1 + 2.0**-digits * rng.normal())])[None] * 1e8
        v = np.repeat(rng.normal(size=(1, 4)), 2, axis=0)[None]
        v[0, 1] *= 1 + 2.0**-50 * rng.integers(0, 9)
        exact = [
            [sum(Fraction(both[0, k, i]) * Fraction(v[0, k, j]) for k in range(2)) for j in range(4)] for i in range(5)
        ]
        length = sum((value**2 for row in exact for value in row), Fraction(0))
        term, total = Outer([torch.tensor(both)], [torch.tensor(v)]), torch.zeros((5, 4), dtype=torch.float64)
        bound, _ = term.measure(single=True)
        assert Fraction(bound.item()) >= length
        add_clipped({"w": term}, torch.zeros(1, dtype=torch.bool), 1.0, {"w": total})
        assert squared_norm(total.numpy().ravel()) <= (1 + Fraction(SUMMATION_SLACK) / 4) ** 2


@pytest.mark.parametrize("cancel", [False, True])
def test_products_added_in_float32_stay_within_their_share_and_those_that_cancel_go_apart(cancel: bool) -> None:
    """Equal rows, whose roundings do not average out, in the 4 groups of 32 that are added in float32."""
    torch.manual_seed(0)
    u, v = torch.rand(1, 1, 40).expand(128, 1, 40), torch.rand(1, 1, 30).expand(128, 1, 30)
    left, right = [u, -u * 0.999 if cancel else u * 0.3], [v, v]
    total, exact = (torch.zeros((40, 30), dtype=torch.float64) for _ in range(2))
    add_clipped({"w": Outer(list(left), list(right))}, torch.zeros(128, dtype=torch.bool), 1.0, {"w": total})
    one = sum((a[0].double().mT @ b[0].double() for a, b in zip(left, right, strict=True)), exact)
    exact = 128 * one * min(1.0, 1.0 / float(one.norm()))
    error = float((total - exact).norm())
    if cancel:
        assert error <= 1e-12
    else:
        assert 1e-9 < error <= 3e-4


def test_the_cancellation_limit_keeps_a_block_within_an_eighth_of_the_slack() -> None:
    for length in (1, 2, 50, 5000):
        additions = BLOCK_ROWS * length + 8
        gamma = additions * 2.0**-53 / (1 - additions * 2.0**-53)
        assert gamma * BLOCK_ROWS * cancellation_limit(length) <= SUMMATION_SLACK / 8


ODD_ROWS: dict[str, tuple[list[float], float]] = {
    "zero": ([0.0] * WIDTH, 0.0),
    "ordinary": ([3.0, -1.0, 2.0, 0.5], 1.0),
    "huge": ([1e30, -1e30, 0.0, 0.0], 1.0),
    "beyond huge": ([1e308, 1e308, -1e308, 1.0], 0.0),
    "subnormal": ([5e-324, 1e-310, 0.0, 0.0], 1.0),
    "mixed": ([1e35, 1e-35, 1.0, -1.0], 0.0),
    "nan": ([np.nan, 0.0, 0.0, 1.0], 1.0),
    "inf": ([np.inf, -np.inf, 0.0, 0.0], 0.0),
    "label nan": ([1.0, 1.0, 1.0, 1.0], np.nan),
    "label unknown": ([1.0, 1.0, 1.0, 1.0], 77.0),
    "label negative": ([1.0, 1.0, 1.0, 1.0], -3.0),
}


@pytest.mark.parametrize("adjacency", ["zero-out", "replace", "add-remove"])
@pytest.mark.parametrize("kind", ["layers", pytest.param("convolution", marks=pytest.mark.slow)])
def test_record_and_replay_finds_nothing_but_the_declared_difference(kind: str, adjacency: str) -> None:
    """Run on D, replay on D' with released outputs fixed (tests/replay/test_record_replay.py)."""
    from tests.replay.test_record_replay import assert_indistinguishable_but_for_the_noise, observe

    model, loss = network(kind, torch.float32)
    oracle = dpsco.torch.oracle(model, loss, labels=torch.int64, memory=1 << 14)  # several passes per block
    n = 40 if adjacency == "add-remove" else 80
    plan = plan_network(oracle.size, n, Budget(1.0, 1e-6, adjacency), clip=0.05)
    plan = dataclasses.replace(plan, method=AcceleratedSRGD(rounds=2, beta=4.0, clip=0.05), rule="by hand")
    rng = np.random.default_rng(3)
    rows, labels = rng.normal(size=(n, WIDTH)), rng.integers(0, 3, n).astype(float)
    ids, place, largest = list(range(n)), 33, 0.0
    names = (
        ["ordinary", "nan", "label unknown"] if adjacency == "add-remove" else list(ODD_ROWS)
    )  # a pass a row is slow
    for name in names:
        odd = ODD_ROWS[name]
        features, targets = rows.copy(), labels.copy()
        features[place], targets[place] = odd
        others, other_targets, left = rows.copy(), labels.copy(), ids
        if adjacency == "zero-out":
            others[place] = np.nan
        elif adjacency == "add-remove":
            others, other_targets = np.delete(features, place, axis=0), np.delete(targets, place)
            left = ids[:place] + ids[place + 1 :]
        with_ids = adjacency == "add-remove"
        makes = [
            functools.partial(dpsco.stream, x, y, ids=who if with_ids else None, non_finite="zero")
            for x, y, who in ((features, targets, ids), (others, other_targets, left))
        ]
        one = observe(plan, makes[0], oracle=oracle)
        other = observe(plan, makes[1], one, oracle=oracle)
        share = assert_indistinguishable_but_for_the_noise(plan, one, other)
        largest = max(largest, share)
        if name in ("nan", "inf", "label nan") and adjacency != "replace":
            assert share == 0.0
    assert largest > 0.5
