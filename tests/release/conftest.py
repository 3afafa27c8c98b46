"""The model that a stopped and resumed run must give."""

from __future__ import annotations

import numpy as np
import pytest
from tests.release.stopped_runs import (
    KEY,
    PLAN,
    X,
    Y,
)

from dpsco import (
    stream,
    train,
)


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    """The model of an undisturbed run."""
    return train(PLAN, stream(X, Y), key=KEY).model.coef
