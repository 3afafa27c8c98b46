"""Passes of one row through a module at a point: the input of each layer, the signal at its output, and gradients.

Code of the model runs on a single row, as a batch of one, in two ways only. ``Recorded`` runs it once on a synthetic
row and repeats its operators on the rows of the data (recorded.py). ``one_by_one`` serves models that cannot be
recorded: it runs their code on each row, in a new copy of the module, with copies of all tensors.

``nn.MultiheadAttention`` multiplies with its projections outside of any layer. There the products themselves are
watched (``_Projections``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from dpsco.clipping.no_warnings import no_warnings
from dpsco.clipping.torch.recorded import record
from dpsco.clipping.torch.set_memory import SetMemory
from dpsco.clipping.torch.weights import Weights

__all__ = ["Captured", "LossFunction", "Recorded", "can_be_copied", "fixed_settings", "one_by_one", "used_outside"]

Tensor = Any
LossFunction = Callable[[Any, Any], Any]
Parameters = dict[str, Tensor]


@dataclass
class Captured:
    """Results of one pass: of a row, or with rows first."""

    activations: dict[str, Tensor] = field(default_factory=dict)
    """Input of each layer."""
    signals: dict[str, Tensor] = field(default_factory=dict)
    """Derivative of each row's loss with respect to the output of each layer."""
    gradients: Parameters = field(default_factory=dict)
    """Derivative of each row's loss with respect to parameters without a rule."""


class Recorded:
    """Both passes of a row, recorded on a synthetic row.

    Raises ``Unrecordable`` if that is not possible, and InvalidArgument if the model is random or writes into tensors.
    """

    def __init__(
        self,
        weights: Weights,
        layers: Sequence[str],
        others: Sequence[str],
        loss: LossFunction,
        row: Tensor,
        label: Tensor,
    ) -> None:
        self._names, self._layers, self._others = list(weights.shapes), list(layers), list(others)
        self.calls: dict[str, int] = {}
        """How often each layer was called."""

        module = copy.deepcopy(weights.untouched)

        def run(shared: Sequence[Tensor], one: Tensor, its_label: Tensor) -> list[Tensor]:
            point = dict(zip(self._names, shared, strict=True))
            found, self.calls = _capture(module, self._layers, self._others, point, loss, one, its_label)
            parts = ((found.activations, self._layers), (found.signals, self._layers), (found.gradients, self._others))
            return [values[name] for values, names in parts for name in names if name in values]

        shared = [part.clone() for part in weights.parameters(weights.start).values()]
        # Kernels for one row that have no batching rule are left out.
        with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
            self._program = record(run, shared, row.clone(), label.clone())
        self._layers = [name for name in self._layers if name in self.calls]

    @property
    def apart(self) -> bool:
        """Whether rows are computed one after another, since ``vmap`` would not keep them apart."""
        return self._program.apart

    def __call__(self, point: Parameters, rows: Tensor, labels: Tensor, *, together: bool) -> Captured:
        """Run both passes of every row; results have rows first."""
        found = self._program.on_rows([point[name] for name in self._names], rows, labels, together=together)
        count = len(self._layers)
        seen = [part.squeeze(1) if part.ndim > 1 else part for part in found[: 2 * count]]  # each was a batch of one
        return Captured(
            dict(zip(self._layers, seen[:count], strict=True)),
            dict(zip(self._layers, seen[count:], strict=True)),
            dict(zip(self._others, found[2 * count :], strict=True)),
        )


def one_by_one(
    weights: Weights, names: Sequence[str], loss: LossFunction, point: Parameters, rows: Tensor, labels: Tensor
) -> Parameters:
    """Compute the gradients of ``names`` row by row with the model's own code, in a new copy of it for each row.

    Guarantee: nothing that a row leaves in the module, in its tensors, in memory, in a loss that can be copied, in the
    state of torch's random numbers or in its mode of derivatives reaches another row. What code keeps elsewhere
    (globals, closures) does.
    """
    made = []
    with torch.random.fork_rng(devices=[]):
        for k in range(len(labels)):
            with _of_one_row(rows.device):
                torch.default_generator.manual_seed(0)
                module, own = _copied(weights, point)
                outputs = module(rows[k : k + 1].clone())
                total = _loss_copy(loss)(outputs, labels[k : k + 1].clone()).sum()
                made.append(_gradients(total, [own[name] for name in names]))
    return {name: torch.stack(parts) for name, *parts in zip(names, *made, strict=True)}


