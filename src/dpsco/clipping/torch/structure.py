"""Choice of a rule per parameter, made once by a trial pass on synthetic rows.

A layer has a ghost rule if its type has one, it is called once per pass, it does not share its parameters, and the rule
agrees with the plain gradients of the synthetic rows. The gradients of every other parameter are formed for each row by
``vmap``, and ``lines`` says why. A model that cannot be recorded (recorded.py) is computed one row at a time.
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
    Recorded,
    can_be_copied,
    fixed_settings,
    one_by_one,
    used_outside,
)
from dpsco.clipping.torch.recorded import Unrecordable
from dpsco.clipping.torch.terms import Term
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
    passes: Recorded | None
    """Both passes of a row; None if the model's own code computes one row at a time."""
    together: bool
    """Whether ``vmap`` supports the recorded passes; if not, they run on one row after another."""
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
    try:
        with fixed_settings(device):
            rows, changed, zeros = synthetic_rows(shape, inputs, labels, device)
            check_rows_independent(weights.module, loss, rows, changed, zeros)
            classes = None if labels.is_floating_point else _classes(weights.module, loss, rows[:1], zeros[:1])
            trial = _Trial(weights, loss, rows, zeros)
            return trial.structure(shape, inputs, labels, classes, ghost=ghost)
    except InvalidArgument:
        raise
    except Exception as error:  # errors on synthetic rows are public
        raise Failed(
            f"The model or the loss failed on synthetic rows of shape {shape} ({inputs}) with label 0 "
            f"({labels}): {type(error).__name__}: {error} Rows are flat unless input_shape= says otherwise. Labels are "
            "a vector: for outputs of shape (rows, 1) end the model with nn.Flatten(0). See also inputs= and labels=."
        ) from None


class _Trial:
    """Passes over synthetic rows at two points, and the plain gradients that they are compared with."""

    def __init__(self, weights: Weights, loss: LossFunction, rows: Tensor, labels: Tensor) -> None:
        self._weights, self._loss, self._rows, self._labels = weights, loss, rows, labels
        self._points = [weights.parameters(weights.start), weights.parameters(1.01 * weights.start)]
        names = list(weights.shapes)
        found = [one_by_one(weights, names, loss, point, rows, labels) for point in self._points]
        self._exact = {name: sum(w * each[name] for w, each in zip(_WEIGHTS, found, strict=True)) for name in names}

    def structure(self, shape: Any, inputs: Any, labels: Any, classes: int | None, *, ghost: bool) -> Structure:
        """Choose the rules. Models that cannot be recorded, or whose recording differs, get none."""
        ghosts, reasons = _candidates(self._weights) if ghost else ({}, {})
        size, together = 0, True
        passes: Recorded | None = None
        try:
            if ghosts:
                passes = Recorded(self._weights, list(ghosts), (), self._loss, self._rows[0], self._labels[0])
                found, fast = self._run(passes)
                for name in used_outside(self._weights, list(ghosts), self._loss, self._rows[0], self._labels[0]):
                    reasons[name] = "its parameters are used elsewhere too"
                    del ghosts[name]
                for name in list(ghosts):
                    if why := self._fault(name, ghosts[name], found, passes.calls.get(name, 0)):
                        reasons[name] = why
                        del ghosts[name]
                    else:
                        size += _row_bytes(self._weights, name, ghosts[name], fast or found)
            others = [full for full in self._weights.shapes if not _has_rule(full, ghosts)]
            passes = Recorded(self._weights, list(ghosts), others, self._loss, self._rows[0], self._labels[0])
            found, fast = self._run(passes)
            together = fast is not None
            made = {name: sum(w * f.gradients[name] for w, f in zip(_WEIGHTS, found, strict=True)) for name in others}
            if not all(self._agree(name, made[name], 0.0) for name in others):
                raise Unrecordable("repeating its operators does not give its gradients")
            if together:
                alone = None
            elif passes.apart:
                alone = "vmap does not keep rows apart in one of its operators"
            else:
                alone = "vmap does not support the model"
        except Unrecordable as error:
            if not can_be_copied(self._loss):
                raise InvalidArgument(
                    f"The loss cannot be copied, and {error}: each row then needs a copy of its own, since the loss "
                    "could keep something of a row for the next one. Remove what cannot be copied (a lock, a file, a "
                    "generator), or make the loss a function."
                ) from None
            ghosts, reasons, passes, together, alone = {}, {}, None, False, str(error)
        lines, rest, row_bytes = _served(self._weights, ghosts, reasons, size, alone)
        return Structure(ghosts, rest, passes, together, row_bytes, lines, shape, inputs, labels, classes)

    def _run(self, passes: Recorded) -> tuple[list[Captured], list[Captured] | None]:
        """Run the passes at both points, in a loop and by ``vmap``; None if that fails, or does not give the same."""
        try:
            found = [passes(point, self._rows, self._labels, together=False) for point in self._points]
        except Exception as error:
            raise Unrecordable(f"its operators failed when they were repeated ({type(error).__name__})") from None
        if passes.apart:
            return found, None
        try:
            fast = [passes(point, self._rows, self._labels, together=True) for point in self._points]
        except Exception:
            return found, None
        pairs = zip(map(vars, fast), map(vars, found), strict=True)
        return found, fast if all(_near(one[part], other[part]) for one, other in pairs for part in one) else None

    def _fault(self, name: str, rule: Rule, found: Sequence[Captured], calls: int) -> str | None:
        """Say why the rule does not fit the layer, or return None if it does."""
        if calls != 1:
            return "the layer is not called exactly once in a pass"
        try:
            terms = ghost_terms(self._weights, name, rule, _WEIGHTS, found)
        except (RuntimeError, IndexError):
            return "the rule does not know the shape of its input"
        rows = len(self._rows)
        for full, term in terms.items():
            made = torch.zeros((rows, *self._weights.shapes[full]), dtype=torch.float64, device=self._rows.device)
            for row in range(rows):
                chosen = torch.zeros(rows, dtype=torch.float64, device=made.device)
                chosen[row] = 1.0
                copy.deepcopy(term).add_sum(chosen, made[row], None)
            if not self._agree(full, made, term.measure(single=False)[1]):
                return "the rule disagrees with plain gradients: its parameters are used elsewhere too"
        return None

    def _agree(self, full: str, made: Tensor, majorant: Any) -> bool:
        """Whether the differences of a parameter are the plain ones of the synthetic rows, up to rounding."""
        expected, made = (each.double().reshape(len(self._rows), -1) for each in (self._exact[full], made))
        tolerance = 1e3 * torch.finfo(self._exact[full].dtype).eps
        # Relative to the whole gradient: the gradient of a bias before a normalisation consists of rounding errors.
        scale = sum(each.double().reshape(len(made), -1).norm(dim=1) for each in self._exact.values()) + majorant
        return bool(((made - expected).norm(dim=1) <= tolerance * scale).all())


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


