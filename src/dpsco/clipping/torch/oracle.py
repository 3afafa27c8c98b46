"""The oracle of a PyTorch module and a loss.

For each block of rows, a forward and a backward pass at each point of the query give the input of each layer and the
signal at its output. From these come every row's norm, without its gradient (ghost_rules.py), the clipping factors, and
the clipped sum in one product per layer. Parameters without a rule get a gradient per row from the same passes.

Guarantee: the contract of oracles (clipping/oracle.py). A row's part of every pass depends only on that row and its
place in the block: code of the model and the loss runs on one synthetic row, and its operators are repeated on every
row by itself (recorded.py). Models that cannot be recorded run on one row at a time, each row in a new copy of the
module (passes.py). Blocks are cut by position, and rows that do not count are replaced, not removed, so shapes do not
change. The vector that a model computes for a row, in any precision, is by
definition that row's vector. Its norm and factor are float64, and the rounding of the sum is counted (terms.py,
clipped_sum.py). Float32 models and fast matrix units thus change the model's gradients, never the bound. Under
add-remove, where places shift, each row has its own pass.
Cost: an ordinary forward and backward pass per point, plus norms; about ``memory`` bytes and four parameter vectors.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpsco.clipping.class_labels import ClassLabels
from dpsco.clipping.torch.checks import check_layers
from dpsco.clipping.torch.clipped_sum import BLOCK_ROWS, add_clipped, on_grid_
from dpsco.clipping.torch.output_change import output_change
from dpsco.clipping.torch.passes import LossFunction, fixed_settings, one_by_one
from dpsco.clipping.torch.structure import Failed, Structure, analyse, ghost_terms
from dpsco.clipping.torch.terms import Dense, Term
from dpsco.clipping.torch.weights import Weights
from dpsco.errors import DataError, InvalidArgument, positive_integer
from dpsco.fork_safety import ThreadLock
from dpsco.query import Array, Batch, Chunk, Clipped, Query
from dpsco.rows.csr import is_sparse
from dpsco.rows.rechunk import in_blocks
from dpsco.rows.shaped import declared_shape

__all__ = ["TorchOracle", "oracle"]

Tensor = Any
MEMORY = 1 << 28
LARGEST_PASS = 1024
_MODEL_CODE = ThreadLock()
"""Code of models need not be safe in threads: with two passes at a time, rows of one run could reach the other."""


def oracle(
    model: Any,
    loss: LossFunction,
    *,
    memory: int = MEMORY,
    input_shape: tuple[int, ...] | None = None,
    inputs: Any = None,
    labels: Any = None,
    ghost: bool = True,
) -> TorchOracle:
    """Build the oracle of ``model`` and ``loss(outputs, labels)``.

    Parameters
    ----------
    model : nn.Module
        It is copied; training never changes it. Parameters with ``requires_grad=False`` do not change. The initial
        parameters must be public.
    loss : callable
        Returns one number per row (``reduction="none"``), or a single number; it is then evaluated row by row.
    memory : int
        Approximate limit on the bytes of a pass.
    input_shape : tuple of int, optional
        Shape of a row in the model, such as (1, 28, 28). Rows of a stream are flat, and so are the model's by default.
    inputs, labels : torch.dtype, optional
        Types to which rows and labels are converted. By default each gets the model's type if model and loss accept it
        on synthetic rows, else ``torch.int64`` (embeddings, classes). The data play no role.
    ghost : bool
        If False, every parameter uses ``vmap``.

    Returns
    -------
    TorchOracle

    Raises
    ------
    InvalidArgument
        If the model has no trainable parameter, or a layer mixes rows or is random.
    """
    return TorchOracle(model, loss, memory=memory, input_shape=input_shape, inputs=inputs, labels=labels, ghost=ghost)


class TorchOracle:
    """Oracle of a PyTorch model. Build it with ``dpsco.torch.oracle``.

    ``size`` is the problem's dimension, ``start`` the start of ``train``, ``load`` returns the trained model.
    """

    def __init__(
        self,
        model: Any,
        loss: LossFunction,
        *,
        memory: int,
        input_shape: tuple[int, ...] | None,
        inputs: Any,
        labels: Any,
        ghost: bool,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise InvalidArgument(f"Expected model to be a torch.nn.Module, got {type(model).__name__}.")
        if not callable(loss):
            raise InvalidArgument("Expected loss to be a function of (outputs, labels).")
        check_layers(model)
        self._weights = Weights.of(_copied(model))
        self._loss, self._ghost = loss, ghost
        self._memory = positive_integer("memory", memory, "It limits the bytes of a pass.")
        self._shape = None if input_shape is None else declared_shape(None, input_shape)
        self._inputs, self._labels = inputs, labels
        self._structures: dict[int, Structure] = {}
        first = self._weights.module.get_parameter(next(iter(self._weights.shapes)))
        self._device, self._dtype = first.device, first.dtype

    def __getstate__(self) -> dict[str, Any]:
        """Leave out recorded passes: another process makes its own from the same synthetic rows."""
        return {**vars(self), "_structures": {}}

    @property
    def size(self) -> int:
        """Number of trainable parameters: the dimension of the problem."""
        return self._weights.size

    @property
    def start(self) -> Array:
        """Initial parameters as a vector, for ``train(..., start=oracle.start)``. They must be public."""
        return self._weights.start

    @property
    def tensors(self) -> list[Array]:
        """Initial parameters, an array per trainable tensor, for ``plan_network(..., start=oracle.tensors)``."""
        return [part.numpy() for part in self._weights.views(torch.from_numpy(self.start)).values()]

    def load(self, weights: Any) -> Any:
        """Return a copy of the model with ``weights``: ``result.model`` or a flat vector."""
        return self._weights.load(weights)

    def weights(self, weights: Any) -> dict[str, Any]:
        """Return ``weights`` as the model's ``state_dict``, with the same keys, types, shapes and devices."""
        state: dict[str, Any] = self.load(weights).state_dict()
        return state

    def load_into(self, model: Any, weights: Any) -> None:
        """Write ``weights`` into the trainable parameters of ``model``, the module that the oracle was built from."""
        own = self.load(weights)
        with torch.no_grad():
            for name in self._weights.shapes:
                model.get_parameter(name).copy_(own.get_parameter(name))

    def row_type(self, width: int) -> str:
        """Return the type in which a stream holds rows for the model without losing a digit: float32 or float64."""
        kind = self._structure(width).inputs
        return "float32" if kind.is_floating_point and kind.itemsize <= 4 else "float64"

    def output_change(self, width: int) -> Callable[[float], float] | None:
        """Return how far noise of a standard deviation on each weight moves the outputs on synthetic rows.

        For ``plan_network(..., outputs=oracle.output_change(width))``. None unless rows are whole numbers (words).
        """
        structure = self._structure(width)
        return output_change(self._weights, structure.shape, structure.inputs, self._device)

    def label_rule(self, width: int) -> ClassLabels | None:
        """Return which labels the loss accepts for the model's outputs; None if it accepts any number."""
        structure = self._structure(width)
        return None if structure.classes is None else ClassLabels(structure.classes)

    def describe(self, width: int) -> str:
        """List which parameters have a ghost rule and which use ``vmap``, and why, for rows of ``width`` numbers."""
        structure = self._structure(width)
        rows = self._pass_rows(structure)
        return "\n".join([*structure.lines, f"passes of {rows} rows, about {structure.row_bytes:,} bytes each"])

    # --- the contract of oracles --------------------------------------------------------------

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Compute the clipped sum of ``batch``."""
        answer = Clipped(np.zeros(self.size), 0)
        with fixed_settings(self._device):
            points = [self._weights.parameters(point) for point in query.points]
            whole = torch.zeros(self.size, dtype=torch.float64, device=self._device)
            total = torch.zeros_like(whole)
        for features, labels in in_blocks(_dense(batch), 1 if query.rowwise else BLOCK_ROWS):
            structure = self._structure(features.shape[1])
            step, shortened, zeroed = self._pass_rows(structure), 0, 0
            with fixed_settings(self._device):
                total.zero_()
                for first in range(0, len(labels), step):
                    part = slice(first, first + step)
                    over, bad = self._pass(structure, query, points, (features[part], labels[part]), total)
                    shortened, zeroed = shortened + over, zeroed + bad
                whole += on_grid_(total, query.grid)
            answer.rows += len(labels)
            answer.clipped_rows += shortened
            answer.zeroed_rows += zeroed
        answer.total = whole.cpu().numpy()
        return answer

    def _pass(
        self, structure: Structure, query: Query, points: list[dict[str, Tensor]], chunk: Chunk, total: Tensor
    ) -> tuple[int, int]:
        rows, labels, bad = self._usable(chunk, structure)
        terms, _ = self._tried(structure, query.weights, points, rows, labels)
        if terms is None:
            # An invalid label or index stops the whole pass: rows that fail alone count as zero. Their errors are not
            # reported: an error that depends on a row is an output.
            bad = bad | self._failing(structure, query.weights, points, rows, labels)
            if bool(bad.all()):
                return 0, len(bad)
            taken = int(torch.nonzero(~bad)[0])  # any row that works keeps the shapes; a zero row might fail too
            rows[bad], labels[bad] = rows[taken].clone(), labels[taken].clone()
            for each in (structure, replace(structure, together=False)):  # rows that fail together are computed apart
                terms, kind = self._tried(each, query.weights, points, rows, labels)
                if terms is not None:
                    break
            else:
                raise InvalidArgument(
                    f"The model or the loss failed ({kind}) on rows that each succeed alone. Reduce memory= if memory "
                    "is short."
                )
        over, bad = add_clipped(terms, bad, query.clip, self._weights.views(total))
        return int(over.sum()), int(bad.sum())

    def _terms(
        self,
        structure: Structure,
        factors: Sequence[float],
        points: list[dict[str, Tensor]],
        rows: Tensor,
        labels: Tensor,
    ) -> dict[str, Term]:
        terms: dict[str, Term] = {}
        if structure.passes is None:
            names = structure.others
            with _MODEL_CODE.lock:
                formed = [one_by_one(self._weights, names, self._loss, point, rows, labels) for point in points]
        else:
            found = [structure.passes(point, rows, labels, together=structure.together) for point in points]
            for name, rule in structure.ghosts.items():
                terms |= ghost_terms(self._weights, name, rule, factors, found)
                for each in found:  # no longer needed
                    del each.activations[name], each.signals[name]
            formed = [each.gradients for each in found]
        for name in structure.others:
            d = sum(factor * each.pop(name) for factor, each in zip(factors, formed, strict=True))
            terms[name] = Dense(d.reshape(len(rows), -1))
        return terms

    def _tried(self, *arguments: Any) -> tuple[dict[str, Term] | None, str]:
        """Return ``_terms``, or None and only the type of the error: its text and frames contain rows."""
        try:
            return self._terms(*arguments), ""
        except KeyboardInterrupt:  # of the user, not of a row
            raise
        except BaseException as error:  # SystemExit too: a row must not end the process
            return None, type(error).__name__

    def _failing(
        self,
        structure: Structure,
        factors: Sequence[float],
        points: list[dict[str, Tensor]],
        rows: Tensor,
        labels: Tensor,
    ) -> Tensor:
        """Find the rows on which the model or the loss fails at any point."""
        failing = torch.zeros(len(labels), dtype=torch.bool, device=self._device)
        for k in range(len(labels)):
            failing[k] = self._tried(structure, factors, points, rows[k : k + 1], labels[k : k + 1])[0] is None
        return failing

    def _usable(self, chunk: Chunk, structure: Structure) -> tuple[Tensor, Tensor, Tensor]:
        """Convert rows and labels to the model's types; rows that do not fit become zeros and are marked."""
        features, labels = (np.asarray(part) for part in chunk)
        with np.errstate(all="ignore"):
            good = np.isfinite(labels) & np.all(np.isfinite(features), axis=1)
            if not structure.inputs.is_floating_point:
                good &= np.all(features == np.floor(features), axis=1)
            if not structure.labels.is_floating_point:
                good &= labels == np.floor(labels)
            if structure.classes is not None:
                good &= (labels >= 0) & (labels < structure.classes)
        bad = ~good
        if bad.any():
            features, labels = np.where(bad[:, None], 0, features), np.where(bad, 0, labels)
        with np.errstate(all="ignore"):
            x = torch.tensor(_plain(features)).to(self._device, structure.inputs).unflatten(1, structure.shape)
            y = torch.tensor(_plain(labels)).to(self._device, structure.labels)
        return x, y, torch.from_numpy(bad).to(self._device)

    # --- structure and types ------------------------------------------------------------------

    def _structure(self, width: int) -> Structure:
        with _MODEL_CODE.lock:
            if width not in self._structures:
                shape = (width,) if self._shape is None else self._shape
                if math.prod(shape) != width:
                    raise DataError(f"Expected rows of {math.prod(shape)} numbers, input_shape={shape}, got {width}.")
                self._structures[width] = self._analysed(shape)
            return self._structures[width]

    def _analysed(self, shape: tuple[int, ...]) -> Structure:
        """Return the structure for the first types of rows and labels that the model and the loss accept."""
        own, refused = (self._dtype, torch.int64), None
        inputs, labels = (own if kind is None else (kind,) for kind in (self._inputs, self._labels))
        for row, label in itertools.product(inputs, labels):
            try:
                return analyse(self._weights, self._loss, shape, row, label, self._device, ghost=self._ghost)
            except Failed as error:
                refused = refused or error
        raise refused or AssertionError

    def _pass_rows(self, structure: Structure) -> int:
        """Return the rows per pass: a power of two, so that it divides a block."""
        most = max(1, min(LARGEST_PASS, self._memory // structure.row_bytes))
        return 1 << (most.bit_length() - 1)


def _copied(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy, so that training changes nothing of the caller's until ``load``."""
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgument(
            f"Expected a model that copy.deepcopy can copy: {error} Old-style torch.nn.utils.weight_norm and "
            "spectral_norm cannot be copied; those of torch.nn.utils.parametrizations can."
        ) from error


def _dense(batch: Batch) -> Iterator[Chunk]:
    for features, labels in batch.chunks:
        if is_sparse(features):
            raise DataError("A PyTorch model needs dense rows; these are sparse. Use .toarray(), chunk by chunk.")
        yield features, labels


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Convert to a type that torch supports."""
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        return values.astype(np.float64)
    if values.dtype.kind == "u" and values.dtype.itemsize > 1:
        return values.astype(np.int64)
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
