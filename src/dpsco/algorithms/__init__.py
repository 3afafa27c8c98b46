"""Training algorithms by name, all on the ask / answer / release / tell waist."""

from __future__ import annotations

from dpsco.algorithms.accelerated_srgd import AcceleratedSRGD

__all__ = ["ALGORITHMS", "AcceleratedSRGD"]

ALGORITHMS = {algorithm.name: algorithm for algorithm in (AcceleratedSRGD(),)}
