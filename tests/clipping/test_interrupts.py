"""An interrupted call leaves nothing of its sums in the next one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from tests.clipping.test_compiled_survey import CASES, asked, rows_and_labels

from dpsco.clipping import CompiledOracle, CompiledSurveyOracle, borrowed_zeros, compiled_survey
from dpsco.clipping.kernels import moments as kernel
from dpsco.problem import Logistic
from dpsco.query import Batch, Query


def interrupted(real):
    """Return the function with a Ctrl-C behind it: Python handles the signal when compiled code returns."""

    def then_interrupt(*args):
        real(*args)
        raise KeyboardInterrupt

    return then_interrupt


@pytest.mark.parametrize("threads", [1, 2])
def test_a_survey_after_an_interrupted_one_has_its_own_sum(threads, monkeypatch) -> None:
    query, (features, labels) = asked(*CASES[0], 30), rows_and_labels(Logistic(), 2000, 30, "float32")
    oracle, batch = CompiledSurveyOracle(Logistic(), True), [(features, labels)]
    monkeypatch.setattr(compiled_survey, "available_threads", lambda: threads)
    total = oracle.answer(query, Batch(0, batch)).total
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "moments", interrupted(kernel.moments))
            with pytest.raises(KeyboardInterrupt):
                oracle.answer(query, Batch(0, batch))
    np.testing.assert_array_equal(oracle.answer(query, Batch(0, batch)).total, total)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_a_round_after_an_interrupted_one_has_its_own_sum(kind, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    rows, labels = kind(rng.standard_normal((5000, 12))), rng.integers(0, 2, 5000).astype(float)
    point = rng.standard_normal(12)
    query = Query(1, (point, 0.5 * point), (2.0, -1.0), 1.0, 5000, 2.0**-20)
    name = "sparse" if kind is csr_matrix else "dense"
    oracle = CompiledOracle(Logistic(), threads=1)
    total, real = oracle.answer(query, Batch(1, [(rows, labels)])).total, CompiledOracle._kernel
    with monkeypatch.context() as patch:
        patch.setattr(CompiledOracle, "_kernel", lambda self, asked: interrupted(real(self, name)))
        with pytest.raises(KeyboardInterrupt):
            oracle.answer(query, Batch(1, [(rows, labels)]))
    np.testing.assert_array_equal(oracle.answer(query, Batch(1, [(rows, labels)])).total, total)


def test_memory_that_holds_sums_is_not_in_the_pool() -> None:
    held = borrowed_zeros.borrow(17)
    held += 1.0
    assert not np.any(borrowed_zeros.borrow(17))
    borrowed_zeros.give_back(held)
    assert borrowed_zeros.borrow(17) is held
    assert not np.any(held)
