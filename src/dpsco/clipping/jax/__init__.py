"""Oracle of a loss written in JAX."""

from dpsco.clipping.jax.oracle import JaxOracle

__all__ = ["JaxOracle"]