def used_outside(weights: Weights, layers: Sequence[str], loss: LossFunction, row: Tensor, label: Tensor) -> set[str]:
    """Return which of ``layers`` have a parameter that reaches the loss of a synthetic row other than by their call.

    Derivatives of 0 count: another row may have others.
    """
    module = copy.deepcopy(weights.untouched)
    point = {name: value.clone().requires_grad_() for name, value in weights.parameters(weights.start).items()}

    def cut(layer: Any) -> None:
        kept: list[tuple[Any, dict[str, Any]]] = []

        def enter(*_: Any) -> None:
            # The parts of an attention are not called: their parameters are used in its own call.
            for part in layer.modules() if isinstance(layer, nn.MultiheadAttention) else (layer,):
                kept.append((part, dict(part._parameters)))
                part._parameters.update({name: None if p is None else p.detach() for name, p in kept[-1][1].items()})

        def leave(*_: Any) -> None:
            while kept:
                part, own = kept.pop()
                part._parameters.update(own)

        layer.register_forward_pre_hook(enter)
        layer.register_forward_hook(leave, always_call=True)

    called = {module.get_submodule(name) for name in layers}
    for layer in called | {each for each in module.modules() if isinstance(each, nn.MultiheadAttention)}:
        cut(layer)
    try:
        total = loss(functional_call(module, point, (row[None].clone(),)), label[None].clone()).sum()
    except Exception:  # its code needs the parameters themselves
        return set(layers)
    if not total.requires_grad:
        return set()
    names = [full for full in point if full.rpartition(".")[0] in layers]
    found = torch.autograd.grad(total, [point[full] for full in names], allow_unused=True)
    return {full.rpartition(".")[0] for full, one in zip(names, found, strict=True) if one is not None}


def _copied(weights: Weights, point: Parameters) -> tuple[Any, Parameters]:
    """Return a new module with copies of the parameters of ``point``, and these by name."""
    own = {name: nn.Parameter(value.clone()) for name, value in point.items()}
    known = {id(weights.untouched.get_parameter(name)): value for name, value in own.items()}
    return copy.deepcopy(weights.untouched, known), own


def _loss_copy(loss: LossFunction) -> LossFunction:
    try:
        return copy.deepcopy(loss)
    except Exception:  # it holds what cannot be copied, such as a lock; then no row of the data comes here
        return loss


def can_be_copied(loss: LossFunction) -> bool:
    """Whether each row can have a loss of its own."""
    try:
        copy.deepcopy(loss)
    except Exception:
        return False
    return True


def _gradients(total: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    if not total.requires_grad:
        return [torch.zeros_like(each) for each in inputs]
    found = torch.autograd.grad(total, inputs, allow_unused=True)
    return [torch.zeros_like(each) if one is None else one for each, one in zip(inputs, found, strict=True)]


def _capture(
    module: Any,
    layers: Sequence[str],
    others: Sequence[str],
    point: Parameters,
    loss: LossFunction,
    row: Tensor,
    label: Tensor,
) -> tuple[Captured, dict[str, int]]:
    """Run a forward pass and a backward pass to the layers' outputs; of parameters, only ``others`` get gradients."""
    found, calls, shapes = Captured(), dict[str, int](), dict[str, Any]()
    tap = torch.zeros((), dtype=next(iter(point.values())).dtype, device=row.device, requires_grad=True)
    values = {name: value.detach().requires_grad_(name in others) for name, value in point.items()}

    def note(name: str, entered: Tensor, output: Tensor) -> Tensor:
        calls[name] = calls.get(name, 0) + 1
        found.activations[name], shapes[name] = entered.detach(), output.shape
        if output._base is not None:  # a later layer working in place on a view would remove the hook
            output = output.clone()
        if not output.requires_grad:  # the first layer of a path: make its output differentiable
            output = _Differentiable.apply(output, tap)
        # A hook on the tensor receives the derivative of this value, even if a later layer works in place.
        output.register_hook(lambda signal: found.signals.__setitem__(name, signal))
        return output

    def watch(name: str) -> Callable[..., Any]:
        return lambda _, inputs, output: note(name, inputs[0], output)

    projections: dict[int, str] = {}
    for name in layers:
        layer = module.get_submodule(name)
        if (own := _PROJECTIONS.get(type(layer))) is None:
            layer.register_forward_hook(watch(name))
        else:
            full = f"{name}.{own}" if name else own
            projections[id(values.get(full, layer.get_parameter(own)))] = name
    attends = any(isinstance(layer, nn.MultiheadAttention) for layer in module.modules())
    with _Projections(projections, note) if attends else nullcontext():
        total = loss(functional_call(module, values, (row[None],)), label[None]).sum()
    made = _gradients(total, [tap, *(values[name] for name in others)])
    found.gradients = dict(zip(others, made[1:], strict=True))
    for name in shapes.keys() - found.signals.keys():  # a layer whose output does not reach the loss
        found.signals[name] = torch.zeros(shapes[name], dtype=tap.dtype, device=row.device)
    return found, calls


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


@contextmanager
def fixed_settings(device: Any) -> Iterator[None]:
    """Switch derivatives on, mixed precision off and warnings off (a warning that depends on a row is an output)."""
    with (
        no_warnings(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
    ):
        yield


@contextmanager
def _of_one_row(device: Any) -> Iterator[None]:
    """End with the row what the code of a model changes of these settings and of torch's default type."""
    kind = torch.get_default_dtype()
    with fixed_settings(device), SetMemory():
        try:
            yield
        finally:
            torch.set_default_dtype(kind)
