"""A loss as a flat list of equations, evaluated with taps on chosen equations.

A tap is a zero that is added to the output of an equation. The derivative with respect to it is the signal at that
output in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal

from dpsco.clipping.jax.known_primitives import unknown_primitives
from dpsco.errors import InvalidArgument

__all__ = ["check_stays_inside", "flat_jaxpr", "run", "shaped"]

_CALLS = ("jit", "pjit", "closed_call", "core_call")


def shaped(shape: Any, dtype: Any) -> Any:
    """Return the placeholder that JAX traces instead of an array."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def flat_jaxpr(loss: Callable[..., Any], *arguments: Any) -> ClosedJaxpr:
    """Trace ``loss(leaves, features, label)`` into equations, with every jitted call inlined.

    Raises
    ------
    InvalidArgument
        If the loss does not return one real number, or calls code outside JAX, or has side effects.
    """
    traced = jax.make_jaxpr(loss)(*arguments)
    outputs = traced.out_avals
    if len(outputs) != 1 or outputs[0].shape or not jax.numpy.issubdtype(outputs[0].dtype, jax.numpy.floating):
        raise InvalidArgument(
            "Expected loss(params, (features, label)) to return one real number, the loss of one row, got "
            f"{', '.join(str(output) for output in outputs) or 'nothing'}."
        )
    parameters = tuple(range(len(arguments) - 2))
    derivative = jax.make_jaxpr(jax.grad(loss, argnums=parameters))(*arguments)  # a custom_vjp has its own equations
    check_stays_inside(traced, derivative)
    leaves = [shaped(aval.shape, aval.dtype) for aval in traced.in_avals]
    return jax.make_jaxpr(lambda *inputs: _inlined(traced.jaxpr, traced.consts, inputs))(*leaves)


def check_stays_inside(*programs: ClosedJaxpr) -> None:
    """Raise InvalidArgument if a program calls code outside JAX, has effects, or brings its own batching rules."""
    found = sorted({name for program in programs for name in unknown_primitives(program.jaxpr)})
    if found or any(program.effects for program in programs):
        raise InvalidArgument(
            f"The loss calls out of JAX or has effects ({', '.join(found) or 'effects'}): such a call may see several "
            "rows at once, store or print them, or fail on one of them, and no clip covers that. Write the loss in "
            "plain JAX, without callbacks, printing, kernels or its own vmap rules."
        )


def run(
    closed: ClosedJaxpr, inputs: Sequence[Any], taps: Mapping[int, Any], kept: Mapping[int, int]
) -> tuple[Any, dict[int, Any]]:
    """Evaluate the loss with ``taps[k]`` added to the output of equation k.

    Also return input number ``kept[k]`` of each such equation.
    """
    records: dict[int, Any] = {}

    def visit(k: int, values: list[Any], outputs: list[Any]) -> list[Any]:
        if k in kept:
            records[k] = values[kept[k]]
        return [outputs[0] + taps[k]] if k in taps else outputs

    (value,) = _evaluate(closed.jaxpr, closed.consts, inputs, visit)
    return value, records


def _inlined(jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    return _evaluate(jaxpr, constants, inputs, lambda k, values, outputs: outputs)


def _evaluate(jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Any], visit: Callable[..., list[Any]]) -> Any:
    known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *inputs), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for k, equation in enumerate(jaxpr.eqns):
        values = [read(atom) for atom in equation.invars]
        if equation.primitive.name in _CALLS:
            inner = equation.params["jaxpr"]
            outputs = _inlined(inner.jaxpr, inner.consts, values)
        else:
            answer = equation.primitive.bind(*values, **equation.primitive.get_bind_params(equation.params))
            outputs = list(answer) if equation.primitive.multiple_results else [answer]
        known.update(zip(equation.outvars, visit(k, values, outputs), strict=True))
    return [read(atom) for atom in jaxpr.outvars]
