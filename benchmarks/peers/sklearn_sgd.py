"""scikit-learn, not private: one epoch of SGDClassifier."""

from __future__ import annotations

from common import rows, timed
from sklearn.linear_model import SGDClassifier

X, y = rows()
timed(lambda: SGDClassifier(loss="log_loss", max_iter=1, tol=None).fit(X, y))
