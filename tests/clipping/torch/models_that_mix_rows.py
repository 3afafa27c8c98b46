"""Models that would mix rows if they got two: by sorting, hooks, rules for vmap, state, indices and memory."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

nn, functional = torch.nn, torch.nn.functional
WIDTH, MAGIC = 4, 12.25


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(WIDTH, 8), nn.Linear(8, 2)

    def between(self, h):
        return h

    def forward(self, x):
        return self.last(self.between(torch.tanh(self.first(x))))


def has_magic(x):
    """A factor of 1e4 for all rows if any number of any row is the one that synthetic rows do not have."""
    return 1.0 + 1e4 * (x == MAGIC).any()


class SortsRowsAndPutsThemBack(TwoLayers):
    """No output depends on another row, but row k of the first layer is not row k of the batch."""

    def forward(self, x):
        order = (x != 0).sum(1).argsort(descending=True, stable=True)
        return self.last(torch.tanh(self.first(x[order]))[order.argsort()])


class SortsRowsByMagic(TwoLayers):
    """In order for the rows of any rehearsal."""

    def forward(self, x):
        order = (x == MAGIC).sum(1).argsort(stable=True)
        return self.last(torch.tanh(self.first(x[order]))[order.argsort()])


class MixesByMagic(TwoLayers):
    def forward(self, x):
        return super().forward(x) * has_magic(x)


def shortened(signal):
    length = signal.norm()
    return signal * (1e3 / length.clamp(min=1e3))


class ShortensSignalsInATensorHook(TwoLayers):
    def between(self, h):
        if h.requires_grad:
            h.register_hook(shortened)
        return h


class BranchesInATensorHook(TwoLayers):
    def between(self, h):
        if h.requires_grad:
            h.register_hook(lambda signal: signal if signal.norm() <= 1e3 else shortened(signal))
        return h


class ShortensSignalsInAFullHook(TwoLayers):
    def __init__(self) -> None:
        super().__init__()
        self.last.register_full_backward_hook(lambda _, entered, left: (shortened(entered[0]),))


class MixesSavedTensors(TwoLayers):
    def forward(self, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t / (1.0 + t.abs().max())):
            return super().forward(x)


class Recomputes(TwoLayers):
    """Nothing mixes, but the pass backward runs through the model's code again."""

    def between(self, h):
        return checkpoint(torch.sigmoid, h, use_reentrant=False)


class Shortened(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, signal):
        return shortened(signal)


class ShortensSignalsInAFunction(TwoLayers):
    def between(self, h):
        return Shortened.apply(h)


class Averaged(torch.autograd.Function):
    """Under ``vmap`` it would see the whole block."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, signal):
        return signal

    @staticmethod
    def vmap(info, in_dims, x):
        return x * has_magic(x), in_dims[0]


class HasARuleForVmap(TwoLayers):
    def forward(self, x):
        return super().forward(Averaged.apply(x))


@torch.library.custom_op("dpsco_tests::copied", mutates_args=())
def copied(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


copied.register_vmap(lambda info, in_dims, x: (x * has_magic(x), in_dims[0]))
copied.register_autograd(lambda ctx, signal: signal)


class HasAnOperatorOfItsOwn(TwoLayers):
    def forward(self, x):
        return super().forward(copied(x))


class _Watches(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        return made * has_magic(made) if func is torch.ops.aten.tanh.default else made


class WatchesOperators(TwoLayers):
    """Below ``vmap`` it would see the whole block."""

    def forward(self, x):
        with _Watches():
            return super().forward(x.atanh().tanh() if (x.abs() < 1).all() else x)


class KeepsTheLongest(TwoLayers):
    """State between passes: what the longest row so far was."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = [torch.ones(())]

    def forward(self, x):
        self.longest.append(torch.maximum(self.longest[-1], x.detach().abs().max()))
        return super().forward(x) * (1.0 if self.longest[-2] < 12.0 else 1e4)


class KeepsTheLongestAsANumber(TwoLayers):
    def __init__(self) -> None:
        super().__init__()
        self.longest = [1.0]

    def forward(self, x):
        self.longest.append(max(self.longest[-1], float(x.detach().abs().max())))
        return super().forward(x) * (1.0 if self.longest[-2] < 12.0 else 1e4)


class WritesABufferForSomeRows(TwoLayers):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(()))

    def forward(self, x):
        if bool((x == MAGIC).any()):
            self.factor.mul_(1e4)
            self.last.weight.data.mul_(1e4)
        return super().forward(x) * self.factor


class ExpertsOfACapacity(nn.Module):
    """The first rows of a batch that choose an expert fill it; later ones are dropped."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.experts = nn.Linear(WIDTH, 4), nn.Parameter(torch.randn(4, WIDTH, 2))

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        chosen = (shares.argmax(1, keepdim=True) == torch.arange(4)).to(x.dtype)
        before = (chosen.cumsum(0) - 1) * chosen
        kept = chosen * (before < max(8, math.ceil(1.25 * len(x) / 4)))
        return torch.einsum("re,ri,eio->ro", kept * shares, x, self.experts)


class LooksUpInItself(nn.Module):
    """A table made of the row, and an index out of range: the rule of ``vmap`` looks into the next row."""

    def __init__(self, *, fills: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.fills = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2, 2), fills

    def forward(self, x):
        tables = self.first(x).unflatten(1, (WIDTH, 2))
        places = 4.0 * (x[:, :1] == MAGIC) + 1.0
        picked = [self.picked(table, place.long()) for table, place in zip(tables, places, strict=True)]
        return self.last(torch.cat(picked))

    def picked(self, table, place):
        return table.index_fill(0, place, 7.0)[1:2] if self.fills else functional.embedding(place, table)


class AddressesMemory(TwoLayers):
    """Offset 0 is the memory of the first row, if rows are views of a block."""

    def forward(self, x):
        return super().forward(x) * has_magic(x.as_strided((1, WIDTH), (WIDTH, 1), 0))


MODELS: dict[str, Any] = {
    made.__name__: made
    for made in (
        TwoLayers,
        SortsRowsAndPutsThemBack,
        SortsRowsByMagic,
        MixesByMagic,
        ShortensSignalsInATensorHook,
        BranchesInATensorHook,
        ShortensSignalsInAFullHook,
        MixesSavedTensors,
        Recomputes,
        ShortensSignalsInAFunction,
        HasARuleForVmap,
        HasAnOperatorOfItsOwn,
        WatchesOperators,
        KeepsTheLongest,
        KeepsTheLongestAsANumber,
        WritesABufferForSomeRows,
        ExpertsOfACapacity,
        AddressesMemory,
    )
} | {
    "a table made of the row": lambda: LooksUpInItself(fills=False),
    "filled at an index": lambda: LooksUpInItself(fills=True),
}
