"""How far noise on the weights moves the outputs of a model: a public number, from synthetic rows of random words.

    sqrt(mean of (f(x + sigma z, d) - f(x, d) - its mean over rows d)^2),    z standard normal

A shift that is the same for every row is left out: the last bias learns it. Rows of numbers may have any scale, so
nothing is known about them; words are whole numbers below the size of a table, and initial embeddings are alike.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from dpsco.clipping.torch.passes import fixed_settings
from dpsco.clipping.torch.weights import Weights

__all__ = ["output_change"]

ROWS, DRAWS = 64, 2


def output_change(
    weights: Weights, shape: tuple[int, ...], inputs: Any, device: Any
) -> Callable[[float], float] | None:
    """Return the function of sigma; None if rows are not whole numbers, or the model accepts no random words.

    Guarantee: no data. The same model gives the same numbers.
    Cost: four forward passes over 64 rows per value.
    """
    if inputs.is_floating_point:
        return None
    module = copy.deepcopy(weights.untouched)
    tables = [layer for layer in module.modules() if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))]
    start = weights.start
    for words in sorted({table.num_embeddings for table in tables} | {2}, reverse=True):
        rows = torch.from_numpy(np.random.default_rng(0).integers(0, words, (ROWS, *shape))).to(device, inputs)
        first = _outputs(module, weights.parameters(start), rows)
        if first is not None:
            return partial(_change, module, weights, rows, first)
    return None


def _change(module: Any, weights: Weights, rows: Any, first: Any, deviation: float) -> float:
    squares = 0.0
    for draw in range(DRAWS):
        noise = np.random.default_rng(draw).standard_normal(weights.size)
        found = _outputs(module, weights.parameters(weights.start + deviation * noise), rows)
        if found is None:
            return math.inf
        moved = found - first
        squares += float((moved - moved.mean(0)).square().mean())
    return math.sqrt(squares / DRAWS) if math.isfinite(squares) else math.inf


def _outputs(module: Any, parameters: Any, rows: Any) -> Any:
    """Compute the outputs in float64, rows first; None if the model refuses the rows, as a smaller table does."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with fixed_settings(rows.device), torch.no_grad():
            found = functional_call(module, {**parameters, **buffers}, (rows,))
    except Exception:
        return None
    parts = [part for part in tree_leaves(found) if isinstance(part, torch.Tensor) and part.is_floating_point()]
    return torch.cat([part.double().reshape(len(rows), -1) for part in parts], 1)
