"""diffprivlib: objective perturbation with pure epsilon, LogisticRegression with defaults and the norm of the rows."""

from __future__ import annotations

import time
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression
from simulated import EPSILON, asked, told

warnings.simplefilter("ignore")
features, labels, _ = asked()
X = features.astype("float64")
start = time.perf_counter()
model = LogisticRegression(epsilon=EPSILON, data_norm=1.0 + 1e-6, max_iter=1000).fit(X, labels)
told([time.perf_counter() - start], [np.concatenate([model.coef_[0], model.intercept_])])
