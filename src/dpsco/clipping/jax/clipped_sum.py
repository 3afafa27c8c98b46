"""Second half of an answer: norms from factors, then one sum of scaled rows. All of it in float64.

For each leaf, a row's contribution is a product P = sum_s G_s' A_s (or the difference D itself, if it was formed), made
of exactly the numbers that the first half returned. With inner products over positions p, q of the row

    ||P||^2 = sum_{s,p,r,q} <G_sp, G_rq> <A_sp, A_rq>,          gross = sum_{s,p} |G_sp| |A_sp| >= ||P||,

and the sum of scaled rows is the last step of a backward pass: sum_i (c_i G_i)' A_i, one matrix product.

Guarantee, also for float32 models, because everything here is float64:
  the computed square differs from the exact one by less than e gross^2, e = (sizes + terms^2 + 64) 2^-52. This also
  covers the roundings of c_i G_i and of the sum over one row. It is added before the root is taken, so the clip is a
  bound in exact arithmetic. So is the rounding of the sum of squares over the leaves, 2^-53 per leaf (``scales``);
  no row enters with c gross > 2^15 C: a row whose terms cancel by more than that is scaled down further;
  adding K rows of T terms then has an error of at most K (K T) 2^-53 2^15 C in any order. ``largest_block`` keeps it
  below 2^-12 C, which is half of SUMMATION_SLACK / 2;
  a row that is not finite, or whose norm is not, is replaced by zeros before it is combined with any other row.
Cost: one matrix product per leaf and term. No gradient of a row is formed unless the leaf's rule says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from dpsco.clipping.bound import LARGEST_NORM
from dpsco.clipping.jax.factors import Factors, is_outer
from dpsco.clipping.jax.ghost_rules import Gathered, Product, Rule, Whole

__all__ = ["add_block", "largest_block", "on_grid", "scales"]

_UNIT = 2.0**-52
_CANCELLATION = 2.0**-30
_TINY = 2.0**-1020
"""Bound, with a margin, on the error of flushing one product of two float64 to zero."""


def largest_block(terms: int) -> int:
    """Return the largest K with K (K terms) 2^-38 <= 2^-12."""
    return max(1, math.isqrt(2**26 // terms))


def add_block(
    rules: Sequence[Rule], points: int, totals: Any, factors: Factors, usable: Any, clip: Any, grid: Any
) -> tuple[Any, Any, Any]:
    """Add one block of rows, rounded to the grid, to ``totals``; also count the scaled rows and the rows that count."""
    squares = [_squares(rule, points, parts) for rule, parts in zip(rules, factors, strict=True)]
    scale, kept, over = scales(squares, usable, clip)
    added = [
        total + on_grid(_sum(rule, points, parts, scale, kept), grid)
        for rule, parts, total in zip(rules, factors, totals, strict=True)
    ]
    return added, jnp.sum(over), jnp.sum(kept)


def scales(squares: Sequence[tuple[Any, Any]], usable: Any, clip: Any) -> tuple[Any, Any, Any]:
    """Compute each row's factor c, which rows count and which are scaled, from (upper square, gross^2) per leaf."""
    upper = sum(square for square, _ in squares) * (1.0 + len(squares) * _UNIT)
    gross = sum(square for _, square in squares)
    norms = jnp.sqrt(jnp.maximum(upper, _CANCELLATION * gross))
    kept = usable & (norms <= LARGEST_NORM)
    over = kept & (norms > clip)
    return jnp.where(over, clip / jnp.where(over, norms, 1.0), 1.0), kept, over


def on_grid(values: Any, grid: Any) -> Any:
    """Round to the nearest multiples of ``grid`` on the device, as ``to_grid`` does; 0 means no rounding."""
    step = jnp.where(grid > 0.0, grid, 1.0)
    return jnp.where(grid > 0.0, jnp.round(values / step) * step, values)


