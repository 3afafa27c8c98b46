"""Matrices that are not finite never reach LAPACK: it prints lines about them, past Python.

    torch.linalg.svdvals(x[:, None] * x)        x = 1e30 is finite, its square is not: "SLASCL, parameter 4"

A line that one row decides is an output. So the operators of LAPACK fail on such a matrix before they run, and a row on
which the model fails counts as zero.

Guarantee: every operator of linear algebra is checked, except exponentials and those that are known to keep rows apart
(safe_operators.py), which are made of sums and products. What is checked runs on one row at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dpsco.clipping.torch.safe_operators import SAFE, SAFE_FLOATS

__all__ = ["check_matrices", "takes_matrices"]

_LAPACK = ("linalg_", "_linalg_", "cholesky", "_cholesky", "geqrf", "lu_", "_lu_", "orgqr", "ormqr", "triangular_solve")
"""Beginnings of the names of operators of linear algebra."""

_PRODUCTS = SAFE | SAFE_FLOATS | {"linalg_matrix_exp"}
"""Operators among them that do not call LAPACK."""


def takes_matrices(operator: Any) -> bool:
    """Whether the operator may call LAPACK."""
    name = str(operator._schema.name.rpartition("::")[2])
    return name.startswith(_LAPACK) and name not in _PRODUCTS


def check_matrices(*arguments: Any) -> None:
    """Raise ArithmeticError if a matrix is not finite."""
    for each in tree_leaves(arguments):
        if isinstance(each, torch.Tensor) and not bool(torch.isfinite(each).all()):
            raise ArithmeticError("A matrix is not finite.")
