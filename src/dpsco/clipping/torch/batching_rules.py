"""Operators whose batching rules keep rows apart under ``vmap`` for every value that a row may have.

Some rules put the tables of all rows below each other and add a row's place to its indices. An index that is out of
range then reads or writes another row's table, where the operator alone would refuse it:

    vmap(lambda table, i: functional.embedding(i, table))       index 5 of a table of 4 is index 1 of the next row's
    vmap(lambda h, i: h.index_fill(0, i, 7.0))                  writes into the next row

Guarantee: an operator that is not known to be safe counts as one that is not. Then rows are computed one after another.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["BatchingRules"]

_SAFE = frozenset(
    (
        "_log_softmax_backward_data",
        "_to_copy",
        "add",
        "all",
        "amax",
        "amin",
        "any",
        "arange",
        "argmax",
        "argmin",
        "argsort",
        "cat",
        "clone",
        "constant_pad_nd",
        "copy_",
        "cummax",
        "cummin",
        "cumsum",
        "detach",
        "empty_like",
        "expand",
        "fill_",
        "full_like",
        "gather",
        "index",
        "index_add",
        "index_copy",
        "index_put",
        "index_put_",
        "index_select",
        "masked_fill",
        "masked_fill_",
        "max",
        "min",
        "new_empty",
        "new_full",
        "new_ones",
        "new_zeros",
        "nll_loss2d_backward",
        "nll_loss2d_forward",
        "nll_loss_backward",
        "nll_loss_forward",
        "ones_like",
        "prod",
        "repeat",
        "scatter",
        "scatter_",
        "scatter_add",
        "scatter_add_",
        "select_backward",
        "slice_backward",
        "sort",
        "stack",
        "sum",
        "take",
        "topk",
        "tril",
        "triu",
        "where",
        "zeros_like",
    )
)
"""Operators on whole numbers that use none of them as an index, or check every index in the row's own range.

Views and operators on each number by itself (``torch.Tag.pointwise``) are safe too.
"""

_LAYOUT = frozenset(("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter", "resize_", "set_"))
"""Operators that address memory."""

_PLACES = ("_unsafe_index", "_unsafe_masked", "cudnn_grid_sampler", "grid_sampler")
"""Beginnings of the names of operators that look places up without a check."""

_POOLS = frozenset(("adaptive_max_pool2d", "adaptive_max_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"))
"""Operators that return places. Their derivatives use them without a check."""


class BatchingRules:
    """What is known of the operators of one pass, in their order."""

    def __init__(self) -> None:
        self._checked: set[tuple[int, int]] = set()
        """Indices that ``embedding`` has checked, and the length of its table."""
        self._pooled: set[int] = set()
        """Places that an operator of ``_POOLS`` has returned."""

    def keep_rows_apart(self, operator: Any, arguments: Any, of_row: list[Any]) -> bool:
        """Whether the operator keeps rows apart; ``of_row`` are its tensors that depend on the row."""
        name = _name(operator)
        if name in _LAYOUT or name.startswith(_PLACES):
            return False
        if name == "embedding" and all(each is not arguments[0] for each in of_row):
            self._checked.add((id(arguments[1]), len(arguments[0])))
            return True
        if name == "embedding_dense_backward":
            return (id(arguments[1]), arguments[2]) in self._checked
        if name.removesuffix("_backward") in _POOLS:
            return all(each.is_floating_point() or id(each) in self._pooled for each in of_row)
        whole = any(not (each.is_floating_point() or each.is_complex()) for each in of_row)
        return not whole or operator.is_view or torch.Tag.pointwise in operator.tags or name in _SAFE

    def note(self, operator: Any, arguments: Any, results: Any) -> None:
        """Note what an operator returned."""
        if _name(operator) in _POOLS:
            self._pooled.add(id(results[1]))
        elif operator is torch.ops.aten.detach.default and id(arguments[0]) in self._pooled:
            self._pooled.add(id(results[0]))


def _name(operator: Any) -> str:
    return str(operator._schema.name.rpartition("::")[2])
