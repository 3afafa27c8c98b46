"""Train any loss written in JAX, in one pass. Requires ``dpsco[jax]``.

oracle = dpsco.jax.oracle(loss, params)
problem = dpsco.Problem(dpsco.CustomLoss(), dpsco.L2Ball(10.0), dimension=oracle.size)
result = dpsco.train(plan, dpsco.stream(X, y), oracle=oracle, start=oracle.start)
params = oracle.weights(result.model)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpsco.errors import ExtraMissing, InvalidArgument, positive_integer

if TYPE_CHECKING:
    from dpsco.clipping.jax import JaxOracle

__all__ = ["oracle"]


def oracle(
    loss: Callable[[Any, tuple[Any, Any]], Any], params: Any, *, memory: int = 1 << 26, ghost: bool = True
) -> JaxOracle:
    """Build the oracle of ``loss(params, (features, label))``, the loss of one row.

    Parameters
    ----------
    loss : callable
        A pure function of its arguments that returns one real number.
    params : pytree of floats
        Initial parameters; they must be public.
    memory : int
        Limit on the bytes of temporaries. Rows are processed in blocks that fit.
    ghost : bool
        If False, form the gradient of every row with ``vmap``, for comparison.

    Returns
    -------
    JaxOracle
        ``size`` is the number of parameters, ``start`` the initial ones as a vector, ``weights(result.model)`` the
        trained ones as a pytree like ``params``, ``describe(example)`` explains how norms are computed.

    Raises
    ------
    ExtraMissing
        If JAX is not installed.
    InvalidArgument
        If ``loss`` is not callable, ``params`` holds no floats, or ``memory`` is not a positive integer.

    Guarantee
    ---------
    Each row changes the sum by at most the clip, whatever the loss computes. Rows that are not finite, or whose
    derivative is not, count as zero. The loss must depend on its arguments only.

    Cost
    ----
    About two ordinary forward and backward passes per round for dense layers, convolutions and embeddings. The
    gradients of other parameters are formed for each row of a block.
    """
    try:
        from dpsco.clipping.jax import JaxOracle
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise ExtraMissing("Losses in JAX need the package jax, which is not installed: install dpsco[jax].") from None
    if not callable(loss):
        raise InvalidArgument("Expected loss to be a function loss(params, (features, label)) of one row.")
    bound = positive_integer("memory", memory, "It limits the bytes of temporaries per block of rows.")
    return JaxOracle(loss, params, bound, ghost=ghost)
