"""The same rows in other containers and types: what a user may hand over, and a row must not decide."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from dpsco.query import Array

__all__ = ["ARRAY", "Classes", "forms", "in_form"]

ARRAY = "array of float64"


def forms(*, dense: bool = False) -> tuple[str, ...]:
    """Return the forms that the installed packages can make; ``dense``: for oracles of dense rows."""
    frame = ("data frame",) if find_spec("pandas") is not None else ()
    sparse = ("sparse matrix",) if find_spec("scipy") is not None and not dense else ()
    return ("lists", "array of objects", "array of float32", *frame, *sparse)


def in_form(form: str, features: Array, labels: Any) -> tuple[Any, Any]:
    """(features, labels) as ``form``; labels are numbers, or objects where classes are texts."""
    with np.errstate(all="ignore"):
        if form == "lists":
            return features.tolist(), labels.tolist()
        if form == "array of objects":
            return features.astype(object), labels.astype(object)
        if form == "array of float32":
            return features.astype(np.float32), labels
        if form == "data frame":
            pd = import_module("pandas")
            return pd.DataFrame(features, columns=[f"x{j}" for j in range(features.shape[1])]), pd.Series(labels)
        if form == "sparse matrix":
            from scipy.sparse import csr_array

            return csr_array(features), labels
    return features, labels


class Classes:
    """Labels as numbers 0 .. k-1, which attacks are made of, and as the values that an estimator declares."""

    def __init__(self, values: Any) -> None:
        self._values = [value.item() if isinstance(value, np.generic) else value for value in values]
        self._numbers = all(isinstance(value, (int, float)) for value in self._values)

    def encode(self, labels: Any) -> Array:
        """Numbers; NaN for a label that is no class."""
        codes = {value: float(code) for code, value in enumerate(self._values)}
        plain = (label.item() if isinstance(label, np.generic) else label for label in labels)
        return np.array([codes.get(label, np.nan) for label in plain], dtype=np.float64)

    def decode(self, codes: Array) -> Any:
        """Values of the estimator; a number that is no code stays as it is, an odd label."""
        known = {float(code): value for code, value in enumerate(self._values)}
        found = [known.get(code, code) for code in np.asarray(codes, dtype=np.float64).tolist()]
        return np.array(found, dtype=np.float64 if self._numbers else object)
