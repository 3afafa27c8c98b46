"""The problem: losses with their constants, domains with their projections."""

from dpsco.problem.domains import Box, Domain, Everything, HalfSpace, L2Ball, Product, Simplex
from dpsco.problem.losses import (
    CustomLoss,
    Huber,
    Logistic,
    Loss,
    MulticlassHinge,
    SmoothedHinge,
    Softmax,
    Squared,
)
from dpsco.problem.problem import Problem

__all__ = [
    "Box",
    "CustomLoss",
    "Domain",
    "Everything",
    "HalfSpace",
    "Huber",
    "L2Ball",
    "Logistic",
    "Loss",
    "MulticlassHinge",
    "Problem",
    "Product",
    "Simplex",
    "SmoothedHinge",
    "Softmax",
    "Squared",
]
