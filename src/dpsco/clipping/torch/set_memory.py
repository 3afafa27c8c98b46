"""Memory that an operator leaves unset begins with zeros: what was there before may be another row.

    h = torch.empty_like(x);  h[:, :2] = x[:, :2]         the rest of h is what was last freed, often the row before

Guarantee: under ``SetMemory`` no operator that code calls returns memory that nobody has written, except parts of the
second result of ``_ctc_loss``, which only its derivative reads. Operators that are known to compute with such memory
are refused. Memory that other libraries leave unset (``numpy.empty``) is not covered.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dpsco.clipping.torch.finite_matrices import check_matrices, takes_matrices
from dpsco.errors import InvalidArgument

__all__ = ["SetMemory", "check_memory_is_set", "leaves_unset"]

_UNSET = frozenset(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"))
_LENGTHENS = frozenset(("resize", "resize_", "resize_as", "resize_as_"))


def leaves_unset(operator: Any) -> bool:
    """Whether the operator returns new memory without writing it."""
    return _name(operator) in _UNSET


def check_memory_is_set(operator: Any) -> None:
    """Raise InvalidArgument if the operator computes with memory that nobody has written.

    LAPACK's gelsy, the default of ``lstsq``, takes a list of columns to begin with, and torch hands it over unset: what
    was freed before, perhaps by another row, decides the order of the columns and so the last bits. With every driver
    MKL prints a line about a row that is not finite.
    """
    if _name(operator) == "linalg_lstsq":
        raise InvalidArgument(
            "torch.linalg.lstsq computes with memory that nobody has set, so a row could affect another row's result, "
            "and prints lines about single rows. Use torch.linalg.pinv or torch.linalg.solve."
        )


class SetMemory(TorchDispatchMode):  # type: ignore[misc]
    """Writes zeros into memory that operators leave unset, and keeps LAPACK finite, in this thread."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        check_memory_is_set(func)
        if takes_matrices(func):
            check_matrices(args, kwargs)
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
