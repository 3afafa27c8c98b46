"""Ghost rules: the per-example differences of a layer's parameters, from its inputs and the signals at its output.

A rule takes the layer, the weights w_j of the query, and for each point j the activations a_j (the layer's input) and
signals g_j (the derivative of each row's loss with respect to the layer's output), rows first. It returns one term
(terms.py) per parameter of the layer: the exact per-example difference in a form that does not cancel (pairs.py).

    linear          sum over positions of g a'; a product of vectors if there is one position
    attention       the same for the joint projection of queries, keys and values (of one and the same input)
    convolution     the same on the unfolded input, one position per place of the kernel
    embedding       g added to the table at the index
    normalisation   weight: sum over positions of g times the normalised input; bias: sum of g

Cost: a matrix per row is formed only if it is at most twice as large as the data the rule would otherwise keep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
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
    if kind is nn.MultiheadAttention and layer.in_proj_weight is None:
        return None, "no rule for keys or values of another width"
    if kind in (nn.InstanceNorm1d, nn.InstanceNorm2d) and layer.track_running_stats:
        return None, "no rule for running statistics"
    return _RULES[kind]


def linear(layer: Any, weights: Sequence[float], a: list[Tensor], g: list[Tensor]) -> dict[str, Term]:
    """Return the terms of a Linear layer."""
    a = [t.reshape(len(t), -1, t.shape[-1]) for t in a]
    g = [t.reshape(len(t), -1, t.shape[-1]) for t in g]
    positions, out, wide = g[0].shape[1], g[0].shape[2], a[0].shape[2]
    if 4 * positions * (wide + out) >= wide * out:
        matrix, shift = g[0].new_empty((len(g[0]), out, wide)), g[0].new_empty((len(g[0]), out))
        for part, products in _in_slices(weights, g, a):
            _form([(u.mT, v) for u, v in products], matrix[part])
            shift[part] = products[0][0].sum(1)
        return {"weight": Dense(matrix.flatten(1))} | _bias(layer, shift)
    u, v = pairs(weights, g, a)
    return {"weight": Outer(u, v)} | _bias(layer, u[0][:, 0] if positions == 1 else difference(weights, g).sum(1))


def attention(layer: Any, weights: Sequence[float], a: list[Tensor], g: list[Tensor]) -> dict[str, Term]:
    """Return the terms of the joint projection of a MultiheadAttention."""
    terms = linear(SimpleNamespace(bias=layer.in_proj_bias), weights, a, g)
    return {f"in_proj_{name}": term for name, term in terms.items()}


def convolution(layer: Any, weights: Sequence[float], a: list[Tensor], g: list[Tensor]) -> dict[str, Term]:
    """Return the terms of a convolution."""
    matrix = g[0].new_empty((len(g[0]), *layer.weight.shape)).flatten(2)
    matrix, shift = matrix.unflatten(1, (layer.groups, -1)), g[0].new_empty((len(g[0]), layer.out_channels))
    for part, products in _in_slices(weights, g, a):  # unfolded inputs are large: a slice fits into the cache
        factors = []
        for u, v in products:
            patches = unfolded(layer, v).unflatten(1, (layer.groups, -1))
            factors.append((u.reshape(*matrix[part].shape[:3], -1).flatten(0, 1), patches.flatten(0, 1).mT))
        _form(factors, matrix[part].flatten(0, 1))
        shift[part] = products[0][0].flatten(2).sum(2)
    return {"weight": Dense(matrix.flatten(1))} | _bias(layer, shift)


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
    moved = [j for j in range(1, len(weights)) if not same(a[j], a[0])]
    places = torch.cat([index[j] for j in (0, *moved)], 1) if moved else index[0]
    d = signals[0].new_empty((*places.shape, signals[0].shape[2]))
    for k in range(0, len(d), SLICE_ROWS):  # a slice fits into the cache
        part = slice(k, k + SLICE_ROWS)
        parts = d[part].split(index[0].shape[1], 1)
        first, others = torch.mul(signals[0][part], weights[0], out=parts[0]), iter(parts[1:])
        for j in range(1, len(weights)):
            if j not in moved:
                first.add_(signals[j][part], alpha=weights[j])
                continue
            back = weights[j] * signals[j][part]
            alike = (index[j][part] == index[0][part])[..., None]  # signals are added where the index is the same
            first += torch.where(alike, back, 0.0)
            next(others).copy_(torch.where(alike, 0.0, back))
        if layer.padding_idx is not None:
            d[part].masked_fill_((places[part] == layer.padding_idx)[..., None], 0.0)
    return {"weight": Table.of(places, d)}


def normalisation(layer: Any, weights: Sequence[float], a: list[Tensor], g: list[Tensor]) -> dict[str, Term]:
    """Return the terms of a normalisation layer."""
    a = [_normal(layer, t) for t in a]
    if isinstance(layer, (nn.LayerNorm, nn.RMSNorm)):
        size, over = math.prod(layer.normalized_shape), 1
        a, g = ([t.reshape(len(t), -1, size) for t in values] for values in (a, g))
    else:
        size, over = a[0].shape[1], 2
        a, g = ([t.flatten(2) for t in values] for values in (a, g))
    scale, shift = (g[0].new_empty((len(g[0]), size)) for _ in range(2))
    for part, products in _in_slices(weights, g, a):
        scale[part] = sum((u * v).sum(over) for u, v in products)
        shift[part] = products[0][0].sum(over)
    return {"weight": Dense(scale)} | _bias(layer, shift)


def _normal(layer: Any, a: Tensor) -> Tensor:
    """Compute the input of the affine part."""
    if isinstance(layer, nn.LayerNorm):
        return functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.RMSNorm):
        return functional.rms_norm(a, layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.GroupNorm):
        return functional.group_norm(a, layer.num_groups, eps=layer.eps)
    return functional.instance_norm(a, eps=layer.eps)


def _in_slices(
    weights: Sequence[float], g: list[Tensor], a: list[Tensor]
) -> Iterator[tuple[slice, list[tuple[Tensor, Tensor]]]]:
    """Yield slices of rows that fit into the cache, and their products (``differences``), (e, a_0) first."""
    for k in range(0, len(g[0]), SLICE_ROWS):
        part = slice(k, k + SLICE_ROWS)
        yield part, list(differences(weights, [t[part] for t in g], [t[part] for t in a]))


def _form(products: list[tuple[Tensor, Tensor]], into: Tensor) -> None:
    """Write the sum of left @ right in the model's type; the rounded result is the row's vector by definition."""
    torch.bmm(*products[0], out=into)
    for left, right in products[1:]:
        into.baddbmm_(left, right)


def _bias(layer: Any, d: Tensor) -> dict[str, Term]:
    return {} if getattr(layer, "bias", None) is None else {"bias": Dense(d)}


_RULES: dict[Any, tuple[Rule, str]] = {
    nn.Linear: (linear, "linear"),
    nn.modules.linear.NonDynamicallyQuantizableLinear: (linear, "linear"),
    nn.MultiheadAttention: (attention, "attention"),
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
