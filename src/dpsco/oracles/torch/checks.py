"""Models that cannot be trained one row at a time are refused, by their layers and by a rehearsal on public rows.

A row may reach the sum through its own clipped difference and in no other way. Batch statistics mix rows, buffers that
a pass writes carry rows to later passes, random layers make a difference of two points meaningless. What the types of
layers do not show, made-up rows do: they contain nothing of the data, so what the rehearsal finds is public.
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

from dpsco.errors import InvalidArgument

__all__ = ["check_layers", "check_rows_apart", "made_up_rows"]

Tensor = Any
ROWS = 5


def check_layers(module: Any) -> None:
    """Refuse layers that mix rows, or are random, as they are set."""
    for name, layer in module.named_modules():
        here = f"{name or 'the model'} ({type(layer).__name__})"
        if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
            raise InvalidArgument(
                f"{here} normalises with statistics of the batch, which lets every row reach every other row's "
                "gradient: no clip covers that. Use GroupNorm or LayerNorm, or model.eval() with public statistics."
            )
        if isinstance(layer, _InstanceNorm) and layer.training and layer.track_running_stats:
            raise InvalidArgument(
                f"{here} keeps running statistics of the rows, which never cross release. Set "
                "track_running_stats=False."
            )
        if isinstance(layer, (_DropoutNd, nn.RReLU)) and layer.training and getattr(layer, "p", 1.0) > 0:
            raise InvalidArgument(
                f"{here} is random: the same row would meet another network at each of the two points, and their "
                "difference would be noise. Remove it or call model.eval(); one pass rarely overfits."
            )


def made_up_rows(width: int, inputs: Any, labels: Any, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Some rows, the same with all but the first changed, and labels of 0."""
    numbers = torch.rand((2 * ROWS - 1, width), generator=torch.Generator().manual_seed(0))
    if not inputs.is_floating_point:
        numbers = numbers.round()  # 0 and 1: indices that every table has
    rows = numbers.to(device, inputs)
    zeros = torch.zeros(ROWS, dtype=labels, device=device)
    return rows[:ROWS], torch.cat([rows[:1], rows[ROWS:]]), zeros


def check_rows_apart(module: Any, loss: Any, rows: Tensor, others: Tensor, labels: Tensor) -> bool:
    """Refuse what mixes rows, is random, or writes into buffers. Whether the loss gives a number for each row."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    buffers = {name: buffer.clone() for name, buffer in before.items()}

    def run(x: Tensor, seed: int) -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(seed)
        outputs = functional_call(module, buffers, (x,))
        if any(output.ndim == 0 or len(output) != len(x) for output in _flat(outputs)):
            raise InvalidArgument("Expected the model to return one output for each row, rows first.")
        return _flat(outputs), loss(outputs, labels)

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        (first, losses), (again, _), (other, other_losses) = run(rows, 1), run(rows, 2), run(others, 1)
    if any(not _same(buffers[name], value) for name, value in before.items()):
        raise InvalidArgument(
            "The model writes into its buffers during a pass: rows would reach later rounds without crossing release. "
            "Freeze what it keeps (model.eval()), or leave it out."
        )
    if not all(map(_same, first, again)):
        raise InvalidArgument(
            "The model is random: two passes over the same rows differ, so the difference of two points would be "
            "noise. Remove the random part or call model.eval()."
        )
    vector = losses.ndim > 0 and len(losses) == len(rows)
    if vector:
        first, other = [*first, losses], [*other, other_losses]
    if not all(_same(one[0], two[0]) for one, two in zip(first, other, strict=True)):
        raise InvalidArgument(
            "The output or the loss of a row depends on the other rows of the batch: no clip covers that. Use layers "
            "that look at one row at a time, and a loss with reduction='none'."
        )
    return vector


def _flat(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)))
