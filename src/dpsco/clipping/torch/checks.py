"""Refusal of models that cannot be trained one row at a time, by their layers and by passes over synthetic rows.

A row may affect the sum only through its own clipped difference. Batch statistics mix rows. Buffers that a pass writes
carry rows to later passes. Random layers make the difference of two points meaningless. If the types of the layers do
not show this, synthetic rows do. They contain nothing of the data, so the result of the checks is public.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils._pytree import tree_leaves

from dpsco.clipping.torch.value_reads import reads_values
from dpsco.errors import InvalidArgument

__all__ = [
    "ROWS",
    "Rows",
    "among",
    "check_layers",
    "check_rows_independent",
    "same_numbers",
    "synthetic_rows",
]

Tensor = Any
Rows = tuple[Tensor, Tensor]
ROWS = 5
CROWD = 32


def check_layers(module: Any) -> None:
    """Raise InvalidArgument for layers that, with their current settings, mix rows or are random."""
    for name, layer in module.named_modules():
        here = f"{name or 'the model'} ({type(layer).__name__})"
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


def check_rows_independent(
    module: Any, loss: Any, rows: Tensor, others: Tensor, labels: Tensor
) -> tuple[bool, list[Rows]]:
    """Check that rows do not affect each other.

    Return whether the loss gives one number per row, and the batches of neighbours that were tried.

    Raises
    ------
    InvalidArgument
        If the model or the loss mixes rows, is random, or writes into buffers or parameters.
    """
    before = {name: value.detach().clone() for name, value in (*module.named_buffers(), *module.named_parameters())}
    values = {name: value.clone() for name, value in before.items()}

    def run(x: Tensor, y: Tensor, seed: int) -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(seed)
        outputs = functional_call(module, values, (x,))
        if any(output.ndim == 0 or len(output) != len(x) for output in _flat(outputs)):
            raise InvalidArgument("Expected the model to return one output per row, rows first.")
        return _flat(outputs), loss(outputs, y)

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        (first, losses), (again, losses_again) = run(rows, labels, 1), run(rows, labels, 2)
        vector, tried = losses.ndim > 0 and len(losses) == len(rows), _neighbourhoods(others, labels, first)
        tried += [(words, labels) for words in _words(module, others)]
        apart = [
            _apart(run, (rows, labels), neighbours, place, vector=vector)
            for neighbours in tried
            for place in (0, ROWS - 1)
        ]
        if not reads_values(lambda: run(rows, labels, 1)):  # those that cut off padding see one row at a time
            short = _padded(rows), labels
            apart += [_apart(run, short, (others, labels), place, vector=vector) for place in (0, ROWS - 1)]
        alike, *crowds = _crowds(others, labels)
        apart += [_apart(run, alike, crowd, CROWD - 1, vector=vector) for crowd in crowds]
    if any(not same_numbers(values[name], value) for name, value in before.items()):
        raise InvalidArgument(
            "The model writes into its buffers or parameters during a pass: rows would affect later rounds without "
            "noise. Freeze these tensors (model.eval()), or remove them."
        )
    if not all(map(same_numbers, [*first, losses], [*again, losses_again])):
        raise InvalidArgument(
            "The model or the loss is random: two passes over the same rows differ, so the difference of two points "
            "would be noise. Remove the random part or call model.eval()."
        )
    if not all(apart):
        raise InvalidArgument(
            "The output or the loss of a row depends on the other rows of the batch: no clip covers that. Use layers "
            "that process each row by itself, and a loss with reduction='none'."
        )
    return vector, tried


def _neighbourhoods(others: Tensor, labels: Tensor, outputs: list[Tensor]) -> list[Rows]:
    """Return batches of neighbours: other rows, padding, rows of any size, other labels (up to the last class).

    Rows that are not finite never reach a model. Here they show what depends on them, however little: ``max`` and sums
    pass NaN on, comparisons with a threshold see infinity.
    """
    top = max([1, *(output.shape[-1] - 1 for output in outputs if output.ndim > 1)])
    found = [(others, labels), *((others, torch.full_like(labels, value)) for value in dict.fromkeys((1, top)))]
    found += [(torch.zeros_like(others), labels), (_padded(others), labels)]
    if others.is_floating_point():
        found += [(size * (2.0 * others - 1.0), labels) for size in (1e3, 1e30)]
        found += [(torch.full_like(others, value), labels) for value in (math.inf, -math.inf, math.nan)]
    if labels.is_floating_point():
        found.append((others, torch.full_like(labels, -1e3)))
    return found


def _words(module: Any, others: Tensor) -> list[Tensor]:
    """Return rows of whole numbers above 1, up to the length of each table; none for other types.

    A word may mean something to a model, such as padding: 0 and 1 do not show what it does to other rows. These are
    the first words in both orders, random ones of each table, and rows that end in its last word or in ``padding_idx``.
    """
    if others.is_floating_point():
        return []
    sizes = {len(table) for table in (*module.parameters(), *module.buffers()) if table.ndim == 2 and len(table) > 2}
    ends = {size - 1 for size in sizes}
    ends |= {int(layer.padding_idx) for layer in module.modules() if getattr(layer, "padding_idx", None) is not None}
    found = [_padded(others, word) for word in sorted(ends)]
    for size in sorted(sizes):
        first = torch.arange(others.numel()) % size
        mixed = torch.randint(size, first.shape, generator=torch.Generator().manual_seed(0))
        found += [words.reshape(others.shape).to(others) for words in (first, first.flip(0), mixed)]
    return found


def _crowds(others: Tensor, labels: Tensor) -> list[Rows]:
    """Return longer batches of one row each, the first row's own first: rows alike compete for what is scarce.

    Experts with a capacity drop rows beyond it, by tensors alone, and a handful of rows does not fill them.
    """
    far = 1e3 * (2.0 * others - 1.0) if others.is_floating_point() else others
    kinds = [others[0], torch.zeros_like(others[0]), *far[1:]]
    return [(kind.expand(CROWD, *kind.shape), labels[:1].expand(CROWD)) for kind in kinds]


def _padded(rows: Tensor, value: int = 0) -> Tensor:
    """Return the rows with ``value`` in the second half of their first axis."""
    padded = rows.clone()
    if rows.ndim > 1:
        padded[:, (rows.shape[1] + 1) // 2 :] = value
    return padded


def _apart(run: Any, rows: Rows, neighbours: Rows, place: int, *, vector: bool) -> bool:
    """Whether the row at ``place`` gets the same bits beside these neighbours; True if the model refuses them."""
    own = rows[0][:1], rows[1][:1]
    try:
        one, losses = run(*among(rows, own, place), 1)
        two, other_losses = run(*among(neighbours, own, place), 1)
    except Exception:  # an error on another scale or label says nothing about mixing
        return True
    if vector:
        one, two = [*one, losses], [*two, other_losses]
    return all(same_numbers(a[place], b[place]) for a, b in zip(one, two, strict=True))


def among(others: Rows, own: Rows, place: int) -> Rows:
    """Return rows and labels of a batch with those of ``own``, one row, at ``place``."""
    together = others[0].clone(), others[1].clone()
    for part, one in zip(together, own, strict=True):
        part[place] = one[0]
    return together


def _flat(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers, NaN in the same places."""
    numbers = torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
    return bool(numbers and torch.equal(torch.isnan(one), torch.isnan(other)))
