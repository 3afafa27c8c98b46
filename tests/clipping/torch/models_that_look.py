"""Linear models whose first step looks at its rows: keeps them, compares them, counts by them or raises on them."""

from __future__ import annotations

import numpy as np
import torch

nn, functional = torch.nn, torch.nn.functional
WIDTH = 4


class Linear(nn.Module):
    """A linear layer after the layer under test."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(WIDTH, 3), None

    def before(self, x):
        return x

    def forward(self, x):
        return self.layer(self.before(x))


class Keeps(Linear):
    def before(self, x):
        self.seen = x.detach()
        return x


class ScaledByTheLongest(Linear):
    def before(self, x):
        return x / x.abs().max().clamp(min=10)  # no difference between rows of [0, 1]


class RunningTotal(Linear):
    def before(self, x):
        return x.cumsum(0)  # the first row sees nobody


class WritesAFrozenParameter(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(WIDTH), requires_grad=False)

    def before(self, x):
        with torch.no_grad():
            self.centre.add_(x.mean(0), alpha=0.1)
        return x


class Raises(Linear):
    def __init__(self, error) -> None:
        super().__init__()
        self.error = error

    def before(self, x):
        if bool((x > 100).any()):
            raise self.error(f"rows {x}")
        return x


def some(x):
    """Which numbers are of a size that synthetic rows do not have."""
    return (x.abs() > 1e6) & (x.abs() < 1e8)


class TurnsSomeBatches(Linear):
    def before(self, x):
        return -x if some(x).any() else x


class CountsSomeNumbers(Linear):
    def before(self, x):
        return x * (-1.0) ** len(x[some(x)])  # a shape, without a branch


class ListsNumbers(Linear):
    def before(self, x):
        return -x if any(some(x).flatten().tolist()) else x  # no operator reads the list


class CopiesNumbers(Linear):
    def before(self, x):
        return -x if np.any(some(x).numpy()) else x


class RepeatsByNumbers(Linear):
    def before(self, x):
        return x * (-1.0) ** len(torch.repeat_interleave(some(x).any()[None].long()))


class SplitsAtNumbers(Linear):
    def before(self, x):
        return x * (-1.0) ** len(x.tensor_split(some(x).any()[None].long())[0])


class PacksByNumbers(Linear):
    def before(self, x):
        steps = 1 + some(x).any(1).long()
        packed = nn.utils.rnn.pack_padded_sequence(x, steps, batch_first=True, enforce_sorted=False)
        return x * (-1.0) ** len(packed.batch_sizes)


class TurnedByAnEmptyRow(Linear):
    def before(self, x):
        return torch.where((x == 0).all(1).any(), -x, x)


class TurnedByAShortRow(Linear):
    def before(self, x):
        return torch.where(((x[:, -1] == 0) & (x[:, 0] != 0)).any(), -x, x)


class DividedByTheLongestWithoutPadding(Linear):
    def before(self, x):
        return x / (x != 0).sum(1).max().clamp(min=1)


class ShortenedByTheLongest(Linear):
    def before(self, x):
        return x / (1.0 + functional.relu(x.abs().max() - 1e4))  # tensors alone


class TurnedByALargeRow(Linear):
    def before(self, x):
        return torch.where((x.abs() > 1e6).any(), -x, x)  # no value is read, and NaN is not above a threshold


class RaisesOnZeros(Linear):
    def before(self, x):
        if bool((x == 0).all(dim=1).any()):
            raise ValueError(f"rows {x}")
        return x


class RaisesAtTheSecondPoint(Linear):
    def before(self, x):
        if bool((x > 100).any()) and float(self.layer.bias.detach()[0]) > 5:
            raise ValueError(f"rows {x}")
        return x
