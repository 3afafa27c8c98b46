"""Passes through a module at a point: the losses of rows, the input of each layer and the signal at its output.

The module itself is never changed: each call gets its parameters, and copies of its buffers, as arguments.
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

__all__ = ["Captured", "LossFunction", "capture", "fixed_settings", "losses_of", "per_example", "row_by_row"]

Tensor = Any
LossFunction = Callable[[Any, Any], Any]
Parameters = dict[str, Tensor]


@dataclass
class Captured:
    """Results of one pass over some rows."""

    losses: Tensor = None
    activations: dict[str, Tensor] = field(default_factory=dict)
    """Input of each layer."""
    signals: dict[str, Tensor] = field(default_factory=dict)
    """Derivative of each row's loss with respect to the output of each layer."""
    calls: dict[str, int] = field(default_factory=dict)


def losses_of(
    module: Any, parameters: Parameters, loss: LossFunction, rows: Tensor, labels: Tensor, *, vector: bool
) -> Tensor:
    """Compute the loss per row. Unless it returns a ``vector`` for a batch, it is evaluated row by row."""
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
    """Run a forward pass and a backward pass to the layers' outputs only; no parameter gradient is computed."""
    found = Captured()
    shapes: dict[str, Any] = {}
    tap = torch.zeros((), dtype=next(iter(parameters.values())).dtype, device=rows.device, requires_grad=True)

    def watch(name: str) -> Callable[..., Any]:
        def hook(_: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            found.calls[name] = found.calls.get(name, 0) + 1
            found.activations[name], shapes[name] = inputs[0].detach(), output.shape
            if output._base is not None:  # a later layer working in place on a view would remove the hook
                output = output.clone()
            if not output.requires_grad:  # the first layer of a path: make its output differentiable
                output = output + tap.to(output.dtype)
            # A hook on the tensor receives the derivative of this value, even if a later layer works in place.
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
    """Return the function that computes one row's difference in the parameters ``names``.

    It is the gradient at delta = 0 of phi(delta) = sum_j w_j f(x_j + delta, row), one function of one variable, so
    any library for per-example gradients can compute it.
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
    """Apply ``one`` to every row, by ``vmap`` or, if a layer has no batching rule, in a loop."""
    if together:
        return vmap(one)

    def loop(rows: Tensor, labels: Tensor) -> Parameters:
        found = [one(row, label) for row, label in zip(rows, labels, strict=True)]
        return {name: torch.stack([each[name] for each in found]) for name in found[0]}

    return loop


@contextmanager
def fixed_settings(device: Any) -> Iterator[None]:
    """Switch derivatives on, mixed precision off and warnings off (a warning that depends on a row is an output)."""
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
