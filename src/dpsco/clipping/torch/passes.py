"""Passes through a module at a point: losses of rows, what entered each layer, what came back to it.

The module itself is never touched: its parameters are given to each call, its buffers as copies.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_map

__all__ = ["Captured", "LossFunction", "calm", "capture", "losses_of", "per_example", "row_by_row"]

Tensor = Any
LossFunction = Callable[[Any, Any], Any]
Parameters = dict[str, Tensor]


@dataclass
class Captured:
    """One pass over some rows."""

    losses: Tensor = None
    activations: dict[str, Tensor] = field(default_factory=dict)
    """Input of each layer."""
    signals: dict[str, Tensor] = field(default_factory=dict)
    """Derivative of each row's loss in the output of each layer."""
    calls: dict[str, int] = field(default_factory=dict)


def losses_of(
    module: Any, parameters: Parameters, loss: LossFunction, rows: Tensor, labels: Tensor, *, vector: bool
) -> Tensor:
    """The loss of each row; the loss is asked row by row unless it gives a ``vector`` for a batch."""
    values = {**parameters, **{name: buffer.clone() for name, buffer in module.named_buffers()}}
    outputs = functional_call(module, values, (rows,))
    if vector:
        return loss(outputs, labels).reshape(len(rows), -1).sum(1)
    return vmap(lambda output, label: loss(_batch_of_one(output), label[None]).sum())(outputs, labels)


def capture(
    module: Any,
    layers: Iterable[str],
    parameters: Parameters,
    loss: LossFunction,
    rows: Tensor,
    labels: Tensor,
    *,
    vector: bool,
) -> Captured:
    """A forward and a backward pass that stop short of every parameter: only signals come back."""
    found = Captured()
    shapes: dict[str, Any] = {}
    tap = torch.zeros((), dtype=next(iter(parameters.values())).dtype, device=rows.device, requires_grad=True)

    def watch(name: str) -> Callable[..., Any]:
        def hook(_: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            found.calls[name] = found.calls.get(name, 0) + 1
            found.activations[name], shapes[name] = inputs[0].detach(), output.shape
            if output._base is not None:  # a later layer that works in place on a view would take the hook away
                output = output.clone()
            if not output.requires_grad:  # the first layer of a path: from here on there is something to derive
                output = output + tap.to(output.dtype)
            # A hook on the tensor sees the derivative in this value, even if a later layer works in place.
            output.register_hook(lambda signal: found.signals.__setitem__(name, signal))
            return output

        return hook

    handles = [module.get_submodule(name).register_forward_hook(watch(name)) for name in layers]
    try:
        losses = losses_of(module, parameters, loss, rows, labels, vector=vector)
    finally:
        for handle in handles:
            handle.remove()
    if losses.requires_grad:
        torch.autograd.grad(losses, tap, grad_outputs=torch.ones_like(losses), allow_unused=True)
    found.losses = losses.detach()
    for name, shape in shapes.items():  # a layer whose output does not reach the loss
        found.signals.setdefault(name, torch.zeros(shape, dtype=losses.dtype, device=rows.device))
    return found


def per_example(
    module: Any,
    names: Sequence[str],
    weights: Sequence[float],
    points: Sequence[Parameters],
    loss: LossFunction,
) -> Callable[[Tensor, Tensor], Parameters]:
    """The difference of one row in the parameters ``names``: the gradient at delta = 0 of

        phi(delta) = sum_j w_j f(x_j + delta, row),

    one function of one variable, so that any library of per-example gradients can serve.
    """
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}

    def phi(delta: Parameters, row: Tensor, label: Tensor) -> Tensor:
        total = 0.0
        for weight, point in zip(weights, points, strict=True):
            moved = {name: point[name] + delta[name] for name in names}
            outputs = functional_call(module, {**point, **moved, **buffers}, (row[None],))
            total = total + weight * loss(outputs, label[None]).sum()
        return total

    derivative = grad(phi)
    zero = {name: torch.zeros_like(points[0][name]) for name in names}
    return lambda row, label: derivative(zero, row, label)


def row_by_row(one: Callable[[Tensor, Tensor], Parameters], *, together: bool) -> Callable[..., Parameters]:
    """``one`` on every row: by ``vmap``, or in a loop where a layer has no batching rule."""
    if together:
        return vmap(one)

    def loop(rows: Tensor, labels: Tensor) -> Parameters:
        found = [one(row, label) for row, label in zip(rows, labels, strict=True)]
        return {name: torch.stack([each[name] for each in found]) for name in found[0]}

    return loop


@contextmanager
def calm(device: Any) -> Iterator[None]:
    """Derivatives on, mixed precision off, no warnings (one that depends on a row is an output)."""
    with (
        warnings.catch_warnings(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
    ):
        warnings.simplefilter("ignore")
        yield


def _batch_of_one(output: Any) -> Any:
    return tree_map(lambda t: t[None], output)
