"""Gradients of a client's rows under any oracle: a network in PyTorch or JAX on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsco.clipping import Oracle
from dpsco.clipping.bound import LARGEST_NORM
from dpsco.query import Array, Batch, Query
from dpsco.rows.gate import Declared
from dpsco.rows.shaped import declared_shape, flat_rows

__all__ = ["OracleRows", "oracle_gradients"]


@dataclass(frozen=True, eq=False, repr=False)
class OracleRows:
    """Rows of a client: ``x -> (rows, p)``. SENSITIVE."""

    oracle: Oracle
    features: Array
    labels: Array

    def __repr__(self) -> str:
        return "OracleRows(<sensitive>)"

    def __call__(self, x: Array) -> Array:
        """Return the gradient of each row at ``x``; 0 for an unusable row. Each row has a pass of its own."""
        query = Query(0, (x,), (1.0,), LARGEST_NORM, 1)
        places = range(len(self.labels))
        rows = ((self.features[k : k + 1], self.labels[k : k + 1]) for k in places)
        found = [self.oracle.answer(query, Batch(0, [row])).total for row in rows]
        return np.array(found).reshape(len(places), len(x))


def oracle_gradients(oracle: Oracle, features: object, labels: object) -> OracleRows:
    """Return ``x -> (rows, p)``: the gradient of an oracle's loss on each row of a client.

    Parameters
    ----------
    oracle : Oracle
        ``dpsco.torch.oracle(model, loss, input_shape=...)``, ``dpsco.jax.oracle(loss, params)`` or any other. The
        clients of a node may share one.
    features : array
        The client's rows, of any shape; several rows, even if there is one only.
    labels : array
        One label per row.

    Returns
    -------
    OracleRows
        For ``LocalNodes``, ``respond`` or ``client_app``. Serve with ``start=oracle.start``.

    Guarantee
    ---------
    The bits of a row do not depend on the other rows of its client. A row that does not fit has a gradient of 0.

    Cost
    ----
    One pass per row and point.
    """
    shape = declared_shape(features, None)
    width = int(np.prod(shape))
    return OracleRows(oracle, *Declared(width).chunk(flat_rows(features, shape), labels))
