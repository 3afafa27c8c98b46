"""Differentially private scikit-learn estimators. Needs ``dpsco[sklearn]``."""

from dpsco.estimators.base import PrivateLinearModel
from dpsco.estimators.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from dpsco.estimators.public_facts import PrivacyLeakWarning
from dpsco.estimators.regression import PrivateLinearRegression

__all__ = [
    "PrivacyLeakWarning",
    "PrivateLinearModel",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
]
