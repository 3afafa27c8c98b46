"""The paper's Table 1, measured: every method behind one interface, tuned alike, counted alike."""

from dpsco.comparison.run import compare
from dpsco.comparison.scale import FULL, QUICK

__all__ = ["FULL", "QUICK", "compare"]
