"""Models and losses that read values of their batch: a branch, a Python number, a shape that depends on them.

    if h.abs().max() > 1e4: h = h.clamp(-1e4, 1e4)        one row decides what becomes of the others

Synthetic rows (checks.py) show that rows mix only if they take the branch. That a value is read shows on any rows. Such
models are computed one row at a time: what a row decides, it then decides for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["reads_values"]

_TAGS = frozenset((torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape))
"""What torch says of operators whose result is a Python value, or has a shape that depends on values."""

_READS = frozenset(
    (
        "_coalesce",
        "_pack_padded_sequence",
        "_pad_packed_sequence",
        "_to_sparse",
        "_to_sparse_bsc",
        "_to_sparse_bsr",
        "_to_sparse_csc",
        "_to_sparse_csr",
        "histc",
        "is_nonzero",
        "masked_scatter",
        "masked_scatter_",
    )
)
"""Operators of the same kind without such a tag, and those that count the marked places before a row's own."""

_COPIES = frozenset(
    (
        "__array__",
        "__dlpack__",
        "__format__",
        "__repr__",
        "apply_",
        "const_data_ptr",
        "data_ptr",
        "map2_",
        "map_",
        "numpy",
        "storage",
        "tolist",
        "untyped_storage",
    )
)
"""Functions of a tensor that hand its values to Python without an operator."""


class _Operators(TorchDispatchMode):  # type: ignore[misc]
    """Notes whether an operator reads values."""

    found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.rpartition("::")[2]
        if name.startswith("index"):  # a shape depends on values only if places are given by a mask
            self.found |= any(map(_is_mask, tree_leaves(args[1:2])))
        else:
            self.found |= name in _READS or not _TAGS.isdisjoint(func.tags)
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    """Notes whether a function of a tensor reads values out of sight of operators."""

    found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        split = name == "tensor_split" and any(map(_is_tensor, tree_leaves((args[1:], kwargs))))
        self.found |= name in _COPIES or split
        return func(*args, **(kwargs or {}))


def reads_values(run: Callable[[], object]) -> bool:
    """Return whether ``run``, a pass over synthetic rows, reads values of tensors."""
    with _Operators() as operators, _Functions() as functions:
        run()
    return operators.found or functions.found


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _is_mask(leaf: Any) -> bool:
    return _is_tensor(leaf) and leaf.dtype in (torch.bool, torch.uint8)
