"""The pass of one synthetic row as a list of PyTorch's own operators, which then runs on every row by itself.

    code of the model    runs once, on a row that holds nothing of the data; each operator it calls is recorded
    a block of rows      the operators run again, row by row by ``vmap``

So code of the model and of the loss, hooks and autograd functions included, never sees a row of the data. It cannot
compare rows, store them, or act on a value that the synthetic row does not have.

What cannot be recorded says so (``Unrecordable``): a Python value or a shape that depends on the row or on the
parameters, operators that are not PyTorch's own, tensors of other types.

Guarantee: the result for a row is a function of that row, its label and the parameters. Nothing is written but what
the operators themselves make. The operators run in the order of the recording, those whose result is not used
included, since they check their arguments. PyTorch's batching rules separate rows. Operators whose rules do not, or are
not known to, run on one row after another (batching_rules.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from dpsco.clipping.torch.batching_rules import BatchingRules
from dpsco.clipping.torch.finite_matrices import check_matrices, takes_matrices
from dpsco.clipping.torch.set_memory import check_memory_is_set, leaves_unset
from dpsco.clipping.torch.value_reads import copied_values, reads_values
from dpsco.errors import InvalidArgument

__all__ = ["RANDOM", "WRITES", "Program", "Unrecordable", "record"]

Tensor = Any
aten = torch.ops.aten

RANDOM = (
    "The model or the loss is random, or reads memory that it has not set (torch.empty): two passes over the same rows "
    "differ, so the difference of two points would be noise. Remove that part or call model.eval()."
)
WRITES = (
    "The model writes into its buffers or parameters during a pass: rows would affect later rounds without noise. "
    "Freeze these tensors (model.eval()), or remove them."
)

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)

_READS_VALUES = "the model or the loss reads values of its rows"
_EXCHANGES = "the model or the loss exchanges the memory of tensors"
_LENGTHEN = ("aten::resize", "aten::resize_", "aten::resize_as", "aten::resize_as_")


class Unrecordable(Exception):
    """The pass cannot be recorded; the text says why."""


@dataclass(frozen=True)
class _Slot:
    place: int


@dataclass(frozen=True)
class _Step:
    function: Any
    arguments: Any
    options: dict[str, Any]
    results: tuple[int | None, ...]
    """A place per result; None if it is no tensor."""
    spread: bool = False
    """Whether a later step writes values of a row into its results: ``vmap`` then needs results per row."""
    done: tuple[int, ...] = ()
    """Places that no later step reads."""


@dataclass(frozen=True)
class Program:
    """Recorded operators, from inputs (constants, row, label) to outputs."""

    steps: tuple[_Step, ...]
    outputs: tuple[Any, ...]
    """A slot per output, or a tensor that is the same for every row."""
    copies: bool
    """Whether the row or its label is written: copies are passed."""
    apart: bool
    """Whether an operator could read another row under ``vmap``."""

    def __call__(
        self, shared: Sequence[Tensor], row: Tensor, label: Tensor, yes: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Run on one row. ``shared`` are the inputs that are the same for every row; ``yes`` is True, per row."""
        if self.copies:
            row, label = row.clone(), label.clone()
        slots: dict[int, Any] = dict(enumerate((*shared, row, label)))

        def fill(part: Any) -> Any:
            if type(part) is _Slot:
                return slots[part.place]
            return [fill(each) for each in part] if type(part) in (list, tuple) else part

        for step in self.steps:
            given, options = [fill(part) for part in step.arguments], {k: fill(v) for k, v in step.options.items()}
            if yes is None and takes_matrices(step.function):  # under ``vmap`` such operators see no row
                check_matrices(given, options)
            made = step.function(*given, **options)
            for place, value in zip(step.results, made if type(made) in (list, tuple) else (made,), strict=True):
                if place is not None:
                    slots[place] = torch.where(yes, value, value) if step.spread and yes is not None else value
            for place in step.done:
                del slots[place]
        return tuple(fill(part) for part in self.outputs)

    def on_rows(self, shared: Sequence[Tensor], rows: Tensor, labels: Tensor, *, together: bool) -> list[Tensor]:
        """Run on every row by itself, by ``vmap`` or in a loop; outputs have rows first."""
        with torch.no_grad():
            if together and not self.apart:
                yes = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
                with _no_warnings_of_loops():
                    return list(vmap(lambda row, label, yes: self(shared, row, label, yes))(rows, labels, yes))
            # Copies: operators that address memory must not find another row in it.
            found = [self(shared, row.clone(), label.clone()) for row, label in zip(rows, labels, strict=True)]
            return [torch.stack(parts) for parts in zip(*found, strict=True)]


