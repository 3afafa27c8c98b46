"""Operators and functions that hand values to Python: a branch, a Python number, a shape that depends on them.

    if h.abs().max() > 1e4: h = h.clamp(-1e4, 1e4)

What follows from such a value on a synthetic row would be wrong for other rows, so a pass that reads values is not
recorded (recorded.py): the model computes one row at a time. That is about right results. Privacy does not rest on
it: a value that is read here without being noticed is one of a synthetic row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

__all__ = ["copied_values", "reads_values"]

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
    )
)
"""Operators of the same kind without such a tag."""

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


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    """Notes whether a function of a tensor reads values out of sight of operators."""

    found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        split = name == "tensor_split" and any(map(_is_tensor, tree_leaves((args[1:], kwargs))))
        self.found |= name in _COPIES or split
        return func(*args, **(kwargs or {}))


@contextmanager
def copied_values() -> Iterator[_Functions]:
    """Note in ``found`` whether values are copied to Python in this context."""
    with _Functions() as functions:
        yield functions


def reads_values(operator: Any, arguments: Any) -> bool:
    """Return whether the result of an operator is a Python value, or has a shape that depends on values."""
    name = operator._schema.name.rpartition("::")[2]
    if name.startswith("index"):  # a shape depends on values only if places are given by a mask
        return any(map(_is_mask, tree_leaves(arguments[1:2])))
    return name in _READS or not _TAGS.isdisjoint(operator.tags)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _is_mask(leaf: Any) -> bool:
    return _is_tensor(leaf) and leaf.dtype in (torch.bool, torch.uint8)
