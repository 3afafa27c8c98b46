"""Mark 11: the closed-form clip of linear models against JAX's differentiation of each row's loss, in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpsco import Huber, L2Ball, Logistic, Problem, SmoothedHinge, Softmax, Squared
from dpsco.audit.attack_rows import ordinary_rows
from dpsco.clipping import CompiledOracle, LinearOracle
from dpsco.query import CHUNK_ROWS, Batch, Query

pytestmark = pytest.mark.slow

ROWS, WIDTH = 200, 6
LOSSES = [Logistic(), Squared(label_bound=1.0), Huber(0.5), SmoothedHinge(0.7), Softmax(classes=3)]
CLIPS = (np.inf, 10.0, 0.7, 1e-3)
"""No row is clipped, a few are, most are, all are."""


def losses() -> dict[str, Callable[[Any, Any], Any]]:
    """Each loss as a function of scores and label, from its definition."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def pieces(distance: Any, width: float) -> Any:
        """A parabola up to ``width``, its tangent beyond."""
        return jnp.where(distance <= width, distance**2 / 2, width * (distance - width / 2))

    return {
        "logistic": lambda m, y: jnp.log1p(jnp.exp(-jnp.abs(m[0]))) + jnp.maximum(m[0], 0.0) - y * m[0],
        "squared": lambda m, y: (m[0] - y) ** 2 / 2,
        "huber": lambda m, y: pieces(jnp.abs(m[0] - y), 0.5),
        "smoothed-hinge": lambda m, y: pieces(jnp.maximum(1 - (2 * y - 1) * m[0], 0.0), 0.7) / 0.7,
        "softmax": lambda m, y: jax.nn.logsumexp(m) - m[y.astype(int)],
    }


def by_autodiff(loss: Any, query: Query, rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, int]:
    """The clipped sum, row by row from gradients that JAX found; and how many rows were clipped."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):

        def of_row(x: Any, a: Any, y: Any) -> Any:
            return losses()[loss.kind](x.reshape(loss.outputs, -1) @ a, y)

        each = jax.vmap(jax.grad(of_row), in_axes=(None, 0, 0))
        found = [np.asarray(each(point, rows, labels)) for point in query.points]
    assert found[0].dtype == np.float64
    differences = sum(weight * gradients for weight, gradients in zip(query.weights, found, strict=True))
    norms = np.linalg.norm(differences, axis=1)
    factors = np.minimum(1.0, query.clip / np.maximum(norms, 1e-300))
    return factors @ differences, int(np.sum(factors < 1))


@pytest.mark.parametrize("form", ["dense", "CSR"])
@pytest.mark.parametrize("oracle", [LinearOracle, CompiledOracle], ids=["plain", "compiled"])
def test_closed_form_is_what_differentiation_of_each_row_gives(
    oracle: Any, form: str, mark_figure: Callable[[int, str], None]
) -> None:
    rng, worst, clipped = np.random.default_rng(0), 0.0, set()
    for loss, intercept, clip in itertools.product(LOSSES, (False, True), CLIPS):
        rows, labels = ordinary_rows(Problem(loss, L2Ball(5.0), WIDTH), ROWS, rng)
        points = tuple(rng.standard_normal((2, loss.outputs * (WIDTH + intercept))))
        query = Query(3, points, (4.0, -3.0), clip, CHUNK_ROWS)
        given = csr_array(rows) if form == "CSR" else rows
        total = oracle(loss, intercept).answer(query, Batch(3, [(given, labels)])).total
        extended = np.hstack([rows, np.ones((ROWS, 1))]) if intercept else rows
        expected, over = by_autodiff(loss, query, extended, labels)
        worst = max(worst, float(np.max(np.abs(total - expected))) / ROWS)
        clipped.add("none" if over == 0 else "all" if over == ROWS else "some")
    assert worst <= 1e-12
    assert clipped == {"none", "some", "all"}
    mark_figure(11, f"{oracle.__name__} {form} {worst:.0e} per row")
