"""Models and losses that read values of their batch: a branch, a Python number, a shape that depends on them.

    if h.abs().max() > 1e4: h = h.clamp(-1e4, 1e4)        one row decides what becomes of the others

Synthetic rows (checks.py) show that rows mix only if they take the branch. That a value is read shows on any rows. Such
models are computed one row at a time: what a row decides, it then decides for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["reads_values"]

_READS = frozenset(
    (
        "_local_scalar_dense",
        "_unique2",
        "bincount",
        "equal",
        "histc",
        "is_nonzero",
        "masked_select",
        "nonzero",
        "unique_consecutive",
        "unique_dim",
        "unique_dim_consecutive",
    )
)
"""Operators whose result is a Python value, or has a shape that depends on values."""


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Notes whether an operator reads values."""

    found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.rpartition("::")[2]
        masked = name.startswith("index") and any(_is_mask(leaf) for leaf in tree_leaves(args[1:2]))
        self.found = self.found or name in _READS or masked
        return func(*args, **(kwargs or {}))


def reads_values(run: Callable[[], object]) -> bool:
    """Return whether ``run``, a pass over synthetic rows, reads values of tensors."""
    with _Watch() as watch:
        run()
    return watch.found


def _is_mask(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.bool, torch.uint8)