@contextmanager
def _no_warnings_of_loops() -> Iterator[None]:
    """Switch off what ``vmap`` prints, past Python, for each operator that it has to repeat row by row."""
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)
    try:
        yield
    finally:
        torch._C._functorch._set_vmap_fallback_warning_enabled(True)


def record(function: Callable[..., list[Tensor]], shared: Sequence[Tensor], row: Tensor, label: Tensor) -> Program:
    """Record ``function(shared, row, label)``, which returns a list of tensors.

    Raises
    ------
    Unrecordable
        If a value is read, or an operator or a tensor is not PyTorch's own.
    InvalidArgument
        If the function is random, or writes into tensors that it has not made.
    """
    recorder, outputs = _Recorder([*shared, row, label]), []
    try:
        with copied_values() as copied, recorder:
            outputs = function(shared, row, label)
    except Exception as error:  # the same code runs without a recorder
        recorder.refusal = recorder.refusal or Unrecordable(f"recording it failed ({type(error).__name__})")
    if recorder.refusal is not None:  # even if the code went on after it
        raise recorder.refusal
    if copied.found:
        raise Unrecordable(_READS_VALUES)
    return recorder.program(outputs)


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Notes operators. Tensors are known by their identity, memory by its storage; both are kept alive."""

    def __init__(self, inputs: list[Tensor]) -> None:
        super().__init__()
        self.kept: list[Any] = []
        self.places: dict[int, int] = {}
        self.memory: dict[Any, int] = {}
        """Tensors by where they are: ``nn.Parameter(h)`` is another object with the memory of h."""
        self.steps: list[tuple[_Step, bool, set[int], set[int], Any]] = []
        """Each with whether it depends on an input, the memory it touches, the new memory, and its results."""
        self.apart = False
        self.refusal: Exception | None = None
        self.rules = BatchingRules()
        with torch._C.DisableTorchFunction():
            for tensor in inputs:
                self._place(tensor)
            self.inputs = {_storage(tensor) for tensor in inputs}
            self.rows = {_storage(tensor) for tensor in inputs[-2:]}
        self.varying = set(self.inputs)
        """Memory that depends on an input."""
        self.of_row = set(self.rows)
        """Memory that depends on the row or its label."""
        self.own: set[int] = set()
        """Memory that operators made."""
        self.written: set[int] = set()
        self.late: set[int] = set()
        """Memory that did not depend on the row until values of the row were written."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            try:
                made = self._note(aten.clone.default if func is aten.lift_fresh.default else func, args, kwargs or {})
                if leaves_unset(func):  # a step that sets it belongs to the pass
                    self._note(aten.fill_.Scalar, (made, 0), {})
                return made
            except (InvalidArgument, Unrecordable) as refusal:
                self.refusal = refusal
                raise

    def _note(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise InvalidArgument(RANDOM)
        check_memory_is_set(func)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        storages = {_storage(tensor) for tensor in tensors}
        varies, by_row = not storages.isdisjoint(self.varying), not storages.isdisjoint(self.of_row)
        if func._schema.name in _LENGTHEN:
            raise Unrecordable(_EXCHANGES)
        if varies:
            self._check(func, args, tensors)
        if by_row and not self.rules.keep_rows_apart(func, args, [t for t in tensors if _storage(t) in self.of_row]):
            self.apart = True
        arguments, options = (tree_map(self._spec, part) for part in (args, kwargs))
        made = func(*args, **kwargs)
        results = made if type(made) in (list, tuple) else (made,)
        if varies and any(not isinstance(each, torch.Tensor) and each is not None for each in results):
            raise Unrecordable(_READS_VALUES)
        touched = {_storage(each) for each in results if isinstance(each, torch.Tensor)}
        born = touched - storages
        self.own |= born
        changed = self._written(func, args, kwargs)
        self.written |= changed
        if by_row:
            self.late |= changed - self.of_row
        for among, depends in ((self.varying, varies), (self.of_row, by_row)):
            if depends:
                among |= touched | changed
        places = tuple(self._place(each) if isinstance(each, torch.Tensor) else None for each in results)
        self.rules.note(func, args, results, changed)
        self.steps.append((_Step(func, arguments, options, places), varies, touched | storages, born, results))
        self.kept.append(tensors)
        return made

    def _check(self, func: Any, args: Any, tensors: list[Tensor]) -> None:
        if func.namespace not in ("aten", "prims"):
            raise Unrecordable("the model or the loss calls operators that are not PyTorch's own")
        if any(type(tensor) not in _PLAIN for tensor in tensors):
            raise Unrecordable("the model or the loss uses tensors of a type of its own")
        if reads_values(func, args):
            raise Unrecordable(_READS_VALUES)
        if func._schema.name in ("aten::as_strided_", "aten::set_"):
            raise Unrecordable(_EXCHANGES)

    def _written(self, func: Any, args: Any, kwargs: dict[str, Any]) -> set[int]:
        schema = func._schema.arguments
        given = [*zip(schema, args, strict=False), *((each, kwargs.get(each.name)) for each in schema[len(args) :])]
        written = [value for each, value in given if each.alias_info is not None and each.alias_info.is_write]
        return {_storage(leaf) for leaf in tree_leaves(written) if isinstance(leaf, torch.Tensor)}

    def _place(self, tensor: Tensor) -> int:
        self.kept.append(tensor)
        place = self.places.setdefault(id(tensor), len(self.places))
        self.memory[_memory(tensor)] = place
        return place

    def _spec(self, leaf: Any) -> Any:
        """Return the slot of a tensor, or the tensor itself if it is a constant."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        place, here = self.places.get(id(leaf)), self.memory.get(_memory(leaf))
        if place is not None and here is None:
            raise Unrecordable(_EXCHANGES)
        if place is None and here is None and _storage(leaf) in self.varying:
            raise Unrecordable("the model or the loss makes tensors out of sight of PyTorch")
        found = here if place is None else place
        return leaf if found is None else _Slot(found)

    def program(self, outputs: list[Tensor]) -> Program:
        """Return what was recorded. What depends on no input, and is never written, is computed already."""
        with torch._C.DisableTorchFunction():
            if self.written - self.own - self.rows:
                raise InvalidArgument(WRITES)
            results = [self._spec(output) for output in outputs]
        live: list[_Step] = []
        fixed: dict[int | None, Any] = {}
        for step, varies, memory, born, made in self.steps:
            if varies or not memory.isdisjoint(self.written):
                live.append(replace(step, spread=not born.isdisjoint(self.late)))
            else:
                fixed.update(zip(step.results, made, strict=True))

        def settled(leaf: Any) -> Any:
            return fixed[leaf.place].detach() if type(leaf) is _Slot and leaf.place in fixed else leaf

        steps = [
            replace(step, arguments=tree_map(settled, step.arguments), options=tree_map(settled, step.options))
            for step in live
        ]
        results = [settled(result) for result in results]
        return Program(_freed(steps, results), tuple(results), bool(self.written & self.rows), self.apart)


def _freed(steps: list[_Step], outputs: list[Any]) -> tuple[_Step, ...]:
    """Add to each step the places that are not read after it."""
    later = {leaf.place for leaf in outputs if type(leaf) is _Slot}
    found = []
    for step in reversed(steps):
        here = {leaf.place for leaf in tree_leaves((step.arguments, step.options)) if type(leaf) is _Slot}
        here |= {place for place in step.results if place is not None}
        found.append(replace(step, done=tuple(sorted(here - later))))
        later |= here
    return tuple(reversed(found))


def _memory(tensor: Tensor) -> tuple[Any, ...]:
    return _storage(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
