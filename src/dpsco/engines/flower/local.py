"""A federation in one process: the same bytes, the same checks, no network. For tests, examples and small runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dpsco.clipping.no_warnings import no_warnings
from dpsco.engines.flower.assignment import Assignment, Hashed
from dpsco.engines.flower.client import Gradients, respond

__all__ = ["LocalNodes"]


@dataclass(frozen=True)
class LocalNodes:
    """A transport to nodes that are objects of this process.

    Parameters
    ----------
    nodes : sequence of mappings
        The clients that each node hosts: id -> gradients of its rows.
    assignment : Assignment
        As the server's.
    """

    nodes: Sequence[Mapping[str, Gradients]]
    assignment: Assignment = field(default_factory=Hashed)

    def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes]]:
        """Yield each node's answer, computed here; what gradient functions warn of on their rows is not shown."""
        for node, clients in enumerate(self.nodes):
            with no_warnings():
                answer = respond(query, clients, self.assignment)
            yield node, answer
