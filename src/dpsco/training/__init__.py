"""The loop and what it gives back."""

from dpsco.training.result import Diagnostics, Model, Result, Round
from dpsco.training.train import train

__all__ = ["Diagnostics", "Model", "Result", "Round", "train"]
