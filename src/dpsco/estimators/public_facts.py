"""Public facts about the rows: stated by the user, or inferred from private data with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError, InvalidArgument, positive
from dpsco.rows.cells import canonical_text

__all__ = ["PrivacyLeakWarning", "class_codes", "declared_classes", "label_bound_of", "warn_seeded"]


_CELLS = (str, bool, int, float)


class PrivacyLeakWarning(UserWarning):
    """Something outside the promise: a fact was read off private rows, or the noise can be repeated."""


def declared_classes(classes: Sequence[Any] | None, labels: NDArray[Any] | None) -> tuple[NDArray[Any], bool]:
    """The sorted label set, and whether it was inferred from ``labels`` for want of a declaration."""
    if classes is not None:
        try:
            known = np.unique(np.asarray(classes))
        except TypeError:
            raise InvalidArgument("Expected classes to be labels of one type, such as [0, 1].") from None
        if known.ndim != 1 or len(known) < 2:
            raise InvalidArgument(
                f"Expected classes to list at least 2 labels, got {known.size}: one class is no task."
            )
        return known, False
    if labels is None:
        raise InvalidArgument("partial_fit sees a part of the rows: state classes=[...] when you make the estimator.")
    try:
        known = np.unique(labels)
    except TypeError:
        raise DataError(
            "y holds text and numbers. State classes=[...], so that no row decides what the classes are."
        ) from None
    if len(known) < 2:
        raise DataError("y has one class only; a classifier needs two. State classes=[...] if there are more.")
    warnings.warn(
        "classes was not given, so the set of labels is read off y; which labels occur is then not covered by the "
        "promise. State classes=[...].",
        PrivacyLeakWarning,
        stacklevel=4,
    )
    return known, True


def class_codes(labels: NDArray[Any], classes: NDArray[Any], *, unknown: str) -> NDArray[np.float64]:
    """Position of each label in ``classes``; NaN, a zero row, for others if ``unknown="zero"``."""
    mixed = (labels.dtype.kind in "SUO") != (classes.dtype.kind in "SUO")
    if mixed and unknown == "error":
        raise InvalidArgument("Expected classes and y of one type: one holds text, the other numbers.")
    if mixed or labels.dtype.kind == "O":  # cell by cell: one odd label decides nothing about another
        position = {canonical_text(label): code for code, label in enumerate(classes.tolist())}
        cells = (canonical_text(label) if isinstance(label, _CELLS) else None for label in labels.tolist())
        codes = np.array([np.nan if cell is None else position.get(cell, np.nan) for cell in cells], dtype=np.float64)
    else:
        place = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        codes = np.where(classes[place] == labels, place, np.nan)
    if unknown == "error" and np.any(np.isnan(codes)):
        raise DataError(
            "y has labels that are not among the declared classes. Declare them, clean them, or pass "
            "invalid_rows='zero' to count such rows as zero rows. Nothing was spent."
        )
    return codes


def label_bound_of(bound: float | None, targets: NDArray[Any] | None) -> tuple[float, bool]:
    """The bound on |y|, and whether it was inferred from ``targets`` for want of a declaration."""
    if bound is not None:
        return positive("label_bound", bound, "Targets are clamped to it; it must be public."), False
    if targets is None:
        raise InvalidArgument("partial_fit sees a part of the rows: state label_bound when you make the estimator.")
    warnings.warn(
        "label_bound was not given, so the largest |y| is used, which is not covered by the promise. State "
        "label_bound.",
        PrivacyLeakWarning,
        stacklevel=4,
    )
    largest = float(np.max(np.abs(targets), initial=0.0, where=np.isfinite(targets)))
    return largest or 1.0, True


def warn_seeded() -> None:
    """Say that a given random_state makes the noise repeatable."""
    warnings.warn(
        "random_state fixes the noise: whoever knows it can remove it, and privacy_ says 'not private'. For research "
        "only; leave it None for fresh noise.",
        PrivacyLeakWarning,
        stacklevel=4,
    )
