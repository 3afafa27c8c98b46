"""Rules for parameters whose per-example gradient is a product of two small arrays.

A leaf of the parameters has a rule if the loss uses it exactly once (apart from changes of shape) as

    dense        the weights of a matrix product       signal' activation
    convolution  the kernel of a convolution           signal' unfolded activation
    embedding    a table that rows are taken from      signals added into the rows that were taken

Every other leaf is ``Whole``: its gradient is formed for each row. This is right for biases and the scales of
normalisations, whose gradient is as small as the signal. ``JaxOracle.describe`` also lists large leaves that are
``Whole`` because they have no rule or are used twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal

from dpsco.clipping.jax.tracing import shaped as like

__all__ = ["Gathered", "Product", "Rule", "Whole", "rules_of"]

_LAYOUT = ("reshape", "transpose", "squeeze", "expand_dims", "copy", "copy_p", "convert_element_type")
_BY_ENTRY = ("add", "sub", "mul", "div", "broadcast_in_dim")


@dataclass(frozen=True, eq=False)
class Whole:
    """A leaf whose gradient is formed for each row; ``reason`` says why."""

    leaf: int
    reason: str


@dataclass(frozen=True, eq=False)
class Product:
    """A leaf W whose gradient is activation' signal, (T, in)' (T, out), with T positions per row.

    The signal belongs to the output of ``equation``; ``operand`` is the index of the activation among its inputs.
    """

    leaf: int
    kind: str
    equation: int
    operand: int
    positions: int
    outputs: int
    inputs: int
    moving: bool
    """Whether the activation depends on the parameters, and so differs between points."""
    signal: Callable[[Any], Any] = field(repr=False)
    """Maps the derivative with respect to the equation's output to (T, out)."""
    activation: Callable[[Any], Any] = field(repr=False)
    """Maps the equation's input to (T, in)."""
    outputs_first: bool
    """Whether the leaf is (out, in) in memory; transposing a large sum takes longer than computing it."""
    shaped: Callable[[Any], Any] = field(repr=False)
    """Maps (in, out), or (out, in) if ``outputs_first``, to the leaf's own shape."""

    def product(self, signal: Any, activation: Any) -> Any:
        """Compute the gradient summed over positions (and rows), in the layout that ``shaped`` expects."""
        return signal.T @ activation if self.outputs_first else activation.T @ signal


@dataclass(frozen=True, eq=False)
class Gathered:
    """A table of ``rows`` x ``width`` from which T rows are taken, at places that do not depend on the parameters."""

    leaf: int
    equation: int
    operand: int
    positions: int
    rows: int
    width: int
    drops: bool
    """Whether a place outside the table is dropped; otherwise it means the nearest row of the table."""
    shaped: Callable[[Any], Any] = field(repr=False)

    kind = "embedding"


Rule = Whole | Product | Gathered


def rules_of(closed: ClosedJaxpr, leaves: int) -> list[Rule]:
    """Find a rule for each of the first ``leaves`` inputs of the loss."""
    jaxpr = closed.jaxpr
    uses = Counter(atom for e in jaxpr.eqns for atom in e.invars if not isinstance(atom, Literal))
    uses.update(atom for atom in jaxpr.outvars if not isinstance(atom, Literal))
    moving = set(jaxpr.invars[:leaves])
    for equation in jaxpr.eqns:
        if any(atom in moving for atom in equation.invars if not isinstance(atom, Literal)):
            moving.update(equation.outvars)
    return [_rule(jaxpr, leaf, uses, moving) for leaf in range(leaves)]


def _rule(jaxpr: Any, leaf: int, uses: Counter[Any], moving: set[Any]) -> Rule:
    var, layout = jaxpr.invars[leaf], []
    while True:
        if uses[var] == 0:
            return Whole(leaf, "not used by the loss")
        if uses[var] > 1:
            return Whole(leaf, "used more than once")
        found = next(((k, e) for k, e in enumerate(jaxpr.eqns) if any(atom is var for atom in e.invars)), None)
        if found is None:
            return Whole(leaf, "no rule for how it is used")
        k, equation = found
        same_size = math.prod(equation.outvars[0].aval.shape) == math.prod(var.aval.shape)
        name = equation.primitive.name
        if not (same_size and (name in _LAYOUT or name == "broadcast_in_dim")):
            break
        layout.append(equation)
        var = equation.outvars[0]
    shaped = _undo(layout, jaxpr.invars[leaf].aval.shape)
    place = next(i for i, atom in enumerate(equation.invars) if atom is var)
    maker = {"dot_general": _dense, "conv_general_dilated": _convolution, "gather": _embedding}.get(name)
    rule = maker and maker(leaf, k, equation, place, moving, shaped)
    if rule:
        return rule
    return Whole(leaf, "its gradient is no larger than the signal" if name in _BY_ENTRY else f"no rule for {name}")


