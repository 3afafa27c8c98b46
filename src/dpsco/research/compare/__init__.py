"""The paper's Table 1, measured: every method through one interface, tuned alike and counted alike."""

from dpsco.research.compare.comparison_size import FULL, MEDIUM, QUICK
from dpsco.research.compare.run_comparison import compare

__all__ = ["FULL", "MEDIUM", "QUICK", "compare"]
