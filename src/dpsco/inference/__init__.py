"""Standard errors and intervals of surveyed runs, from released values alone."""

from dpsco.inference.estimate import infer
from dpsco.inference.evidence import Evidence
from dpsco.inference.intervals import Inference
from dpsco.inference.towards_constant import towards_constant

__all__ = ["Evidence", "Inference", "infer", "towards_constant"]
