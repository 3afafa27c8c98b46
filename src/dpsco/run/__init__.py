"""The run, what feeds it, and what it gives back."""

from dpsco.run.facts import Clipping, Facts
from dpsco.run.result import Counts, Diagnostics, Model, Result, Round
from dpsco.run.run import Run
from dpsco.run.train import train
from dpsco.run.watch import Observer, watching

__all__ = [
    "Clipping",
    "Counts",
    "Diagnostics",
    "Facts",
    "Model",
    "Observer",
    "Result",
    "Round",
    "Run",
    "train",
    "watching",
]
