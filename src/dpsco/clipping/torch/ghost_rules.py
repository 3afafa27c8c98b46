"""Ghost rules: the per-example differences of a layer's parameters, from its inputs and the signals at its output.

A rule takes the layer, the weights w_j of the query, and for each point j the activations a_j (the layer's input) and
signals g_j (the derivative of each row's loss with respect to the layer's output), rows first. It returns one term
(terms.py) per parameter of the layer: the exact per-example difference in a form that does not cancel (pairs.py).

    linear          sum over positions of g a'; a product of vectors if there is one position
    convolution     the same on the unfolded input, one position per place of the kernel
    embedding       g added to the table at the index
    normalisation   weight: sum over positions of g times the normalised input; bias: sum of g

Cost: a matrix per row is formed only if it is at most twice as large as the data the rule would otherwise keep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dpsco.clipping.torch.pairs import difference, differences, pairs, same
from dpsco.clipping.torch.terms import SLICE_ROWS, Dense, Outer, Table, Term

__all__ = ["Rule", "rule_of"]

Tensor = Any
Rule = Callable[[Any, Sequence[float], list[Tensor], list[Tensor]], dict[str, Term]]


def rule_of(layer: Any) -> tuple[Rule | None, str]:
    """Return the rule of a layer and its name, or None and the reason."""
    kind = type(layer)
    if kind not in _RULES:
        return None, f"no rule for {kind.__name__}"
    if kind is nn.Embedding and (layer.max_norm is not None or layer.scale_grad_by_freq):
        return None, "no rule for an Embedding with max_norm or scale_grad_by_freq"
    if kind in (nn.InstanceNorm1d, nn.InstanceNorm2d) and layer.track_running_stats:
        return None, "no rule for running statistics"
    return _RULES[kind]


def linear(layer: Any, weights: Sequence[float], a: list[Tensor], g: list[Tensor]) -> dict[str, Term]:
    """Return the terms of a Linear layer."""
    a = [t.reshape(len(t), -1, t.shape[-1]) for t in a]
    g = [t.reshape(len(t), -1, t.shape[-1]) for t in g]
    positions, out, wide = g[0].shape[1], g[0].shape[2], a[0].shape[2]
    terms: dict[str, Term] = {}
    if 4 * positions * (wide + out) >= wide * out:
        matrix = _formed([(u.mT, v) for u, v in differences(weights, g, a)])
        terms["weight"] = Dense(matrix.flatten(1))
        return terms | _bias(layer, difference(weights, g).sum(1))
    u, v = pairs(weights, g, a)
    terms["weight"] = Outer(u, v)
    return terms | _bias(layer, u[0][:, 0] if positions == 1 else difference(weights, g).sum(1))


def convolution(layer: Any, weights: Sequence[float], a: list[Tensor], g: list[Tensor]) -> dict[str, Term]:
    """Return the terms of a convolution."""
    parts = [
        _patches_times_signals(layer, weights, [t[k : k + SLICE_ROWS] for t in a], [t[k : k + SLICE_ROWS] for t in g])
        for k in range(0, len(g[0]), SLICE_ROWS)  # unfolded inputs are large: a slice fits into the cache
    ]
    return {"weight": Dense(torch.cat(parts))} | _bias(layer, difference(weights, g).flatten(2).sum(2))


def _patches_times_signals(layer: Any, weights: Sequence[float], a: list[Tensor], g: list[Tensor]) -> Tensor:
    products = []
    for u, v in differences(weights, g, a):
        patches = unfolded(layer, v)
        patches = patches.reshape(len(v), layer.groups, -1, patches.shape[-1])
        products.append((u.reshape(len(u), layer.groups, layer.out_channels // layer.groups, -1), patches.mT))
    return _formed(products).flatten(1)


def unfolded(layer: Any, a: Tensor) -> Tensor:
    """Extract the patches of the padded input under the kernel: (rows, channels times kernel, positions)."""
    sides = []
    for k in reversed(range(len(layer.kernel_size))):  # functional.pad takes the last dimension first
        whole = layer.dilation[k] * (layer.kernel_size[k] - 1) if layer.padding == "same" else 0
        before = 0 if layer.padding in ("same", "valid") else layer.padding[k]
        sides += [whole // 2 + before, whole - whole // 2 + before]
    if any(sides):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        a = functional.pad(a, sides, mode=mode)
    sizes = len(layer.kernel_size)
    for k in range(sizes):  # views of the same memory; one copy at the end is several times faster than torch's unfold
        reach = layer.dilation[k] * (layer.kernel_size[k] - 1) + 1
        a = a.unfold(2 + k, reach, layer.stride[k])[..., :: layer.dilation[k]]
    order = (0, 1, *range(2 + sizes, 2 + 2 * sizes), *range(2, 2 + sizes))
    patches = a.permute(order)
    return patches.reshape(len(a), math.prod(patches.shape[1 : 2 + sizes]), -1)


def embedding(layer: Any, weights: Sequence[float], a: list[Tensor], g: list[Tensor]) -> dict[str, Term]:
    """Return the terms of an Embedding."""
    index = [t.reshape(len(t), -1) for t in a]
    signals = [t.reshape(len(t), index[0].shape[1], -1) for t in g]
    u, places = [difference(weights, signals)], [index[0]]
    for j in range(1, len(weights)):
        if not same(a[j], a[0]):  # other indices: e keeps only the places where the index is the same
            alike = (index[j] == index[0])[..., None]
            back = weights[j] * signals[j].double()
            u[0] = torch.where(alike, u[0], u[0] - back)
            u.append(torch.where(alike, 0.0, back))
            places.append(index[j])
    at, vectors = torch.cat(places, 1), torch.cat(u, 1)
    if layer.padding_idx is not None:
        vectors = torch.where((at == layer.padding_idx)[..., None], 0.0, vectors)
    return {"weight": Table(at, vectors)}


def normalisation(layer: Any, weights: Sequence[float], a: list[Tensor], g: list[Tensor]) -> dict[str, Term]:
    """Return the terms of a normalisation layer."""
    if isinstance(layer, (nn.LayerNorm, nn.RMSNorm)):
        inner = math.prod(layer.normalized_shape)
        a, g = ([t.reshape(len(t), -1, inner) for t in values] for values in ([_normal(layer, t) for t in a], g))
        over = 1
    else:
        a, g = ([t.flatten(2) for t in values] for values in ([_normal(layer, t) for t in a], g))
        over = 2
    weight = sum((u.double() * v).sum(over) for u, v in differences(weights, g, a))
    return {"weight": Dense(weight)} | _bias(layer, difference(weights, g).sum(over))


def _normal(layer: Any, a: Tensor) -> Tensor:
    """Compute the input of the affine part."""
    if isinstance(layer, nn.LayerNorm):
        return functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.RMSNorm):
        return functional.rms_norm(a, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.GroupNorm):
        return functional.group_norm(a, layer.num_groups, eps=layer.eps)
    return functional.instance_norm(a, eps=layer.eps)


def _formed(products: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Sum left @ right in the model's type; the rounded result is the row's vector by definition."""
    matrix = products[0][0] @ products[0][1]
    for left, right in products[1:]:
        matrix += left @ right
    return matrix


def _bias(layer: Any, d: Tensor) -> dict[str, Term]:
    return {} if getattr(layer, "bias", None) is None else {"bias": Dense(d)}


_RULES: dict[Any, tuple[Rule, str]] = {
    nn.Linear: (linear, "linear"),
    nn.Conv1d: (convolution, "convolution"),
    nn.Conv2d: (convolution, "convolution"),
    nn.Conv3d: (convolution, "convolution"),
    nn.Embedding: (embedding, "embedding"),
    nn.LayerNorm: (normalisation, "normalisation"),
    nn.RMSNorm: (normalisation, "normalisation"),
    nn.GroupNorm: (normalisation, "normalisation"),
    nn.InstanceNorm1d: (normalisation, "normalisation"),
    nn.InstanceNorm2d: (normalisation, "normalisation"),
}
