"""Matrices that are not finite never reach LAPACK: it prints lines about them, past Python.

    jnp.linalg.svd(jnp.outer(a, a))        a = 1e30 is finite, its square is not: "SLASCL, parameter number 4"

A line that one row decides is an output. So LAPACK gets zeros in place of such operands, and its results are NaN. The
gradient of the row is then not finite, unless the loss leaves these results out, and the row counts as zero.

Guarantee: each primitive of linear algebra in a program, at any depth, is replaced. Derivatives have been taken before,
so calls with rules of their own are calls like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, Primitive

from dpsco.clipping.jax.known_primitives import equations

__all__ = ["with_finite_matrices"]

_UNEXPORTED = ("geqp3", "geqrf", "ormqr", "symmetric_product")
_CALLS = ("jaxpr", "call_jaxpr")
_LOOPS = ("scan", "while", "cond")


def with_finite_matrices(program: ClosedJaxpr) -> ClosedJaxpr:
    """Return the program with finite operands of LAPACK; the same one if it does not call LAPACK."""
    if not _calls_lapack(program.jaxpr):
        return program
    given = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in program.in_avals]  # type: ignore[no-untyped-call]
    return jax.make_jaxpr(lambda *inputs: _evaluated(program.jaxpr, program.consts, inputs))(*given)


def _is_lapack(primitive: Any) -> bool:
    exported = (each for each in vars(jax.lax.linalg).values() if isinstance(each, Primitive))
    return primitive.name in _UNEXPORTED or any(primitive is each for each in exported)


def _calls_lapack(jaxpr: Any) -> bool:
    return any(_is_lapack(equation.primitive) for equation in equations(jaxpr))


def _evaluated(jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *inputs), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        results = _results(equation, [read(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _results(equation: Any, values: list[Any]) -> list[Any]:
    params, own = equation.params, next((equation.params[name] for name in _CALLS if name in equation.params), None)
    inside = jax.tree.leaves(list(params.values()), is_leaf=lambda part: hasattr(part, "eqns"))
    if any(hasattr(part, "eqns") and _calls_lapack(part) for part in inside):
        if own is not None and equation.primitive.name not in _LOOPS:
            closed = isinstance(own, ClosedJaxpr)
            return _evaluated(own.jaxpr if closed else own, own.consts if closed else (), values)
        params = {name: _replaced(part) for name, part in params.items()}
    elif _is_lapack(equation.primitive):
        return _finite(equation, values)
    return _bound(equation, values, params)


def _replaced(part: Any) -> Any:
    """Return a parameter with the programs in it replaced."""
    return jax.tree.map(
        lambda each: with_finite_matrices(each) if isinstance(each, ClosedJaxpr) else each,
        part,
        is_leaf=lambda each: each is None or hasattr(each, "eqns"),
    )


def _finite(equation: Any, values: list[Any]) -> list[Any]:
    finite = jnp.stack([jnp.isfinite(value).all() for value in values]).all()
    kept = [jnp.where(finite, value, jnp.zeros_like(value)) for value in values]
    found = _bound(equation, kept, equation.params)
    return [jnp.where(finite, one, jnp.nan) if jnp.issubdtype(one.dtype, jnp.inexact) else one for one in found]


def _bound(equation: Any, values: list[Any], params: Any) -> list[Any]:
    answer = equation.primitive.bind(*values, **equation.primitive.get_bind_params(params))
    return list(answer) if equation.primitive.multiple_results else [answer]
