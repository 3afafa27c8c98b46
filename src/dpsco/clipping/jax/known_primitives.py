"""Primitives of JAX that compute on arrays only, and which of them keep rows apart under ``vmap``.

A host callback sees a whole block of rows; so does a batching rule that comes with the loss. JAX has many ways to
bring one: ``custom_vmap``, ``buffer_callback``, ``ffi_call``, a ``VJPHiPrimitive`` with ``batch``, a Pallas kernel, a
``Primitive`` of one's own, which may even be named "add".

Random keys bring code too: that of their generator, which JAX calls when it compiles. Keys of other generators than
JAX's own are refused.

Two primitives of JAX mix rows under ``vmap``. ``betainc`` is a loop over all numbers of a block that ends when the last
of them has converged: the slowest row decides the last bits of the others. The generators "rbg" and "unsafe_rbg" draw
the numbers of a whole block from the key of its first row. Losses with these are computed one row after another.

Guarantee: a primitive that is not known counts as one that leaves JAX. It is known by its identity, not by its name.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

import jax
from jax.extend.core import Primitive, primitives
from jax.extend.random import rbg_prng_impl, threefry_prng_impl, unsafe_rbg_prng_impl

__all__ = ["equations", "mixes_rows", "unknown_primitives"]

_UNEXPORTED = frozenset(
    (
        "addupdate",
        "composite",
        "custom_jvp_call_jaxpr",
        "empty",
        "freeze",
        "geqp3",
        "geqrf",
        "layout_constraint",
        "linear_call",
        "new_ref",
        "platform_index",
        "pvary",
        "random_clone",
        "random_unwrap",
        "random_wrap",
        "reshard",
        "tie",
        "zeros_like",
    )
)
"""Names of safe primitives that JAX uses and does not export."""


_MIXING = ("regularized_incomplete_beta", "rng_bit_generator", "rng_uniform")
"""Names of primitives that do not keep rows apart under ``vmap``."""


def unknown_primitives(jaxpr: Any) -> Iterator[str]:
    """Yield the names of primitives that are not known, at any depth, and of generators of random numbers."""
    for equation in equations(jaxpr):
        if not _known(equation.primitive):
            yield equation.primitive.name
        for generator in _generators(equation):
            if not any(generator is each for each in (threefry_prng_impl, rbg_prng_impl, unsafe_rbg_prng_impl)):
                yield f"random keys of {generator.name}"


def mixes_rows(jaxpr: Any) -> bool:
    """Whether a program has a primitive, at any depth, that does not keep rows apart under ``vmap``."""
    return any(
        equation.primitive.name in _MIXING or any(each is not threefry_prng_impl for each in _generators(equation))
        for equation in equations(jaxpr)
    )


def equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a program at any depth."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def _generators(equation: Any) -> Iterator[Any]:
    """Yield the generator of each random key that an equation takes or returns."""
    for atom in (*equation.invars, *equation.outvars):
        kind = getattr(atom.aval, "dtype", None)
        if kind is not None and jax.numpy.issubdtype(kind, jax.dtypes.prng_key):
            yield kind._impl


@functools.cache
def _known(primitive: Any) -> bool:
    if any(primitive is each for module in (primitives, jax.lax, jax.lax.linalg) for each in vars(module).values()):
        return True
    return primitive.name in _UNEXPORTED and any(primitive is each for each in _of_jax())


def _of_jax() -> Iterator[Any]:
    """Yield the primitives that a module of JAX defines."""
    for name, module in list(sys.modules.items()):
        if name.startswith("jax."):
            yield from (each for each in list(vars(module).values()) if isinstance(each, Primitive))
