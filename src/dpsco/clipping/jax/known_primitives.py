"""Primitives of JAX that compute on arrays only, with batching rules of JAX that keep rows apart under ``vmap``.

A host callback sees a whole block of rows; so does a batching rule that comes with the loss. JAX has many ways to
bring one: ``custom_vmap``, ``buffer_callback``, ``ffi_call``, a ``VJPHiPrimitive`` with ``batch``, a Pallas kernel, a
``Primitive`` of one's own, which may even be named "add".

Guarantee: a primitive that is not known counts as one that leaves JAX. It is known by its identity, not by its name.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

import jax
from jax.extend.core import Primitive, primitives

__all__ = ["unknown_primitives"]

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


def unknown_primitives(jaxpr: Any) -> Iterator[str]:
    """Yield the names of primitives that are not known, at any depth."""
    for equation in jaxpr.eqns:
        if not _known(equation.primitive):
            yield equation.primitive.name
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            if hasattr(inner, "eqns"):
                yield from unknown_primitives(inner)


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
