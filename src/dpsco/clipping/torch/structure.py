"""Choice of a rule per parameter, made once by a trial pass on synthetic rows.

A layer has a ghost rule if its type has one, it is called once per pass, it does not share its parameters, it sees
each row at its own place and nothing of the others (seen_rows.py), and the rule agrees with ``vmap`` on the synthetic
rows. Every other parameter uses ``vmap``, and ``lines`` says why. A model that reads values of its rows or of their
signals (value_reads.py) is computed one row at a time.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dpsco.clipping.torch.checks import check_rows_independent, synthetic_rows
from dpsco.clipping.torch.ghost_rules import Rule, rule_of
from dpsco.clipping.torch.passes import (
    Captured,
    LossFunction,
    capture,
    fixed_settings,
    per_example,
    row_by_row,
)
from dpsco.clipping.torch.seen_rows import sees_other_rows
from dpsco.clipping.torch.terms import Term
from dpsco.clipping.torch.value_reads import reads_values
from dpsco.clipping.torch.weights import Weights
from dpsco.errors import InvalidArgument

__all__ = ["Failed", "Structure", "analyse", "ghost_terms"]

Tensor = Any
_WEIGHTS = (3.0, -2.0)


class Failed(InvalidArgument):
    """The model or the loss fails on synthetic rows of these types."""


@dataclass(frozen=True, eq=False)
class Structure:
    """How the per-example differences of each parameter are computed."""

    ghosts: Mapping[str, Rule]
    """Layers with a rule."""
    others: tuple[str, ...]
    """Parameters without a rule."""
    together: bool
    """Whether ``vmap`` supports the other parameters; if not, they are computed one row at a time."""
    vector: bool
    """Whether the loss returns one number per row of a batch."""
    row_bytes: int
    """Approximate memory per row."""
    lines: tuple[str, ...]
    """One readable line per parameter."""
    shape: tuple[int, ...]
    """Shape of a row in the model."""
    inputs: Any
    """Type of the rows that the model accepts."""
    labels: Any
    """Type of the labels that the loss accepts."""
    classes: int | None
    """The loss accepts labels 0 to ``classes`` - 1; None if it sets no such bound."""


def analyse(
    weights: Weights,
    loss: LossFunction,
    shape: tuple[int, ...],
    inputs: Any,
    labels: Any,
    device: Any,
    *,
    ghost: bool,
) -> Structure:
    """Analyse ``weights.module`` on synthetic rows of ``shape``.

    Raises
    ------
    InvalidArgument
        If the model or the loss fails on the rows, mixes rows, is random or writes into its tensors.
    """
    module, start = weights.module, weights.start
    try:
        with fixed_settings(device):
            rows, changed, zeros = synthetic_rows(shape, inputs, labels, device)
            points = [weights.parameters(start), weights.parameters(1.01 * start)]
            vector, neighbours = check_rows_independent(module, loss, rows, changed, zeros)
            classes = None if labels.is_floating_point else _classes(module, loss, rows, zeros)
            one = per_example(module, list(weights.shapes), _WEIGHTS, points, loss)
            exact, together = _reference(one, rows, zeros)
            ghosts, reasons = _candidates(weights) if ghost else ({}, {})

            def see(x: Tensor, y: Tensor, upstream: Tensor = None, at: int = 0) -> Captured:
                return capture(module, ghosts, points[at], loss, x, y, vector=vector, upstream=upstream)

            alone = reads_values(lambda: see(rows, zeros))
            together = together and not alone
            if alone:
                ghosts, reasons = {}, {}
            mixing = sees_other_rows(see, (rows, zeros), neighbours) if ghosts else set()
            found = [see(rows, zeros, at=at) for at in range(len(points))]
    except InvalidArgument:
        raise
    except Exception as error:  # errors on synthetic rows are public
        raise Failed(
            f"The model or the loss failed on synthetic rows of shape {shape} ({inputs}) with label 0 "
            f"({labels}): {type(error).__name__}: {error} Rows are flat unless input_shape= says otherwise. Labels are "
            "a vector: for outputs of shape (rows, 1) end the model with nn.Flatten(0). See also inputs= and labels=."
        ) from None
    size = 0
    for name in list(ghosts):
        with fixed_settings(device):
            why = _fault(weights, name, ghosts[name], found, exact)
        if not why and name in mixing:
            why = "what it sees at the place of a row depends on the other rows"
        if why:
            del ghosts[name]
            reasons[name] = why
        else:
            size += _row_bytes(weights, name, ghosts[name], found)
    lines, others, row_bytes = _served(weights, ghosts, reasons, size, together=together, alone=alone)
    return Structure(ghosts, others, together, vector, row_bytes, lines, shape, inputs, labels, classes)


def _classes(module: Any, loss: LossFunction, rows: Tensor, labels: Tensor) -> int | None:
    """Count the labels that the loss accepts, on synthetic rows.

    As many as the model has outputs, if the loss accepts the last of them and refuses the next; else None.
    """
    with torch.no_grad():
        outputs = module(rows)
        if not isinstance(outputs, torch.Tensor) or outputs.ndim < 2:
            return None
        count = outputs.shape[1]
        try:
            loss(outputs, torch.full_like(labels, count - 1))
        except Exception:
            return None
        try:
            loss(outputs, torch.full_like(labels, count))
        except Exception:
            return int(count)
    return None


def ghost_terms(
    weights: Weights, name: str, rule: Rule, factors: Sequence[float], found: Sequence[Captured]
) -> dict[str, Term]:
    """Return the terms of the trainable parameters of the layer ``name``, by their full names."""
    layer = weights.module.get_submodule(name)
    terms = rule(layer, factors, [f.activations[name] for f in found], [f.signals[name] for f in found])
    named = {_join(name, local): term for local, term in terms.items()}
    return {full: term for full, term in named.items() if full in weights.shapes}


def _candidates(weights: Weights) -> tuple[dict[str, Rule], dict[str, str]]:
    """Return the layers whose type has a rule and that share no parameter, and reasons for the other layers."""
    owners = Counter(id(p) for _, p in weights.module.named_parameters(remove_duplicate=False))
    ghosts: dict[str, Rule] = {}
    reasons: dict[str, str] = {}
    for name, layer in weights.module.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        if not any(p.requires_grad for p in own.values()):
            continue
        rule, words = rule_of(layer)
        if any(owners[id(p)] > 1 for p in own.values()):
            reasons[name] = "a parameter that is shared between layers"
        elif rule is None:
            reasons[name] = words
        else:
            ghosts[name] = rule
    return ghosts, reasons


def _reference(one: Any, rows: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], bool]:
    """Compute the per-example differences of all parameters, and whether ``vmap`` can."""
    try:
        return row_by_row(one, together=True)(rows, labels), True
    except Exception:  # no batching rule, or a branch on values: compute one row at a time
        return row_by_row(one, together=False)(rows, labels), False


def _fault(
    weights: Weights, name: str, rule: Rule, found: Sequence[Captured], exact: Mapping[str, Tensor]
) -> str | None:
    """Say why the rule does not fit the layer, or return None if it does."""
    if any(f.calls.get(name, 0) != 1 for f in found):
        return "the layer is not called exactly once in a pass"
    rows = len(found[0].losses)
    if any(len(values[name]) != rows for f in found for values in (f.activations, f.signals)):
        return "its input does not come with rows first"
    try:
        terms = ghost_terms(weights, name, rule, _WEIGHTS, found)
    except (RuntimeError, IndexError):
        return "the rule does not know the shape of its input"
    for full, term in terms.items():
        expected = exact[full].double().reshape(rows, -1)
        made = torch.zeros_like(expected)
        for row in range(rows):
            chosen = torch.zeros(rows, dtype=torch.float64, device=made.device)
            chosen[row] = 1.0
            copy.deepcopy(term).add_sum(chosen, made[row].view(weights.shapes[full]), None)
        tolerance = 1e3 * torch.finfo(exact[full].dtype).eps
        # Relative to the whole gradient: the gradient of a bias before a normalisation consists of rounding errors.
        scale = (
            sum(each.double().reshape(rows, -1).norm(dim=1) for each in exact.values()) + term.measure(single=False)[1]
        )
        if not bool(((made - expected).norm(dim=1) <= tolerance * scale).all()):
            return "the rule disagrees with vmap: its parameters are used elsewhere too"
    return None


def _row_bytes(weights: Weights, name: str, rule: Rule, found: Sequence[Captured]) -> int:
    rows = len(found[0].losses)
    tensors = [values[name] for f in found for values in (f.activations, f.signals)]
    for term in ghost_terms(weights, name, rule, _WEIGHTS, found).values():
        tensors += [value for value in tree_leaves(vars(term)) if isinstance(value, torch.Tensor)]
    layer = weights.module.get_submodule(name)
    patches = math.prod(getattr(layer, "kernel_size", (1,))) * found[0].activations[name].nbytes
    return (2 * sum(t.nbytes for t in tensors) + patches) // rows


def _served(
    weights: Weights, ghosts: Mapping[str, Rule], reasons: Mapping[str, str], size: int, *, together: bool, alone: bool
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Lines for people, parameters without a rule, and the memory that a row takes, about."""
    others, lines, item = [], [], 8
    for full in weights.shapes:
        layer, _, local = full.rpartition(".")
        if layer in ghosts and local.removeprefix("in_proj_") in ("weight", "bias"):
            lines.append(f"{full}: ghost, {ghosts[layer].__name__}")
        else:
            why = "the model or the loss reads values of its rows" if alone else "vmap does not support the model"
            way = "vmap" if together else f"one row at a time, because {why}"
            lines.append(
                f"{full}: {way} ({reasons.get(layer, 'ghost rules are off' if layer not in ghosts else 'no rule')})"
            )
            others.append(full)
            item += 4 * weights.module.get_parameter(full).nbytes
    return tuple(lines), tuple(others), size + (item if others else 0) + 8


def _join(name: str, local: str) -> str:
    return f"{name}.{local}" if name else local
