"""Plans: every public number of a run, chosen before the first row is read."""

from dpsco.planning.plan import Plan
from dpsco.planning.prediction import Prediction

__all__ = ["Plan", "Prediction"]
