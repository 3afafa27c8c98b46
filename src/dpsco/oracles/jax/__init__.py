"""Oracles of losses written in JAX."""

from dpsco.oracles.jax.oracle import JaxOracle

__all__ = ["JaxOracle"]
