"""Memory that an operator leaves unset begins with zeros: what was there before may be another row.

    h = torch.empty_like(x);  h[:, :2] = x[:, :2]         the rest of h is what was last freed, often the row before

Guarantee: under ``SetMemory`` no operator that code calls returns memory that nobody has written. Memory that other
libraries leave unset (``numpy.empty``) is not covered.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["SetMemory", "leaves_unset"]

_UNSET = frozenset(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"))
_LENGTHENS = frozenset(("resize", "resize_", "resize_as", "resize_as_"))


def leaves_unset(operator: Any) -> bool:
    """Whether the operator returns new memory without writing it."""
    return _name(operator) in _UNSET


class SetMemory(TorchDispatchMode):  # type: ignore[misc]
    """Writes zeros into memory that operators leave unset, in this thread."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        lengthens = _name(func) in _LENGTHENS
        before = args[0].untyped_storage().nbytes() if lengthens else 0
        made = func(*args, **(kwargs or {}))
        if leaves_unset(func) and made.layout is torch.strided:
            made.fill_(0)
        elif lengthens and (memory := made.untyped_storage()).nbytes() > before:
            torch.empty(0, dtype=torch.uint8, device=made.device).set_(memory)[before:].fill_(0)
        return made


def _name(operator: Any) -> str:
    return str(operator._schema.name.rpartition("::")[2])
