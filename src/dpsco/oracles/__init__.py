"""Oracles: rows in, one clipped sum out."""

from dpsco.oracles.base import Oracle
from dpsco.oracles.choice import linear_oracle
from dpsco.oracles.fused import FusedOracle
from dpsco.oracles.glm import LinearOracle
from dpsco.oracles.per_example import PerExample

__all__ = ["FusedOracle", "LinearOracle", "Oracle", "PerExample", "linear_oracle"]
