"""Standard errors and intervals of surveyed runs, from released values alone."""

from dpsco.inference.estimate import infer
from dpsco.inference.evidence import Evidence
from dpsco.inference.intervals import Inference

__all__ = ["Evidence", "Inference", "infer"]
