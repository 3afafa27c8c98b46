"""The kernels by name, as they are or with a user's slope in the place of the library's."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

from numba import njit

from dpsco.clipping.kernels import dense, slopes, sparse

__all__ = ["kernels"]


@lru_cache(maxsize=8)
def kernels(slope: Callable[[float, float], float] | None) -> dict[str, Any]:
    """{"dense": ..., "sparse": ...}; with a ``slope(score, label)`` they are compiled anew and not cached on disk."""
    if slope is None:
        return {"dense": dense.dense, "sparse": sparse.sparse}
    one = slope if hasattr(slope, "py_func") else njit(slope)

    def user_slopes(ask: Any, scores: Any, at: int, labels: Any, first: int, count: int, out: Any) -> None:
        for i in range(count):
            out[i] = one(scores[at + i], labels[first + i])

    own = {"slopes": njit(user_slopes, nogil=True, error_model="numpy")}
    own |= {"factors": _with(slopes.factors, own), "careful_factor": _with(slopes.careful_factor, own)}
    return {"dense": _kernel(dense, "dense", own), "sparse": _kernel(sparse, "sparse", own)}


def _kernel(module: Any, name: str, own: dict[str, Any]) -> Any:
    """A kernel with everything between it and the slope compiled anew."""
    own = own | {"careful_row": _with(module.careful_row, own)}
    return _with(getattr(module, name), own | {"take": _with(module.take, own)})


def _with(kernel: Any, names: dict[str, Any]) -> Any:
    """The same code with other functions under the given names, uncached: the cache does not know what they hold."""
    python = kernel.py_func
    return njit(FunctionType(python.__code__, {**python.__globals__, **names}), nogil=True, error_model="numpy")
