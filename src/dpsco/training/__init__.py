"""The loop and what it gives back."""

from dpsco.training.result import Counts, Diagnostics, Model, Result, Round
from dpsco.training.train import train

__all__ = ["Counts", "Diagnostics", "Model", "Result", "Round", "train"]
