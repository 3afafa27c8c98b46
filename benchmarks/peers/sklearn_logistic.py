"""scikit-learn, not private: LogisticRegression to its default tolerance (many passes)."""

from __future__ import annotations

from common import rows, timed
from sklearn.linear_model import LogisticRegression

X, y = rows()
timed(lambda: LogisticRegression().fit(X, y))
