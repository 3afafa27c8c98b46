"""scikit-learn's own checks of the estimator contract, every one of them."""

from __future__ import annotations

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator

from dpsco.estimators import PrivacyLeakWarning, PrivateLinearRegression, PrivateLinearSVC, PrivateLogisticRegression

ESTIMATORS = [
    PrivateLogisticRegression(),
    PrivateLogisticRegression(n=10_000),  # with n announced there is a partial_fit to check
    PrivateLogisticRegression(fit_intercept=False, shuffle=False, adjacency="replace"),
    PrivateLinearSVC(),
    PrivateLinearSVC(n=1_000),
    PrivateLinearRegression(),
    PrivateLinearRegression(loss="squared"),
    PrivateLinearRegression(n=10_000, label_bound=1.0),
]

NEEDS_A_SETTING = {"check_array_api_input"}
"""Skipped by scikit-learn itself unless SCIPY_ARRAY_API=1 is set before SciPy is loaded."""


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_every_check_of_scikit_learn_passes(estimator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert not failed
    assert skipped <= NEEDS_A_SETTING
    assert len(results) > 40


def test_the_tags_are_the_declared_ones() -> None:
    from sklearn.utils import get_tags

    for estimator in ESTIMATORS:
        tags = get_tags(estimator)
        assert tags.input_tags.sparse
        assert not tags.no_validation
        assert not tags.non_deterministic
        assert (tags.classifier_tags or tags.regressor_tags).poor_score


def test_the_leak_warning_is_a_warning_a_user_can_filter() -> None:
    assert issubclass(PrivacyLeakWarning, UserWarning)
