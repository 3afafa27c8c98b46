"""Refusal of models that cannot be trained one row at a time, by their layers and by passes over synthetic rows.

Batch statistics mix rows, and every row is computed by itself: such a model would not train as what it is. Buffers that
a pass writes would have to carry rows to later passes. Random layers make the difference of two points meaningless. If
the types of the layers do not show this, synthetic rows do. They contain nothing of the data, so the result of the
checks is public. Privacy does not rest on it (recorded.py, passes.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils._pytree import tree_leaves

from dpsco.clipping.torch.recorded import RANDOM, WRITES
from dpsco.errors import InvalidArgument

__all__ = ["check_layers", "check_rows_independent", "synthetic_rows"]

Tensor = Any
Rows = tuple[Tensor, Tensor]
ROWS = 5


def check_layers(module: Any) -> None:
    """Raise InvalidArgument for layers that mix rows, are random as they are set, or have no shape yet."""
    for name, layer in module.named_modules():
        here = f"{name or 'the model'} ({type(layer).__name__})"
        if any(nn.parameter.is_lazy(tensor) for tensor in (*layer.parameters(False), *layer.buffers(False))):
            raise InvalidArgument(
                f"{here} takes its shape from the first rows that it sees. Call the model once on a made-up row before."
            )
        if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
            raise InvalidArgument(
                f"{here} normalises with statistics of the batch, so every row affects every other row's "
                "gradient: no clip covers that. Use GroupNorm or LayerNorm, or model.eval() with public statistics."
            )
        if isinstance(layer, _InstanceNorm) and layer.training and layer.track_running_stats:
            raise InvalidArgument(
                f"{here} keeps running statistics of the rows without noise. Set track_running_stats=False."
            )
        if layer.training and _is_random(layer):
            raise InvalidArgument(
                f"{here} is random: a row would pass through different networks at the two points, and their "
                "difference would be noise. Set the probability of dropout to 0, or call model.eval(): one pass with "
                "noise rarely overfits."
            )
        if getattr(layer, "max_norm", None) is not None and isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            raise InvalidArgument(
                f"{here} with max_norm rescales its table in place at the rows that are looked up: one row would "
                "change the values that later rows read. Remove max_norm."
            )


def _is_random(layer: Any) -> bool:
    if isinstance(layer, (nn.MultiheadAttention, nn.RNNBase)):
        return bool(layer.dropout > 0)
    return isinstance(layer, nn.RReLU) or (isinstance(layer, _DropoutNd) and layer.p > 0)


def synthetic_rows(shape: tuple[int, ...], inputs: Any, labels: Any, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return some rows, the same with all but the first changed, and labels of 0."""
    numbers = torch.rand((2 * ROWS - 1, *shape), generator=torch.Generator().manual_seed(0))
    if not inputs.is_floating_point:
        numbers = numbers.round()  # 0 and 1: indices that every table has
    rows = numbers.to(device, inputs)
    zeros = torch.zeros(ROWS, dtype=labels, device=device)
    return rows[:ROWS], torch.cat([rows[:1], rows[ROWS:]]), zeros


def check_rows_independent(module: Any, loss: Any, rows: Tensor, others: Tensor, labels: Tensor) -> None:
    """Check on synthetic rows that the model computes for a row of a batch what it computes for that row.

    Every row is computed by itself, so a model that mixes rows would train as another one than it is. Privacy does not
    rest on this check: a model that mixes rows for values that synthetic rows do not have never gets two of them.

    Raises
    ------
    InvalidArgument
        If the model or the loss mixes rows, is random, or writes into buffers or parameters.
    """
    before = {name: value.detach().clone() for name, value in (*module.named_buffers(), *module.named_parameters())}
    values = {name: value.clone() for name, value in before.items()}

    def run(x: Tensor, y: Tensor, seed: int) -> tuple[list[Tensor], Tensor]:
        torch.default_generator.manual_seed(seed)
        outputs = functional_call(module, values, (x.clone(),))
        if any(output.ndim == 0 or len(output) != len(x) for output in _flat(outputs)):
            raise InvalidArgument("Expected the model to return one output per row, rows first.")
        return _flat(outputs), loss(outputs, y.clone())

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        (first, losses), (again, losses_again) = run(rows, labels, 1), run(rows, labels, 2)
        vector = losses.ndim > 0 and len(losses) == len(rows)
        apart = [
            _apart(run, (rows, labels), (others, torch.full_like(labels, label)), place, vector=vector)
            for label in _labels(first)
            for place in (0, ROWS - 1)
        ]
    if any(not _same_numbers(values[name], value) for name, value in before.items()):
        raise InvalidArgument(WRITES)
    if not all(map(_same_numbers, [*first, losses], [*again, losses_again])):
        raise InvalidArgument(RANDOM)
    if not all(apart):
        raise InvalidArgument(
            "The output or the loss of a row depends on the other rows of the batch. Each row is computed by itself: "
            "another model than this one would be trained. Use layers that process each row by itself, and a loss with "
            "reduction='none'."
        )


def _labels(outputs: list[Tensor]) -> list[int]:
    """Return labels of neighbours: the first, the second and the last class."""
    top = max([1, *(output.shape[-1] - 1 for output in outputs if output.ndim > 1)])
    return list(dict.fromkeys((0, 1, top)))


def _apart(run: Any, rows: Rows, neighbours: Rows, place: int, *, vector: bool) -> bool:
    """Whether the row at ``place`` gets the same bits beside these neighbours; True if the loss refuses them."""
    batches = [(batch[0].clone(), batch[1].clone()) for batch in (rows, neighbours)]
    for x, y in batches:
        x[place], y[place] = rows[0][0], rows[1][0]
    try:
        (one, losses), (two, other_losses) = (run(x, y, 1) for x, y in batches)
    except Exception:
        return True
    if vector:
        one, two = [*one, losses], [*two, other_losses]
    return all(_same_numbers(a[place], b[place]) for a, b in zip(one, two, strict=True))


def _flat(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def _same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers, NaN in the same places."""
    numbers = torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
    return bool(numbers and torch.equal(torch.isnan(one), torch.isnan(other)))
