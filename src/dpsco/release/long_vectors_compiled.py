"""Compiled loop for long_vectors.py. numba is imported only with this file."""

from __future__ import annotations

from typing import Any

from numba import njit

from dpsco.clipping.kernels.slopes import OPTIONS

__all__ = ["add_four"]


@njit(**OPTIONS)
def add_four(weights: Any, z0: Any, z1: Any, z2: Any, z3: Any, anew: bool, out: Any) -> None:
    """Set out to ((((out + w_0 z_0) + w_1 z_1) + w_2 z_2) + w_3 z_3), rounding each product and sum.

    Without the first ``out`` if ``anew``.
    """
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    if anew:
        for j in range(len(out)):
            out[j] = ((w0 * z0[j] + w1 * z1[j]) + w2 * z2[j]) + w3 * z3[j]
    else:
        for j in range(len(out)):
            out[j] = (((out[j] + w0 * z0[j]) + w1 * z1[j]) + w2 * z2[j]) + w3 * z3[j]
