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
Rows = tuple[Tensor, Tensor]
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
        if getattr(layer, "max_norm", None) is not None and isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            raise InvalidArgument(
                f"{here} with max_norm shortens its table in place where rows look it up: a row would change what "
                "later rows find there. Leave max_norm out."
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
    """Refuse what mixes rows, is random, or writes into tensors. Whether the loss gives a number for each row."""
    before = {name: value.detach().clone() for name, value in (*module.named_buffers(), *module.named_parameters())}
    values = {name: value.clone() for name, value in before.items()}

    def run(x: Tensor, y: Tensor, seed: int) -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(seed)
        outputs = functional_call(module, values, (x,))
        if any(output.ndim == 0 or len(output) != len(x) for output in _flat(outputs)):
            raise InvalidArgument("Expected the model to return one output for each row, rows first.")
        return _flat(outputs), loss(outputs, y)

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        (first, losses), (again, losses_again) = run(rows, labels, 1), run(rows, labels, 2)
        vector = losses.ndim > 0 and len(losses) == len(rows)
        apart = [
            _apart(run, (rows, labels), company, place, vector=vector)
            for company in _companies(others, labels, first)
            for place in (0, ROWS - 1)
        ]
    if any(not _same(values[name], value) for name, value in before.items()):
        raise InvalidArgument(
            "The model writes into its buffers or parameters during a pass: rows would reach later rounds without "
            "crossing release. Freeze what it keeps (model.eval()), or leave it out."
        )
    if not all(map(_same, [*first, losses], [*again, losses_again])):
        raise InvalidArgument(
            "The model or the loss is random: two passes over the same rows differ, so the difference of two points "
            "would be noise. Remove the random part or call model.eval()."
        )
    if not all(apart):
        raise InvalidArgument(
            "The output or the loss of a row depends on the other rows of the batch: no clip covers that. Use layers "
            "that look at one row at a time, and a loss with reduction='none'."
        )
    return vector


def _companies(others: Tensor, labels: Tensor, outputs: list[Tensor]) -> list[Rows]:
    """What may stand beside a row: other rows, long ones of either sign, other labels (up to the last class)."""
    top = max([1, *(output.shape[-1] - 1 for output in outputs if output.ndim > 1)])
    found = [(others, labels), *((others, torch.full_like(labels, value)) for value in dict.fromkeys((1, top)))]
    if others.is_floating_point():
        found.append((1e3 * (2.0 * others - 1.0), labels))
    if labels.is_floating_point():
        found.append((others, torch.full_like(labels, -1e3)))
    return found


def _apart(run: Any, rows: Rows, company: Rows, place: int, *, vector: bool) -> bool:
    """Whether the row at ``place`` gets the same bits in this company; True if the model cannot take the company."""

    def among(others: Tensor, own: Tensor) -> Tensor:
        together = others.clone()
        together[place] = own[0]
        return together

    alone, label = rows[0][:1], rows[1][:1]
    try:
        one, losses = run(among(rows[0], alone), rows[1], 1)
        two, other_losses = run(among(company[0], alone), among(company[1], label), 1)
    except Exception:  # what made-up rows of another scale or label raise says nothing about mixing
        return True
    if vector:
        one, two = [*one, losses], [*two, other_losses]
    return all(_same(a[place], b[place]) for a, b in zip(one, two, strict=True))


def _flat(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)))
