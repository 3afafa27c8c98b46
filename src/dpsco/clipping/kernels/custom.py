"""The kernels by name, with the library's slopes or a user's."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

from numba import njit

from dpsco.clipping.kernels import dense_rows, slopes, sparse_rows

__all__ = ["kernels"]


@lru_cache(maxsize=8)
def kernels(slope: Callable[[float, float], float] | None) -> dict[str, Any]:
    """Return {"dense": ..., "sparse": ...}. A user's ``slope(score, label)`` is compiled without disk cache."""
    if slope is None:
        return {"dense": dense_rows.dense, "sparse": sparse_rows.sparse}
    one = slope if hasattr(slope, "py_func") else njit(slope)

    def user_slopes(ask: Any, scores: Any, at: int, labels: Any, first: int, count: int, out: Any) -> None:
        for i in range(count):
            try:
                out[i] = one(scores[at + i], labels[first + i])
            except Exception:  # an error that depends on a row is an output: NaN makes it a zero row
                out[i] = math.nan

    own = {"slopes": njit(user_slopes, nogil=True, error_model="numpy")}
    own |= {"factors": _with(slopes.factors, own), "careful_factor": _with(slopes.careful_factor, own)}
    return {"dense": _kernel(dense_rows, "dense", own), "sparse": _kernel(sparse_rows, "sparse", own)}


def _kernel(module: Any, name: str, own: dict[str, Any]) -> Any:
    """Recompile a kernel with everything between it and the slope."""
    own = own | {"careful_row": _with(module.careful_row, own)}
    return _with(getattr(module, name), own | {"take": _with(module.take, own)})


def _with(kernel: Any, names: dict[str, Any]) -> Any:
    """Compile the same code with other functions under the given names; the cache does not know their contents."""
    python = kernel.py_func
    return njit(FunctionType(python.__code__, {**python.__globals__, **names}), nogil=True, error_model="numpy")
