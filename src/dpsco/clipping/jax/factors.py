"""First half of an answer: per row, the factors of its weighted difference.

With phi(delta) = sum_j w_j f(x_j + delta, d), the weighted difference of a row d is grad phi(0): one derivative of one
function, for any number of points. Leaves with a rule get no delta. Their equation gets one tap per point
instead, and the derivatives with respect to the taps are the weighted signals u_j = w_j g_j. With the activations a_j

    sum_j u_j' a_j = (sum_j u_j)' a_0 + sum_{j>0} u_j' (a_j - a_0),

and the right-hand side is kept. If x_0 and x_1 are close, its terms are as small as the difference itself; the terms
on the left are eta_t times a gradient and cancel.

Guarantee: the factors of a row depend only on that row, its position in the block and the query. Both passes of one row
are traced to equations, which are checked: these, and no code of the loss, run under ``vmap``, or in a loop over the
rows where ``vmap`` would mix them (known_primitives.py). A row that is not finite is replaced by zeros before anything
is computed.
Cost: one forward and one backward pass per point, without the gradients of leaves that have a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from dpsco.clipping.jax.finite_matrices import with_finite_matrices
from dpsco.clipping.jax.ghost_rules import Gathered, Product, Rule, Whole
from dpsco.clipping.jax.known_primitives import mixes_rows
from dpsco.clipping.jax.tracing import check_stays_inside, run, shaped

__all__ = ["Factors", "factors_of_rows", "is_outer", "one_by_one", "passes_of_row", "screened"]

Factors = list[Any]
"""Per leaf: the difference itself for ``Whole`` and formed products; ([G_s], [A_s]), each (T, .), for outer products;
(signals, places) for ``Gathered``."""


def is_outer(rule: Rule, points: int) -> bool:
    """Whether the norm of a product is cheaper from its factors than from the product itself."""
    if not isinstance(rule, Product):
        return False
    terms = rule.positions * (points if rule.moving else 1)
    return terms * (rule.outputs + rule.inputs) < rule.outputs * rule.inputs


def screened(features: Any, labels: Any, there: Any) -> tuple[Any, Any, Any]:
    """Set rows that are not finite in the model's types, or not ``there``, to 0; also return which rows remain."""
    usable = there & jnp.isfinite(labels) & jnp.all(jnp.isfinite(features.reshape(len(labels), -1)), axis=1)
    wide = usable.reshape(-1, *(1,) * (features.ndim - 1))
    zero = jnp.zeros((), features.dtype)
    return jnp.where(wide, features, zero), jnp.where(usable, labels, jnp.zeros((), labels.dtype)), usable


def factors_of_rows(
    closed: ClosedJaxpr, rules: Sequence[Rule], points: Any, weights: Any, features: Any, labels: Any, there: Any
) -> tuple[Factors, Any]:
    """Compute the factors of every row of a block, with a leading axis of rows, and which rows count."""
    features, labels, usable = screened(features, labels, there)
    alone, mixes = passes_of_row(closed, rules, points, weights, features, labels)
    if mixes:
        return one_by_one(alone, features, labels), usable
    rows: Any = jax.vmap(alone)
    return rows(features, labels), usable


def one_by_one(alone: Callable[[Any, Any], Factors], features: Any, labels: Any) -> Factors:
    """Compute the factors of rows in a loop that knows no positions, with a leading axis of rows."""
    found: Factors = lax.map(lambda row: alone(*row), (features, labels))
    return found


def passes_of_row(
    closed: ClosedJaxpr, rules: Sequence[Rule], points: Any, weights: Any, features: Any, labels: Any
) -> tuple[Callable[[Any, Any], Factors], bool]:
    """Return the factors as a function of one row and its label, and whether ``vmap`` of it would mix rows.

    Rules for derivatives are called here, and not again. Raise InvalidArgument if such a rule calls code outside JAX.
    """

    def of_row(at: Any, factors: Any, a: Any, y: Any) -> Factors:
        return _factors_of_row(closed, rules, at, factors, a, y)

    row = shaped(features.shape[1:], features.dtype), shaped((), labels.dtype)
    program, found = jax.make_jaxpr(of_row, return_shape=True)(points, weights, *row)
    check_stays_inside(program)
    program = with_finite_matrices(program)
    given, form = jax.tree.leaves((points, weights)), jax.tree.structure(found)
    return lambda a, y: jax.tree.unflatten(form, jaxpr_as_fun(program)(*given, a, y)), mixes_rows(program.jaxpr)


def _factors_of_row(
    closed: ClosedJaxpr, rules: Sequence[Rule], points: Any, weights: Any, features: Any, label: Any
) -> Factors:
    """Compute the factors of one row; ``points[j]`` are the leaves at x_j, ``weights`` has one number per point."""
    tapped = [rule for rule in rules if not isinstance(rule, Whole)]
    kept = {rule.equation: rule.operand for rule in tapped}
    shapes = {k: closed.jaxpr.eqns[k].outvars[0].aval for k in kept}
    whole = [rule.leaf for rule in rules if isinstance(rule, Whole)]

    def phi(delta: list[Any], taps: list[dict[int, Any]]) -> Any:
        total, records = 0.0, []
        for weight, leaves, tap in zip(weights, points, taps, strict=True):
            moved = list(leaves)
            for leaf, step in zip(whole, delta, strict=True):
                moved[leaf] = moved[leaf] + step
            value, record = run(closed, (*moved, features, label), tap, kept)
            total = total + weight.astype(value.dtype) * value
            records.append(record)
        return total, records

    delta = [jnp.zeros_like(points[0][leaf]) for leaf in whole]
    taps = [{k: jnp.zeros(aval.shape, aval.dtype) for k, aval in shapes.items()} for _ in points]
    (by_delta, by_taps), records = jax.grad(phi, argnums=(0, 1), has_aux=True)(delta, taps)
    found = iter(by_delta)
    return [next(found) if isinstance(rule, Whole) else _factors(rule, by_taps, records, len(points)) for rule in rules]


def _factors(rule: Product | Gathered, by_taps: list[Any], records: list[Any], points: int) -> Any:
    signals = [by_tap[rule.equation] for by_tap in by_taps]
    inputs = [record[rule.equation] for record in records]
    if isinstance(rule, Gathered):
        return sum(signals[1:], signals[0]).reshape(rule.positions, rule.width), inputs[0].reshape(rule.positions)
    u = [rule.signal(g) for g in signals]
    total = sum(u[1:], u[0])
    a = [rule.activation(x) for x in (inputs if rule.moving else inputs[:1])]
    steps = [later - a[0] for later in a[1:]]
    G, A = [total, *u[1 : len(a)]], [a[0], *steps]
    if is_outer(rule, points):
        return G, A
    return sum(rule.product(g, x) for g, x in zip(G, A, strict=True))