def _squares(rule: Rule, points: int, parts: Any) -> tuple[Any, Any]:
    """Return an upper bound on ||P||^2, and gross^2, per row."""
    if isinstance(rule, Gathered):
        signals, places = _taken(rule, parts)
        same = places[:, :, None] == places[:, None, :]
        square = jnp.sum(jnp.where(same, _products(signals, signals), 0.0), axis=(1, 2))
        gross = jnp.sum(jnp.sqrt(_dots(signals, signals)), axis=1) ** 2
        return square + (rule.width + rule.positions**2 + 64) * _UNIT * gross, gross
    if isinstance(rule, Whole) or not is_outer(rule, points):
        flat = _wide(parts.reshape(len(parts), -1))
        square = _dots(flat, flat)
        return square * (1.0 + (flat.shape[1] + 64) * _UNIT), square
    return _outer_squares(rule, [_wide(g) for g in parts[0]], [_wide(a) for a in parts[1]])


def _outer_squares(rule: Product, G: list[Any], A: list[Any]) -> tuple[Any, Any]:
    square: Any = 0.0
    for s in range(len(G)):
        for r in range(s, len(G)):
            twice = 1.0 if r == s else 2.0
            square += twice * jnp.sum(_products(G[s], G[r]) * _products(A[s], A[r]), axis=(1, 2))
    lengths = [(_dots(g, g), _dots(a, a)) for g, a in zip(G, A, strict=True)]
    gross = sum(jnp.sum(jnp.sqrt(g) * jnp.sqrt(a), axis=1) for g, a in lengths) ** 2
    sizes, terms = rule.outputs + rule.inputs, len(G) * rule.positions
    flushed = terms * sizes * _TINY * sum(jnp.sum(g + a, axis=1) for g, a in lengths)
    return square + (sizes + terms**2 + 64) * _UNIT * gross + flushed, gross


def _sum(rule: Rule, points: int, parts: Any, scale: Any, kept: Any) -> Any:
    """Sum c times the contribution over rows, in the shape of the leaf."""
    if isinstance(rule, Gathered):
        signals, places = _taken(rule, parts)
        shortened = _only(kept, signals) * scale[:, None, None]
        table = jnp.zeros((rule.rows, rule.width))
        return rule.shaped(table.at[places.ravel()].add(shortened.reshape(-1, rule.width), mode="drop"))
    if isinstance(rule, Whole) or not is_outer(rule, points):
        flat = _only(kept, _wide(parts.reshape(len(parts), -1)))
        total = (scale @ flat).reshape(parts.shape[1:])
        return total if isinstance(rule, Whole) else rule.shaped(total)
    total = 0.0
    for g, a in zip(*parts, strict=True):
        shortened, activations = _only(kept, _wide(g)) * scale[:, None, None], _only(kept, _wide(a))
        total += rule.product(shortened.reshape(-1, rule.outputs), activations.reshape(-1, rule.inputs))
    return rule.shaped(total)


def _taken(rule: Gathered, parts: Any) -> tuple[Any, Any]:
    """Return signals in float64 and their rows of the table; signals outside the table are 0, at row 0."""
    signals, places = _wide(parts[0]), parts[1]
    inside = (places >= 0) & (places < rule.rows)
    if rule.drops:
        signals = jnp.where(inside[:, :, None], signals, 0.0)
    return signals, jnp.clip(places, 0, rule.rows - 1)


def _wide(values: Any) -> Any:
    return values.astype(jnp.float64)


def _only(kept: Any, values: Any) -> Any:
    """Replace rows that do not count with 0; 0 times an infinite row would not be 0."""
    return jnp.where(kept.reshape(-1, *(1,) * (values.ndim - 1)), values, 0.0)


def _dots(x: Any, y: Any) -> Any:
    return jnp.sum(x * y, axis=-1)


def _products(x: Any, y: Any) -> Any:
    """Compute <x_p, y_q> per row: (rows, T, T)."""
    return _dots(x, y)[:, :, None] if x.shape[1] == 1 else jnp.einsum("rpo,rqo->rpq", x, y)
