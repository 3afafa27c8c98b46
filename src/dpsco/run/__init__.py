"""The loop and what it gives back."""

from dpsco.run.result import Counts, Diagnostics, Model, Result, Round
from dpsco.run.train import train

__all__ = ["Counts", "Diagnostics", "Model", "Result", "Round", "train"]
