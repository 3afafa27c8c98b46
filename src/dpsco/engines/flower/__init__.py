"""Federations: clients that each take part in one round, over any transport; ``flower`` and ``app`` are on Flower."""

from __future__ import annotations

from dpsco.engines.flower.assignment import Assignment, Hashed, Roster
from dpsco.engines.flower.client import Gradients, respond
from dpsco.engines.flower.linear_gradients import linear_gradients
from dpsco.engines.flower.local import LocalNodes
from dpsco.engines.flower.oracle_gradients import oracle_gradients
from dpsco.engines.flower.server import Attendance, Transport, serve

__all__ = [
    "Assignment",
    "Attendance",
    "Gradients",
    "Hashed",
    "LocalNodes",
    "Roster",
    "Transport",
    "linear_gradients",
    "oracle_gradients",
    "respond",
    "serve",
]
