"""diffprivlib: objective perturbation, LogisticRegression with its defaults (many passes)."""

from __future__ import annotations

import warnings

from common import rows, timed
from diffprivlib.models import LogisticRegression

warnings.simplefilter("ignore")
X, y = rows()
timed(lambda: LogisticRegression(epsilon=1.0, data_norm=5.0).fit(X.astype("float64"), y), repeats=1)
