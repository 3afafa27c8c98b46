"""Oracles: rows in, one clipped sum out."""

from dpsco.oracles.base import Oracle
from dpsco.oracles.glm import LinearOracle
from dpsco.oracles.per_example import PerExample

__all__ = ["LinearOracle", "Oracle", "PerExample"]
