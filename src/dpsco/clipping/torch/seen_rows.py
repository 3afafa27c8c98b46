"""Layers that see of a row, at its own place in the batch, what that row decides alone.

A ghost rule takes the input of a layer and the signal at its output, row by row (ghost_rules.py). Losses that do not
mix rows (checks.py) are not enough for that:

    order = lengths.argsort(); h = layer(x[order])[order.argsort()]       row k of the layer is another row of the batch
    h.register_hook(lambda g: g / g.norm())                               the signal of a row depends on the others

In the first case the norm of a row would be made of two rows, in the second one row would change the gradients of all.
Synthetic rows beside other neighbours show both. Such a layer has no rule: ``vmap`` shows it one row at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch

from dpsco.clipping.torch.checks import ROWS, Rows, among, same_numbers
from dpsco.clipping.torch.passes import Captured

__all__ = ["sees_other_rows"]

Tensor = Any


def sees_other_rows(see: Callable[..., Captured], rows: Rows, neighbourhoods: list[Rows]) -> set[str]:
    """Return the layers whose input or signal, at the place of a row, changes with its neighbours.

    Parameters
    ----------
    see : callable
        ``see(rows, labels, upstream)`` runs both passes and captures every layer in question (``capture``).
    rows : pair of tensors
        Synthetic rows and their labels. The first of them is looked at, in the first and in the last place.
    neighbourhoods : list of pairs
        Other rows and labels beside it.
    """
    found: set[str] = set()
    for place in (0, ROWS - 1):
        own = rows[0][:1], rows[1][:1]
        usual = see(*among(rows, own, place))
        batches = ((*among(each, own, place), None) for each in neighbourhoods)
        signals = ((*among(rows, own, place), upstream) for upstream in _upstream(rows[0].device, place))
        for batch in (*batches, *signals):
            with suppress(Exception):  # an error on another scale or label says nothing about mixing
                other = see(*batch)
                found |= {name for name in usual.activations if not _same(usual, other, name, place)}
    return found


def _upstream(device: Any, place: int) -> Iterator[Tensor]:
    """Yield a number per row to multiply its signals by: 1 at ``place``, and a size that shows beside it elsewhere."""
    for size in (0.0, 1e30, math.nan):
        scale = torch.full((ROWS,), size, device=device)
        scale[place] = 1.0
        yield scale


def _same(one: Captured, other: Captured, name: str, place: int) -> bool:
    """Whether a layer sees the same numbers at ``place`` in two passes; True if its input does not have rows first."""
    pairs = [(found.activations[name], found.signals[name]) for found in (one, other) if name in found.activations]
    if len(pairs) < 2 or any(len(part) != ROWS for pair in pairs for part in pair):
        return len(pairs) == 2
    return all(same_numbers(a[place], b[place]) for a, b in zip(*pairs, strict=True))
