"""Passes through a module at a point: the losses of rows, the input of each layer and the signal at its output.

The module itself is never changed: each call gets its parameters, and copies of its buffers, as arguments.

``nn.MultiheadAttention`` multiplies with its projections outside of any layer, places first and rows second. There the
products themselves are watched (``_Projections``), and rows are put first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode
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
    upstream: Tensor = None,
) -> Captured:
    """Run a forward pass and a backward pass to the layers' outputs only; no parameter gradient is computed.

    ``upstream`` has one number per row, by which its signals are multiplied where the backward pass begins; 1 if None.
    """
    found = Captured()
    shapes: dict[str, Any] = {}
    tap = torch.zeros((), dtype=next(iter(parameters.values())).dtype, device=rows.device, requires_grad=True)

    def note(name: str, entered: Tensor, output: Tensor, first: Callable[[Tensor], Tensor]) -> Tensor:
        found.calls[name] = found.calls.get(name, 0) + 1
        found.activations[name], shapes[name] = first(entered.detach()), first(output.detach()).shape
        if output._base is not None:  # a later layer working in place on a view would remove the hook
            output = output.clone()
        if not output.requires_grad:  # the first layer of a path: make its output differentiable
            output = _Differentiable.apply(output, tap)
        # A hook on the tensor receives the derivative of this value, even if a later layer works in place.
        output.register_hook(lambda signal: found.signals.__setitem__(name, first(signal)))
        return output

    def watch(name: str) -> Callable[..., Any]:
        return lambda _, inputs, output: note(name, inputs[0], output, lambda t: t)

    def rows_first(t: Tensor) -> Tensor:
        return t.reshape(-1, len(rows), t.shape[-1]).transpose(0, 1)

    projections, handles = {}, []
    for name in layers:
        layer = module.get_submodule(name)
        if (own := _PROJECTIONS.get(type(layer))) is None:
            handles.append(layer.register_forward_hook(watch(name)))
        else:
            projections[id(parameters.get(f"{name}.{own}" if name else own, layer.get_parameter(own)))] = name
    try:
        attends = any(isinstance(layer, nn.MultiheadAttention) for layer in module.modules())
        with _Projections(projections, partial(note, first=rows_first)) if attends else nullcontext():
            losses = losses_of(module, parameters, loss, rows, labels, vector=vector)
    finally:
        for handle in handles:
            handle.remove()
    if losses.requires_grad:
        begin = torch.ones_like(losses) if upstream is None else upstream.to(losses)
        torch.autograd.grad(losses, tap, grad_outputs=begin, allow_unused=True)
    found.losses = losses.detach()
    for name in shapes.keys() - found.signals.keys():  # a layer whose output does not reach the loss
        found.signals[name] = torch.zeros(shapes[name], dtype=losses.dtype, device=rows.device)
    return found


class _Differentiable(torch.autograd.Function):  # type: ignore[misc]
    """The same tensor, as a result of ``tap``: later layers may work on it in place, and nothing is computed."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, tap: Tensor) -> Tensor:
        ctx.mark_dirty(output)
        ctx.save_for_backward(tap)
        return output

    @staticmethod
    def backward(ctx: Any, signal: Tensor) -> tuple[None, Tensor]:
        return None, torch.zeros_like(ctx.saved_tensors[0])


_PROJECTIONS = {nn.MultiheadAttention: "in_proj_weight", nn.modules.linear.NonDynamicallyQuantizableLinear: "weight"}
"""Layers whose weights ``multi_head_attention_forward`` uses without calling the layer."""


class _Projections(TorchFunctionMode):  # type: ignore[misc]
    """Calls ``note`` with the name, the input and the output of each product with a weight whose id is known.

    Torch calls ``multi_head_attention_forward`` through this mode, and what it calls past it. So it runs with another
    ``linear``. Should torch write it differently, nothing is noted, and ``vmap`` serves the projections. Under a mode
    torch also leaves out the fused layers of ``eval()``, which call none of their parts.
    """

    def __init__(self, names: dict[int, str], note: Callable[[str, Tensor, Tensor], Tensor]) -> None:
        super().__init__()

        def linear(entered: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            output = functional.linear(entered, weight, bias)
            return note(names[id(weight)], entered, output) if id(weight) in names else output

        around = {**vars(functional), "linear": linear, "has_torch_function": lambda _: False}
        around["_in_projection_packed"] = _with_globals(around["_in_projection_packed"], around)
        self.attention = _with_globals(functional.multi_head_attention_forward, around)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        run = self.attention if func is functional.multi_head_attention_forward else func
        return run(*args, **(kwargs or {}))


def _with_globals(function: Any, names: dict[str, Any]) -> Any:
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


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
