"""The paper's Table 1, measured: every method behind one interface, tuned alike, counted alike."""

from dpsco.research.compare.run import compare
from dpsco.research.compare.scale import FULL, QUICK

__all__ = ["FULL", "QUICK", "compare"]
