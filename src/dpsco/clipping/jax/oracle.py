"""Oracle of any loss in JAX: rows in, one clipped sum out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dpsco.clipping.class_labels import ClassLabels
from dpsco.clipping.jax.blocks import Form, blocks, forms_to_try
from dpsco.clipping.jax.factors import is_outer
from dpsco.clipping.jax.ghost_rules import Rule, Whole
from dpsco.clipping.jax.output_change import output_change
from dpsco.clipping.jax.program import Program, block_rows, compiled, compiled_rowwise, traced
from dpsco.clipping.jax.pytrees import Layout, x64
from dpsco.clipping.jax.tracing import shaped
from dpsco.errors import DataError, InvalidArgument
from dpsco.query import Array, Batch, Clipped, Query
from dpsco.rows.csr import is_sparse

__all__ = ["JaxOracle"]


class JaxOracle:
    """Oracle of ``loss(params, (features, label))``, the loss of one row. Build it with ``dpsco.jax.oracle``.

    Guarantee: the contract of ``dpsco.clipping.Oracle`` for any loss, in float32 and float64 (see clipped_sum.py).
    Cost: about two ordinary passes for leaves with a rule (``describe`` lists them), and ``memory`` bytes of
    temporaries plus a few parameter vectors. The program is compiled once per number of points of a query.
    """

    def __init__(
        self, loss: Callable[..., Any], params: Any, memory: int, *, ghost: bool = True, classes: int | None = None
    ) -> None:
        self._loss, self._memory, self._ghost, self._classes = loss, memory, ghost, classes
        self._layout = Layout.of(params)
        self._start = self._layout.flat(params)
        self._start.setflags(write=False)
        self._forms: dict[tuple[int, ...], Form] = {}
        self._traces: dict[Form, Any] = {}
        self._programs: dict[Any, Program] = {}

    @property
    def size(self) -> int:
        """Number of parameters: the ``dimension`` of the problem."""
        return self._layout.size

    @property
    def start(self) -> Array:
        """Initial parameters as one vector: the ``start`` of ``train``."""
        return self._start

    @property
    def tensors(self) -> list[Array]:
        """Initial parameters, an array per leaf, for ``plan_network(..., start=oracle.tensors)``."""
        return [np.asarray(leaf, dtype=np.float64) for leaf in jax.tree.leaves(self.weights(self.start))]

    def weights(self, model: Any) -> Any:
        """Return a trained model, or a flat vector, as a pytree with the structure, shapes and types of ``params``."""
        vector = np.asarray(getattr(model, "coef", model), dtype=np.float64)
        if vector.shape != (self.size,):
            raise InvalidArgument(f"Expected a model or a vector of {self.size} parameters, got shape {vector.shape}.")
        return self._layout.tree_of(vector)

    def row_type(self, width: int) -> str:
        """Return the type in which a stream holds rows for the model without losing a digit: float32 or float64."""
        kind = self._form_of((width,)).features
        return "float32" if kind.kind == "f" and kind.itemsize <= 4 else "float64"

    def outputs(self, apply: Callable[[Any, Any], Any], shape: tuple[int, ...]) -> int | None:
        """Count the outputs per row of ``apply(params, inputs)`` for rows of ``shape``, without data.

        None unless it returns one array (rows, outputs).
        """
        kind = self._form_of((math.prod(shape),)).features
        with x64(self._layout.double):
            found = jax.eval_shape(apply, self.weights(self.start), shaped((1, *shape), kind))
        return int(found.shape[1]) if getattr(found, "ndim", 0) == 2 else None

    def output_change(
        self, apply: Callable[[Any, Any], Any], shape: tuple[int, ...]
    ) -> Callable[[float], float] | None:
        """Return how far noise of a standard deviation on each parameter moves the outputs on synthetic rows.

        For ``plan_network(..., outputs=...)``. None unless rows are whole numbers (words).
        """
        kind = self._form_of((math.prod(shape),)).features
        return output_change(apply, self._layout, self._start, shape, kind)

    def takes_whole_labels(self, width: int) -> bool:
        """Whether the loss takes whole numbers as labels only, as those that look up a class do."""
        return self._form_of((width,)).labels.kind != "f"

    def label_rule(self, width: int) -> ClassLabels | None:
        """Return which labels count, if the number of classes was declared."""
        return None if self._classes is None else ClassLabels(self._classes)

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the clipped sum of ``batch``."""
        if query.points[0].size != self.size:
            raise InvalidArgument(
                f"Expected points of {self.size} parameters, got {query.points[0].size}. Plan with "
                "Problem(loss=CustomLoss(...), dimension=oracle.size, ...)."
            )
        chunks = iter(batch.chunks)
        first = next(chunks, None)
        if first is None:  # an empty batch
            return Clipped(np.zeros(self.size), 0)
        form = self._form(first[0])
        program = self._program(query, form)
        points = program.points_of(self._layout, query)
        with x64(True):
            totals = [jax.numpy.zeros(shape) for shape in self._layout.shapes]
        rows, tallies = 0, []
        for block in blocks(_chain(first, chunks), program.rows, form):
            totals, *tally = program(points, query, totals, block)
            rows += block.filled
            tallies.append(tally)  # read at the end, so the device does not wait after each block
        total = np.concatenate([np.asarray(part).ravel() for part in totals])
        shortened, counted = (sum(int(tally[k]) for tally in tallies) for k in (0, 1))
        return Clipped(total, rows, clipped_rows=shortened, zeroed_rows=rows - counted)

    def describe(self, example: tuple[Any, Any] | None = None) -> str:
        """Describe, one line per parameter, how its part of a row's norm is computed.

        Parameters
        ----------
        example : (features, label), optional
            One synthetic row with the shape of the data. It is not needed after the first batch.
        """
        if example is not None:
            trace = self._trace(self._form(np.asarray(example[0])[None]))
        elif self._traces:
            trace = next(reversed(self._traces.values()))
        else:
            raise InvalidArgument("Expected example=(features, label), one synthetic row: no batch has been seen yet.")
        names, shapes = self._layout.names, self._layout.shapes
        width = max(len(name) for name in names)
        return "\n".join(
            f"{name:<{width}}  {shape!s:<18} {_words(rule)}"
            for name, shape, rule in zip(names, shapes, trace[1], strict=True)
        )

    def _form(self, features: Any) -> Form:
        """Return the first form that the loss accepts for rows of this shape, found without data."""
        if is_sparse(features):
            raise DataError("Expected dense rows: a loss in JAX needs arrays. Pass X.toarray(), chunk by chunk.")
        return self._form_of(tuple(features.shape[1:]))

    def _form_of(self, shape: tuple[int, ...]) -> Form:
        if shape not in self._forms:
            self._forms[shape] = self._accepted(shape)
        return self._forms[shape]

    def _accepted(self, shape: tuple[int, ...]) -> Form:
        refused: Exception | None = None
        for form in forms_to_try(shape, np.dtype(np.float64 if self._layout.double else np.float32), self._classes):
            try:
                self._trace(form)
            except InvalidArgument as error:  # the loss itself is refused, in the types that it takes
                refused = error
            except Exception as error:  # an error about shapes and types: no row was used
                refused = refused or error
            else:
                return form
        raise refused or AssertionError

    def _trace(self, form: Form) -> Any:
        if form not in self._traces:
            self._traces[form] = traced(self._loss, self._layout, form, ghost=self._ghost)
        return self._traces[form]

    def _program(self, query: Query, form: Form) -> Program:
        points = len(query.points)
        key = form, points, query.size, query.rowwise
        if key not in self._programs:
            closed, rules = self._trace(form)
            if query.rowwise:
                rules = [Whole(leaf, "rows are rounded one at a time") for leaf in range(len(rules))]
            rows = block_rows(closed, rules, points, self._memory, query.size)
            make = compiled_rowwise if query.rowwise else compiled
            self._programs[key] = make(closed, rules, points, rows, double=self._layout.double)
        return self._programs[key]


def _chain(first: Any, rest: Any) -> Any:
    yield first
    yield from rest


def _words(rule: Rule) -> str:
    if isinstance(rule, Whole):
        return f"formed for each row: {rule.reason}"
    if is_outer(rule, 2) or rule.kind == "embedding":
        return f"{rule.kind}: norm from signals and activations, never formed"
    return f"{rule.kind}: formed for each row as signals times activations, which is smaller than the two factors"
