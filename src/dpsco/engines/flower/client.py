"""The client's half: clip, round, answer. NumPy and nothing else, so that it can be copied or ported to a device.

Of each client whose round it is, a query wants one vector:

    unit client     clip(mean over its rows d of  sum_j w_j grad f(x_j, d), C)         the whole client is protected
    unit example    sum over its rows d of  clip(sum_j w_j grad f(x_j, d), C)          one row is protected

each clipped vector rounded to the query's grid. ``gradients(x)``: the gradients of a client's rows, shape (rows, p).
A query with a map M wants M applied to the sum over j, with x_j = M'u_j, and takes ``gradients.shortened`` where there
is one: gradients of rows that are scaled down to the feature norm. A survey wants ``gradients.survey(numbers)``
in its place: the joint contribution of each row (linear_gradients.py); a client without that sends nothing then.

Guarantee: whatever ``gradients`` returns, a vector that is sent has norm at most C in exact arithmetic before it is
rounded; rows that are not finite count as 0. A row is turned by M number by number, in one order: another row of the
client changes none of its bits. A client that has no round, or whose round it is not, sends nothing; nor
does one whose ``gradients`` raise, and the others of its node answer as if it were not there. A client without rows
sends nothing if it is the unit, and a sum of 0 if examples are: no row then decides whether it sends one.
Cost: k gradients per row (k = 2, or 1 in round 0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .assignment import Assignment, Hashed  # relative: these files also work in a folder of their own
from .maps import own_points, turned
from .wire import CLIENT, Asked, can_carry, decode_query, encode_answer

__all__ = ["Gradients", "called_by", "clipped", "contribution", "places_of", "respond"]

Gradients = Callable[[NDArray[np.float64]], NDArray[np.float64]]
LARGEST_NORM = 1e150


def respond(query: bytes, clients: Mapping[str, Gradients], assignment: Assignment | None = None) -> bytes:
    """Answer a query for the clients of one node.

    Parameters
    ----------
    query : bytes
        As the server sent it.
    clients : mapping
        Id of each client, text -> gradients of its rows. A client under anything else (None, 7) sends nothing.
    assignment : Assignment, optional
        As the server's; ``Hashed()`` unless given.

    Returns
    -------
    bytes
        For the server.

    Raises
    ------
    Malformed
        If ``query`` is not a query.
    """
    asked, rule = decode_query(query), assignment or Hashed()
    called = sorted(name for name in clients if called_by(asked, rule, name))
    parts = [(name, own) for name in called if (own := _contribution_or_none(asked, clients[name])) is not None]
    if asked.unit != CLIENT and parts:
        parts = [("", np.sum([numbers for _, numbers in parts], axis=0))]
    return encode_answer(asked, parts)


def called_by(asked: Asked, assignment: Assignment, client: str) -> bool:
    """Whether the query asks ``client``: nobody whom an answer cannot name, whatever the assignment says."""
    place = assignment.place_of(client, asked.run, asked.places) if can_carry(client) else None
    return place is not None and asked.first <= place < asked.last


def places_of(clients: Iterable[str], run: bytes, places: int, rule: Assignment) -> list[int]:
    """Places of ``clients``: rounds that ask for none of them need not be asked of their host."""
    return sorted({at for who in filter(can_carry, clients) if (at := rule.place_of(who, run, places)) is not None})


def _contribution_or_none(asked: Asked, gradients: Gradients) -> NDArray[Any] | None:
    try:
        return contribution(asked, gradients)
    except KeyboardInterrupt:  # of the user, not of a row
        raise
    except BaseException:  # one client's rows must not decide whether the others of its node count, or end the process
        return None


def contribution(asked: Asked, gradients: Gradients) -> NDArray[Any]:
    """Return what one client sends: whole numbers of steps of the grid (float64 if there is no grid)."""
    with np.errstate(all="ignore"):  # a warning that depends on a row is an output
        rows = _differences(asked, gradients)
        if asked.unit == CLIENT:
            if not len(rows):
                raise ValueError("There is no mean of no rows.")
            rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0).mean(axis=0, keepdims=True)
        rows = clipped(rows, asked.clip)
    numbers: NDArray[Any] = rows if asked.grid == 0.0 else np.rint(rows / asked.grid).astype(np.int64)
    return np.asarray(numbers.sum(axis=0))


def _differences(asked: Asked, gradients: Gradients) -> NDArray[np.float64]:
    """Return what the query wants of each row, before the clip: shape (rows, length).

    Each call gets a copy of its point: a function that works in place would write rows into the points of others.
    """
    if asked.survey is not None:
        found = np.asarray(gradients.survey(asked.survey), dtype=np.float64)  # type: ignore[attr-defined]
        if found.ndim != 2 or found.shape[1] != asked.length:  # one row must not become two contributions
            raise ValueError("A survey of another length than the query says.")
        return found
    points, mapped = asked.points, asked.matrix is not None or asked.factors is not None
    if mapped:
        points, gradients = own_points(asked, points), getattr(gradients, "shortened", gradients)
    terms = (w * np.asarray(gradients(x.copy()), dtype=np.float64) for w, x in zip(asked.weights, points, strict=True))
    rows = np.sum(list(terms), axis=0)
    if rows.size != asked.length * (len(rows) if rows.ndim > 1 else 1):  # one row must not become two contributions
        raise ValueError("Gradients of another length than the query says.")
    if mapped:
        rows = turned(asked, rows)
    return np.asarray(rows.reshape(-1, asked.length))


def clipped(rows: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
    """Each row at its length or at ``clip``; 0 if it is not finite.

    The target lies below ``clip`` by a margin for every rounding on the way; scaling by a power of two first keeps
    squares within range.
    """
    largest = np.max(np.abs(rows), axis=1, initial=0.0)
    usable = (largest > 0.0) & (largest <= LARGEST_NORM)
    exponent = np.frexp(np.where(usable, largest, 1.0))[1]
    unit = np.where(usable[:, None], np.ldexp(rows, -exponent[:, None]), 0.0)
    norms = np.ldexp(np.sqrt(np.sum(unit * unit, axis=1)), exponent)
    target = clip * (1.0 - (rows.shape[1] + 32) * 2.0**-53) if np.isfinite(clip) else np.inf
    scale = np.divide(target, norms, out=np.ones_like(norms), where=norms > target)
    return np.where(usable[:, None], rows, 0.0) * scale[:, None]
