"""Rows of sparse matrices in every format of SciPy: what is stored of a row is its own affair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dpsco.rows.csr import CsrRows
from dpsco.rows.gate import admit, container, declared_by
from dpsco.rows.row_norm import unit_rows

BLOCKS = {"bsr 4x1": (4, 1), "bsr 2x3": (2, 3), "bsr 8x6": (8, 6)}
FORMATS = ("csr", "csc", "coo", "dok", "lil", "dia", *BLOCKS)
ODD = (
    np.ones(6),
    np.zeros(6),
    np.full(6, np.nan),
    np.array([0, 0, 0, 0, 0, 3.0]),
    np.array([2.0, 0, np.inf, 0, 0, 0]),
)


def matrix(dense: np.ndarray, form: str, kind: Any) -> Any:
    made = kind(dense)
    return made.tobsr(blocksize=BLOCKS[form]) if form in BLOCKS else made.asformat(form)


def rows_of(rows: Any) -> list[tuple[list[int], list[float]]]:
    found = CsrRows.of(rows)
    spans = [slice(a, b) for a, b in zip(found.indptr[:-1], found.indptr[1:], strict=True)]
    return [(found.indices[span].tolist(), found.data[span].tolist()) for span in spans]


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("odd", ODD, ids=["full", "empty", "NaN", "last", "infinite"])
def test_what_is_stored_of_a_row_depends_on_that_row_alone(form: str, kind: Any, odd: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(16, 6)) * (rng.uniform(size=(16, 6)) < 0.3)
    other = dense.copy()
    other[5] = odd
    one, two = (matrix(each, form, kind) for each in (dense, other))
    for read in (rows_of, lambda rows: rows_of(unit_rows(rows, 1.0))):
        before, after = read(one), read(two)
        assert before[:5] + before[6:] == after[:5] + after[6:]
    columns, values = rows_of(two)[5]
    np.testing.assert_array_equal(np.bincount(columns, values, 6) if columns else np.zeros(6), odd)  # NaN stays


def test_the_order_of_blocks_decides_nothing() -> None:
    """A block that one row needs may be stored before or behind the others."""
    values = np.array([[[1.0], [1e16]], [[0.0], [1.0]], [[0.0], [-1e16]]])
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        blocks = sp.bsr_matrix((values[order], np.array([0, 1, 2])[order], np.array([0, 3])), shape=(2, 3))
        assert rows_of(blocks) == [([0], [1.0]), ([0, 1, 2], [1e16, 1.0, -1e16])]


def test_zeros_that_rows_themselves_store_are_kept() -> None:
    for kind in (sp.csr_array, sp.csc_array, sp.coo_array):
        assert rows_of(kind(sp.coo_array(([0.0, 2.0], ([0, 1], [1, 0])), shape=(2, 2)))) == [([1], [0.0]), ([0], [2.0])]


@pytest.mark.parametrize("odd", [2, 0.5, np.nan, "x", None, 1j], ids=repr)
@pytest.mark.parametrize("stored", [[True, True], [2**53, 1, 1]], ids=["booleans", "beyond 2^53"])
def test_values_of_one_place_add_up_alike_whatever_type_one_row_gives_them(stored: list[Any], odd: Any) -> None:
    """NumPy finds the type of all stored values: two True of one place were 1 among booleans and 2 among numbers."""

    def first_row(last: Any) -> Any:
        cells = [*stored, last]
        values = np.array(cells, dtype=object if isinstance(last, str) or last is None else None)
        where = [*np.zeros(len(stored), int), 1], np.zeros(len(cells), int)
        made = sp.coo_array((np.ones(len(cells)), where), shape=(2, 2))
        made.data = values
        return rows_of(admit(container(made), declared_by(made, 2)))[0]

    assert first_row(stored[0]) == first_row(odd)
    assert first_row(odd)[1][0] in (2.0, 2.0**53)
