"""Any loss written in JAX, trained in one pass. Needs ``dpsco[jax]``.

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
    """An oracle of ``loss(params, (features, label))``, the loss of one row, at any pytree of floats ``params``.

    ``memory`` bounds the bytes of temporaries: rows are taken in blocks that fit; ``ghost=False`` forms the gradient
    of every row (``vmap``), to compare with. ``oracle.size`` is the number of
    parameters, ``oracle.start`` the initial ones as a vector, ``oracle.weights(result.model)`` the trained ones as
    the pytree they came as, ``oracle.describe(example)`` how each one's norm is found.

    Guarantee: each row moves the sum by at most the clip, whatever the loss computes; rows that are not finite, or
    whose derivative is not, count as zero. The loss must be a function of its arguments alone.
    Cost: two ordinary forward and backward passes a round, about, for dense layers, convolutions and embeddings;
    other parameters have their gradient formed for each row of a block.
    """
    try:
        from dpsco.clipping.jax import JaxOracle
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise ExtraMissing("Losses in JAX need jax, which is not installed: install dpsco[jax].") from None
    if not callable(loss):
        raise InvalidArgument("Expected loss to be a function loss(params, (features, label)) of one row.")
    bound = positive_integer("memory", memory, "It bounds the bytes of temporaries of one block of rows.")
    return JaxOracle(loss, params, bound, ghost=ghost)
