"""Networks of ``python -m benchmarks ghost_torch layers``: one for each layer that has a ghost rule.

name: rows of the batch, shape of a row (whole numbers below ``words`` if it is given), the network
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

ROWS = 2048


@dataclasses.dataclass(frozen=True)
class Layered:
    """A network with a layer, and the rows that suit it."""

    shape: tuple[int, ...]
    make: Callable[[], nn.Module]
    words: int | None = None

    def rows(self) -> tuple[Any, Any]:
        """Return synthetic rows and labels of ten classes."""
        rng = np.random.default_rng(0)
        if self.words is not None:
            return rng.integers(0, self.words, (ROWS, *self.shape)), rng.integers(0, 10, ROWS)
        return rng.random((ROWS, *self.shape), dtype=np.float32), rng.integers(0, 10, ROWS)


class Mean(nn.Module):
    """The mean over places."""

    def forward(self, x: Any) -> Any:
        return x.mean(1)


class SelfAttention(nn.Module):
    """Attention of every place to every other, with a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Any) -> Any:
        return x + self.mix(x, x, x, need_weights=False)[0]


def _normalised(norm: Callable[[int], nn.Module]) -> nn.Module:
    layers = [part for width in (784, 512) for part in (nn.Linear(width, 512), norm(512), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(512, 10))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(1_000, 64), layer, Mean(), nn.Linear(64, 10))


def _convolutions(*between: Callable[[int], nn.Module]) -> nn.Module:
    layers: list[nn.Module] = []
    for into, out in ((1, 16), (16, 32)):
        layers += [nn.Conv2d(into, out, 5, stride=2, padding=2), *(make(out) for make in between), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 7 * 7, 10))


LAYERS = {
    "Linear": Layered((784,), lambda: nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))),
    "Conv1d": Layered(
        (8, 128),
        lambda: nn.Sequential(
            nn.Conv1d(8, 32, 5, stride=2), nn.ReLU(), nn.Conv1d(32, 32, 5, stride=2), nn.Flatten(), nn.Linear(928, 10)
        ),
    ),
    "Conv2d": Layered((1, 28, 28), _convolutions),
    "GroupNorm": Layered((1, 28, 28), lambda: _convolutions(lambda out: nn.GroupNorm(4, out))),
    "LayerNorm": Layered((784,), lambda: _normalised(nn.LayerNorm)),
    "RMSNorm": Layered((784,), lambda: _normalised(nn.RMSNorm)),
    "Embedding": Layered((64,), lambda: nn.Sequential(nn.Embedding(5_000, 64), Mean(), nn.Linear(64, 10)), 5_000),
    "MultiheadAttention": Layered(
        (16, 64), lambda: nn.Sequential(SelfAttention(64, 4), nn.Flatten(), nn.Linear(1024, 10))
    ),
    "TransformerEncoderLayer": Layered((32,), _encoder, 1_000),
}
