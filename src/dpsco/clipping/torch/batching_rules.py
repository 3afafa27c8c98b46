"""Operators whose batching rules keep rows apart under ``vmap`` for every value that a row may have.

Some rules put the tables of all rows below each other and add a row's place to its indices. An index that is out of
range then reads or writes another row's table, where the operator alone would refuse it:

    vmap(lambda table, i: functional.embedding(i, table))       index 5 of a table of 4 is index 1 of the next row's
    vmap(lambda h, i: h.index_fill(0, i, 7.0))                  writes into the next row

Others take the dimension of the rows for one of a number that has none:

    vmap(lambda t: t.roll(1))                                   t of the row before

Guarantee: an operator that is not known to be safe counts as one that is not. Then rows are computed one after another.
Places that were checked do not count as checked once their memory is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from dpsco.clipping.torch.safe_operators import SAFE, SAFE_FLOATS, SAFE_NUMBERS
from dpsco.errors import InvalidArgument

__all__ = ["BatchingRules"]

_LAYOUT = frozenset(("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter", "resize_", "set_"))
"""Operators that address memory."""

_PLACES = ("_unsafe_index", "_unsafe_masked", "cudnn_grid_sampler", "grid_sampler")
"""Beginnings of the names of operators that look places up without a check."""

_POOLS = frozenset(("adaptive_max_pool2d", "adaptive_max_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"))
"""Operators that return places. Their derivatives use them without a check."""


class BatchingRules:
    """What is known of the operators of one pass, in their order."""

    def __init__(self) -> None:
        self._checked: dict[tuple[int, int], int] = {}
        """Memory of indices that ``embedding`` has checked, by index and length of its table."""
        self._pooled: dict[int, tuple[int, Any]] = {}
        """Memory of places that an operator of ``_POOLS`` has returned, and the shape of what it pooled."""

    def keep_rows_apart(self, operator: Any, arguments: Any, of_row: list[Any]) -> bool:
        """Whether the operator keeps rows apart; ``of_row`` are its tensors that depend on the row.

        Raises
        ------
        InvalidArgument
            If it writes at places that nobody checks: they may be outside of all memory of the row.
        """
        name = _name(operator)
        if name in _LAYOUT or name.startswith(_PLACES):
            return False
        if name == "embedding" and all(each is not arguments[0] for each in of_row):
            self._checked[id(arguments[1]), len(arguments[0])] = _storage(arguments[1])
            return True
        if name == "embedding_dense_backward":
            known = (id(arguments[1]), arguments[2]) in self._checked
            return known or _needs_check(arguments[4], "embedding_dense_backward with scale_grad_by_freq")
        if name in _POOLS:
            return True
        if name.removesuffix("_backward") in _POOLS:
            return self._own_places(arguments) or _needs_check(True, name)
        if operator.is_view or torch.Tag.pointwise in operator.tags:
            return True
        if any(each.ndim == 0 for each in of_row) and name not in SAFE_NUMBERS:
            return False
        whole = any(not (each.is_floating_point() or each.is_complex()) for each in of_row)
        return name in SAFE or (not whole and name in SAFE_FLOATS)

    def note(self, operator: Any, arguments: Any, results: Any, written: Iterable[int]) -> None:
        """Note what an operator returned, and the memory that it wrote."""
        for memory in written:
            self._checked = {key: own for key, own in self._checked.items() if own != memory}
            self._pooled = {key: own for key, own in self._pooled.items() if own[0] != memory}
        if _name(operator) in _POOLS:
            self._pooled[id(results[1])] = _storage(results[1]), arguments[0].shape
        elif operator is torch.ops.aten.detach.default and id(arguments[0]) in self._pooled:
            self._pooled[id(results[0])] = self._pooled[id(arguments[0])]

    def _own_places(self, arguments: Any) -> bool:
        """Whether a derivative of pooling writes at the places that pooling the same shape returned, unchanged."""
        places = [each for each in arguments if isinstance(each, torch.Tensor) and not each.is_floating_point()]
        known = [self._pooled.get(id(each)) for each in places]
        return all(own is not None and own[1] == arguments[1].shape for own in known) and all(
            each.shape == arguments[0].shape for each in places
        )


def _needs_check(writes: bool, name: str) -> bool:
    if writes:
        raise InvalidArgument(
            f"The model or the loss calls {name} at places of its own, which nothing checks: a row could write into "
            "another row. Let the operator's own forward pass find them."
        )
    return False


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _name(operator: Any) -> str:
    return str(operator._schema.name.rpartition("::")[2])
