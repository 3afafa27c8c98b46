"""The paper's Table 1, measured: every method through one interface, tuned alike and counted alike."""

from dpsco.research.compare.comparison import compare
from dpsco.research.compare.comparison_size import FULL, QUICK

__all__ = ["FULL", "QUICK", "compare"]
