"""A loss compiled for rows of one form, queries with one number of points and blocks of one size.

There are two compiled functions. The second reads what the first has written to memory, so the norm is taken of
exactly the numbers that are added. A single function could compute them twice and round them differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from dpsco.clipping.jax.blocks import Block, Form
from dpsco.clipping.jax.clipped_sum import add_block, largest_block
from dpsco.clipping.jax.factors import factors_of_rows, is_outer, one_by_one, passes_of_row, screened
from dpsco.clipping.jax.ghost_rules import Gathered, Product, Rule, Whole, rules_of
from dpsco.clipping.jax.pytrees import Layout, x64
from dpsco.clipping.jax.tracing import flat_jaxpr, shaped
from dpsco.query import Query

__all__ = ["Program", "block_rows", "compiled", "compiled_rowwise", "traced"]


@dataclass(frozen=True, eq=False)
class Program:
    """The functions ``factors`` and ``add``, compiled on their first call."""

    rows: int
    double: bool
    factors: Callable[..., Any]
    add: Callable[..., Any]

    def points_of(self, layout: Layout, query: Query) -> Any:
        """Return the leaves at each point of ``query``, on the device."""
        with x64(self.double):
            return [[jax.numpy.asarray(part) for part in layout.parts(point)] for point in query.points]

    def __call__(self, points: Any, query: Query, totals: Any, block: Block) -> tuple[Any, Any, Any]:
        """Add one block to ``totals``; also count the scaled rows and the rows that count."""
        with _no_nan_checks(), x64(self.double):
            weights = np.asarray(query.weights, np.float64 if self.double else np.float32)
            found = self.factors(points, list(weights), block.features, block.labels, block.there)
        # The caller's jax_default_matmul_precision may round products to 11 bits: norms and sums would bound nothing.
        with _no_nan_checks(), x64(True), jax.default_matmul_precision("highest"):
            return self.add(totals, *found, np.float64(query.clip), np.float64(query.grid))


@contextmanager
def _no_nan_checks() -> Iterator[None]:
    """Switch off ``jax_debug_nans``: an error that depends on a row is an output."""
    with jax.debug_nans(False), jax.debug_infs(False):
        yield


def traced(loss: Callable[..., Any], layout: Layout, form: Form, *, ghost: bool) -> tuple[ClosedJaxpr, list[Rule]]:
    """Trace ``loss`` on a row of ``form`` and find one rule per leaf; ``ghost=False`` forms all gradients."""

    def flat(*inputs: Any) -> Any:
        return loss(jax.tree.unflatten(layout.tree, inputs[:-2]), (inputs[-2], inputs[-1]))

    with x64(layout.double):
        leaves = [shaped(s, d) for s, d in zip(layout.shapes, layout.dtypes, strict=True)]
        row = shaped(form.shape, form.features), shaped((), form.labels)
        closed = flat_jaxpr(flat, *leaves, *row)
    if ghost:
        return closed, rules_of(closed, len(leaves))
    return closed, [Whole(leaf, "gradients are formed for every row") for leaf in range(len(leaves))]


def block_rows(closed: ClosedJaxpr, rules: Sequence[Rule], points: int, memory: int, size: int) -> int:
    """Return the number of rows per block, from public numbers only.

    It respects ``memory`` bytes and the summation bound, and divides ``size`` rows as evenly as possible.
    """
    values = sum(_bytes(var.aval) for equation in closed.jaxpr.eqns for var in equation.outvars)
    needed, terms = 2 * points * values, 1
    for rule in rules:
        leaf = closed.jaxpr.invars[rule.leaf].aval
        if isinstance(rule, Gathered):
            needed += rule.positions * (rule.width * (leaf.dtype.itemsize + 16) + 8 * rule.positions)
            terms = max(terms, rule.positions)
        elif isinstance(rule, Product):
            copies = points if rule.moving else 1
            unfolded = copies * rule.positions * rule.inputs
            needed += unfolded * 2 * leaf.dtype.itemsize
            if is_outer(rule, points):
                needed += 8 * (unfolded + copies * rule.positions * (rule.outputs + rule.positions))
                terms = max(terms, copies * rule.positions)
            else:
                needed += (leaf.dtype.itemsize + 8) * rule.outputs * rule.inputs
        else:
            needed += (leaf.dtype.itemsize + 8) * leaf.size
    most = 1 << (max(1, min(memory // needed, largest_block(terms))).bit_length() - 1)
    even = -(-size // -(-size // most))
    return int(min(most, -(-even // 8) * 8))


def compiled(closed: ClosedJaxpr, rules: Sequence[Rule], points: int, rows: int, *, double: bool) -> Program:
    """Return the program for blocks of ``rows`` rows that are summed together."""

    def factors(at: Any, weights: Any, features: Any, labels: Any, there: Any) -> Any:
        return factors_of_rows(closed, rules, at, weights, features, labels, there)

    def add(totals: Any, found: Any, usable: Any, clip: Any, grid: Any) -> Any:
        return add_block(rules, points, totals, found, usable, clip, grid)

    return Program(rows, double, jax.jit(factors), jax.jit(add, donate_argnums=0))


def compiled_rowwise(closed: ClosedJaxpr, rules: Sequence[Rule], points: int, rows: int, *, double: bool) -> Program:
    """Return the program that rounds rows one at a time: a row's position and neighbours cannot affect its bits."""

    def factors(at: Any, weights: Any, features: Any, labels: Any, there: Any) -> Any:
        features, labels, usable = screened(features, labels, there)
        alone, _ = passes_of_row(closed, rules, at, weights, features, labels)
        return one_by_one(alone, features, labels), usable

    def add(totals: Any, found: Any, usable: Any, clip: Any, grid: Any) -> Any:
        def one(totals: Any, row: Any) -> Any:
            alone, counts = jax.tree.map(lambda part: part[None], row)
            totals, over, kept = add_block(rules, points, totals, alone, counts, clip, grid)
            return totals, (over, kept)

        totals, (over, kept) = lax.scan(one, totals, (found, usable))
        return totals, over.sum(), kept.sum()

    return Program(rows, double, jax.jit(factors), jax.jit(add, donate_argnums=0))


def _bytes(aval: Any) -> int:
    return int(getattr(aval, "size", 0)) * int(getattr(getattr(aval, "dtype", None), "itemsize", 0))