def _undo(layout: Sequence[Any], shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """Return the transpose of a chain of shape changes: from the last shape back to the leaf's."""

    def forward(value: Any) -> Any:
        for equation in layout:
            if equation.primitive.name != "convert_element_type":  # sums stay in float64
                value = equation.primitive.bind(value, **equation.params)
        return value

    def back(value: Any) -> Any:
        (result,) = jax.linear_transpose(forward, like(shape, value.dtype))(value)
        return result

    return back


def _ordered(d: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
    """Reorder ``d``, whose axes are those of ``shape`` in ``order``, to the order of ``shape``."""
    return d.reshape([shape[i] for i in order]).transpose(sorted(range(len(order)), key=order.__getitem__))


def _varies(equation: Any, operand: int, moving: set[Any]) -> bool:
    atom = equation.invars[operand]
    return not isinstance(atom, Literal) and atom in moving


def _dense(leaf: int, k: int, equation: Any, place: int, moving: set[Any], shaped: Any) -> Rule | None:
    contracted, batched = equation.params["dimension_numbers"]
    if any(batched):
        return None
    operand = 1 - place
    mine, other = tuple(contracted[place]), tuple(contracted[operand])
    w, x = equation.invars[place].aval.shape, equation.invars[operand].aval.shape
    free_w = tuple(d for d in range(len(w)) if d not in mine)
    free_x = tuple(d for d in range(len(x)) if d not in other)
    outputs, inputs = math.prod(w[d] for d in free_w), math.prod(w[d] for d in mine)
    positions = math.prod(x[d] for d in free_x)

    def signal(g: Any) -> Any:
        return g.reshape(positions, outputs) if place == 1 else g.reshape(outputs, positions).T

    outputs_first = bool(free_w) and free_w[0] == 0
    order = (*free_w, *mine) if outputs_first else (*mine, *free_w)

    return Product(
        leaf=leaf,
        kind="dense",
        equation=k,
        operand=operand,
        positions=positions,
        outputs=outputs,
        inputs=inputs,
        moving=_varies(equation, operand, moving),
        signal=signal,
        activation=lambda a: a.transpose((*free_x, *other)).reshape(positions, inputs),
        outputs_first=outputs_first,
        shaped=lambda d: shaped(_ordered(d, w, order)),
    )


def _convolution(leaf: int, k: int, equation: Any, place: int, moving: set[Any], shaped: Any) -> Rule | None:
    params = equation.params
    if place != 1 or params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
        return None
    numbers = params["dimension_numbers"]
    w = equation.invars[1].aval.shape
    order = (*numbers.rhs_spec[2:], numbers.rhs_spec[1], numbers.rhs_spec[0])  # window, in, out
    window_sizes = [w[d] for d in order[:-2]]
    out = [equation.outvars[0].aval.shape[d] for d in (numbers.out_spec[0], *numbers.out_spec[2:], numbers.out_spec[1])]
    positions, outputs, inputs = math.prod(out[:-1]), out[-1], math.prod(w) // out[-1]
    reach = [(n - 1) * s + 1 for n, s in zip(out[1:-1], params["window_strides"], strict=True)]
    edges = [(lo, hi, d - 1) for (lo, hi), d in zip(params["padding"], params["lhs_dilation"], strict=True)]

    def unfolded(a: Any) -> Any:
        a = a.transpose(numbers.lhs_spec[0], *numbers.lhs_spec[2:], numbers.lhs_spec[1])
        a = lax.pad(a, jnp.zeros((), a.dtype), [(0, 0, 0), *edges, (0, 0, 0)])
        parts = []
        for window in np.ndindex(*window_sizes):
            first = [i * d for i, d in zip(window, params["rhs_dilation"], strict=True)]
            last = [i + r for i, r in zip(first, reach, strict=True)]
            steps = (1, *params["window_strides"], 1)
            parts.append(lax.slice(a, (0, *first, 0), (a.shape[0], *last, a.shape[-1]), steps))
        return jnp.concatenate(parts, axis=-1).reshape(positions, inputs)

    return Product(
        leaf=leaf,
        kind="convolution",
        equation=k,
        operand=0,
        positions=positions,
        outputs=outputs,
        inputs=inputs,
        moving=_varies(equation, 0, moving),
        signal=lambda g: g.transpose(numbers.out_spec[0], *numbers.out_spec[2:], numbers.out_spec[1]).reshape(
            positions, outputs
        ),
        activation=unfolded,
        outputs_first=False,
        shaped=lambda d: shaped(_ordered(d, w, order)),
    )


def _embedding(leaf: int, k: int, equation: Any, place: int, moving: set[Any], shaped: Any) -> Rule | None:
    table, numbers = equation.invars[0].aval.shape, equation.params["dimension_numbers"]
    places = equation.invars[1].aval.shape[:-1]
    whole_rows = equation.params["slice_sizes"] == (1, *table[1:])
    first_axis = numbers.collapsed_slice_dims == numbers.start_index_map == (0,) and not numbers.operand_batching_dims
    in_order = numbers.offset_dims == tuple(range(len(places), len(places) + len(table) - 1))
    if place != 0 or not (whole_rows and first_axis and in_order) or _varies(equation, 1, moving):
        return None
    return Gathered(
        leaf=leaf,
        equation=k,
        operand=1,
        positions=math.prod(places),
        rows=table[0],
        width=math.prod(table[1:]),
        drops=equation.params["mode"] != lax.GatherScatterMode.CLIP,
        shaped=lambda d: shaped(d.reshape(table)),
    )
