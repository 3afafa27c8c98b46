"""The kernels by name, with the library's slopes or a user's."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import njit

from dpsco.clipping.kernels import dense_rows, slopes, sparse_rows
from dpsco.errors import InvalidArgument

__all__ = ["kernels"]

_BY_NAME = (
    "slope calls a compiled function as a part of a module or of a tuple, or two that call each other. They are "
    "compiled again, so that an index beyond an array costs its own row alone: import one and call it by its name."
)


_UNCHECKED = (
    "slope reads array.flat, or calls a function made by numba's vectorize or guvectorize: numba does not check their "
    "indices, and one beyond an array reads numbers of other rows. Index the array itself, in a function with njit."
)


@lru_cache(maxsize=8)
def kernels(slope: Callable[[float, float], float] | None) -> dict[str, Any]:
    """Return {"dense": ..., "sparse": ...}. A user's ``slope(score, label)`` is compiled without disk cache."""
    if slope is None:
        return {"dense": dense_rows.dense, "sparse": sparse_rows.sparse}
    one = _checked(slope, {})

    def user_slopes(ask: Any, scores: Any, at: int, labels: Any, first: int, count: int, out: Any) -> None:
        for i in range(count):
            try:
                out[i] = one(scores[at + i], labels[first + i])
            except Exception:  # an error that depends on a row is an output: NaN makes it a zero row
                out[i] = math.nan

    own = {"slopes": njit(user_slopes, nogil=True, error_model="numpy")}
    own |= {"factors": _with(slopes.factors, own), "careful_factor": _with(slopes.careful_factor, own)}
    return {"dense": _kernel(dense_rows, "dense", own), "sparse": _kernel(sparse_rows, "sparse", own)}


def _checked(function: Any, known: dict[Any, Any]) -> Any:
    """Compile a function of the user, and those that it calls, so that an index beyond an array is an error.

    Without that check numba reads whatever is there: numbers of other rows. ``known``: what is compiled already.

    Raises
    ------
    InvalidArgument
        If a compiled function is reached by another way than its own name, where it cannot be compiled again.
    """
    python = getattr(function, "py_func", function)
    if python not in known:
        known[python] = None  # a function that calls itself finds itself under its own name
        names, cells = _names(python.__code__), python.__closure__ or ()
        found = {name: python.__globals__[name] for name in names if name in python.__globals__}
        given = [*found.values(), *(c.cell_contents for c in cells if _is_full(c)), *(python.__defaults__ or ())]
        if "flat" in names or any(_is_unchecked(held) for held in given):
            raise InvalidArgument(_UNCHECKED)
        if any(hasattr(held, "py_func") for held in python.__defaults__ or ()):
            raise InvalidArgument(_BY_NAME)
        for held in found.values():
            parts = held if isinstance(held, (tuple, list)) else (getattr(held, name, None) for name in names)
            if isinstance(held, (tuple, list, ModuleType)) and any(hasattr(part, "py_func") for part in parts):
                raise InvalidArgument(_BY_NAME)
        own = {**python.__globals__}
        own |= {name: _called(held, python, known) for name, held in found.items() if hasattr(held, "py_func")}
        closed = tuple(CellType(_called(c.cell_contents, python, known)) if _is_compiled(c) else c for c in cells)
        copy = FunctionType(python.__code__, own, python.__name__, python.__defaults__, closed)
        known[python] = own[python.__name__] = njit(copy, boundscheck=True)
    return known[python]


def _called(function: Any, caller: Any, known: dict[Any, Any]) -> Any:
    made = _checked(function, known)
    if made is None and function.py_func is not caller:  # two functions that call each other
        raise InvalidArgument(_BY_NAME)
    return function if made is None else made


def _names(code: CodeType) -> set[str]:
    """Return the names that a function looks up, also inside functions that it makes."""
    inner = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inner)


def _is_compiled(cell: CellType) -> bool:
    return _is_full(cell) and hasattr(cell.cell_contents, "py_func")


def _is_full(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # empty
        return False
    return True


def _is_unchecked(held: Any) -> bool:
    """Whether an object is a universal function of the caller's, whose indices numba does not check."""
    if type(held).__name__ in ("DUFunc", "GUFunc"):
        return True
    return isinstance(held, np.ufunc) and getattr(np, held.__name__, None) is not held


def _kernel(module: Any, name: str, own: dict[str, Any]) -> Any:
    """Recompile a kernel with everything between it and the slope."""
    own = own | {"careful_row": _with(module.careful_row, own)}
    return _with(getattr(module, name), own | {"take": _with(module.take, own)})


def _with(kernel: Any, names: dict[str, Any]) -> Any:
    """Compile the same code with other functions under the given names; the cache does not know their contents."""
    python = kernel.py_func
    return njit(FunctionType(python.__code__, {**python.__globals__, **names}), nogil=True, error_model="numpy")
