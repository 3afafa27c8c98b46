"""Federations: clients that each take part in one round, over any transport; ``flower`` and ``app`` are on Flower."""

from __future__ import annotations

from dpsco.federated.assignment import Assignment, Hashed, Roster
from dpsco.federated.client import Gradients, respond
from dpsco.federated.linear import linear_gradients
from dpsco.federated.local import LocalNodes
from dpsco.federated.server import Attendance, Transport, serve

__all__ = [
    "Assignment",
    "Attendance",
    "Gradients",
    "Hashed",
    "LocalNodes",
    "Roster",
    "Transport",
    "linear_gradients",
    "respond",
    "serve",
]
