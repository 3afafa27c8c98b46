"""``stream(..., shuffle=True)``: a fixed order of positions, so sorted rows are no trap."""

from __future__ import annotations

import numpy as np
import pytest

import dpsco
from dpsco.datasets import reference_problem

DATA = reference_problem(6_000, 5, fresh=2_000)
PLAN = dpsco.Plan(
    dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(10.0), 5, intercept=True),
    6_000,
    dpsco.Budget(8.0, 1e-6),
    dpsco.AcceleratedSRGD(rounds=8, beta=0.1, clip=1.0),
)


def test_sorted_labels_do_not_decide_the_intercept() -> None:
    order = np.argsort(DATA.labels, kind="stable")
    X, y = DATA.features[order], DATA.labels[order]
    constant = {}
    for shuffle in (False, True):
        result = dpsco.train(PLAN, dpsco.stream(X, y, shuffle=shuffle), key=bytes(32))
        constant[shuffle] = abs(float(result.model.intercept))  # the classes are equally many: 0 is right
    assert constant[True] < 0.3 * constant[False]
    again = dpsco.train(PLAN, dpsco.stream(X, y, shuffle=True), key=bytes(32))
    np.testing.assert_array_equal(again.model.coef, result.model.coef)
    assert again.report.rows_missing == 0


def test_it_is_for_containers_in_their_order() -> None:
    with pytest.raises(dpsco.InvalidArgument, match="mix an iterable"):
        dpsco.stream(iter([]), shuffle=True)
    with pytest.raises(dpsco.InvalidArgument, match="leave shuffle out"):
        dpsco.stream(DATA.features, DATA.labels, ids=np.arange(6_000), shuffle=True)