def _near(these: Mapping[str, Tensor], those: Mapping[str, Tensor]) -> bool:
    """Whether the tensors of two mappings are the same up to rounding, in whatever precision the model computes."""
    change = sum(((one - those[name]).double().square().sum() for name, one in these.items()), torch.zeros(()))
    size = sum((other.double().square().sum() for other in those.values()), torch.zeros(()))
    return bool((change <= 1e-6 * size).item())


def _row_bytes(weights: Weights, name: str, rule: Rule, found: Sequence[Captured]) -> int:
    rows = len(found[0].signals[name])
    tensors = [values[name] for f in found for values in (f.activations, f.signals)]
    for term in ghost_terms(weights, name, rule, _WEIGHTS, found).values():
        tensors += [value for value in tree_leaves(vars(term)) if isinstance(value, torch.Tensor)]
    layer = weights.module.get_submodule(name)
    patches = math.prod(getattr(layer, "kernel_size", (1,))) * found[0].activations[name].nbytes
    return (2 * sum(t.nbytes for t in tensors) + patches) // rows


def _has_rule(full: str, ghosts: Mapping[str, Rule]) -> bool:
    layer, _, local = full.rpartition(".")
    return layer in ghosts and local.removeprefix("in_proj_") in ("weight", "bias")


def _served(
    weights: Weights, ghosts: Mapping[str, Rule], reasons: Mapping[str, str], size: int, alone: str | None
) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Return lines for people, parameters without a rule, and the memory that a row takes, about.

    ``alone`` says why rows are computed one at a time; None if they are not.
    """
    others, lines, item = [], [], 8
    slow = "" if alone is None else f"one row at a time, because {alone}"
    for full in weights.shapes:
        layer = full.rpartition(".")[0]
        if _has_rule(full, ghosts):
            lines.append(f"{full}: ghost, {ghosts[layer].__name__}{', ' * bool(slow)}{slow}")
        else:
            why = reasons.get(layer, "ghost rules are off" if layer not in ghosts else "no rule")
            lines.append(f"{full}: {slow or 'vmap'} ({why})")
            others.append(full)
            item += 4 * weights.module.get_parameter(full).nbytes
    return tuple(lines), tuple(others), size + (item if others else 0) + 8


def _join(name: str, local: str) -> str:
    return f"{name}.{local}" if name else local
