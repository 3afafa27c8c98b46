"""Public facts about the rows: stated by the user, or inferred from private data with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError, InvalidArgument, positive
from dpsco.rows.cells import label_text
from dpsco.rows.containers import column_cells, column_texts

__all__ = ["PrivacyLeakWarning", "class_codes", "class_shares", "declared_classes", "label_bound_of", "warn_seeded"]

_BLOCK = 1 << 15
"""Labels compared at a time: what is between fits the cache, and needs no new memory."""
_FEW = 16
"""Classes up to which labels are compared with each."""
_EXACT = 2**31
"""Larger numbers are compared as text."""


class PrivacyLeakWarning(UserWarning):
    """Something outside the guarantee: a fact was read off private rows, or the noise can be repeated."""


def declared_classes(classes: Sequence[Any] | None, labels: Any) -> tuple[NDArray[Any], bool]:
    """Return the sorted label set, and whether it was inferred from ``labels`` because none was declared."""
    if classes is not None:
        try:
            known = np.unique(np.asarray(list(classes) if isinstance(classes, (set, frozenset)) else classes))
        except TypeError:
            raise InvalidArgument("Expected classes to be labels of one type, such as [0, 1].") from None
        if known.ndim != 1 or len(known) < 2:
            raise InvalidArgument(
                f"Expected classes to list at least 2 labels, got {known.size}: one class is no task."
            )
        if not all(label_text(label) for label in known.tolist()):
            raise InvalidArgument(
                "Expected classes that a row can have: empty text, NaN, None and times stand for a missing label. "
                "Write such a class as a word, in classes and in y."
            )
        if len({label_text(label) for label in known.tolist()}) < len(known):
            raise InvalidArgument(
                "Expected classes of different texts: 1 and '1' are one label, and so are whole numbers beyond 2^53 "
                "that share one float64. Write such labels as text with a letter."
            )
        return known, False
    if labels is None:
        raise InvalidArgument("partial_fit sees a part of the rows: state classes=[...] when you make the estimator.")
    known = _observed(labels)
    if len(known) < 2:
        raise DataError("y has one class only; a classifier needs two. State classes=[...] if there are more.")
    warnings.warn(
        "classes was not given, so the set of labels is read off y; which labels occur is then not covered by the "
        "guarantee. State classes=[...].",
        PrivacyLeakWarning,
        stacklevel=4,
    )
    return known, True


def class_shares(weights: Any, classes: NDArray[Any]) -> tuple[float, ...]:
    """Return the public weight of each class over the largest one; nothing if all count alike."""
    if weights is None:
        return ()
    if isinstance(weights, str) or not isinstance(weights, Mapping):
        raise InvalidArgument(
            f"Expected class_weight={weights!r} to be a mapping from labels to public weights. 'balanced' would be "
            "read off the rows, which no guarantee covers."
        )
    stated = {label_text(label): positive("class_weight", each, "It is public.") for label, each in weights.items()}
    names = [label_text(label) for label in classes.tolist()]
    if unknown := sorted(set(stated) - set(names)):
        raise InvalidArgument(f"class_weight has labels that are not among the classes: {', '.join(unknown)}.")
    found = [stated.get(name, 1.0) for name in names]
    return tuple(each / max(found) for each in found) if min(found) < max(found) else ()


def class_codes(labels: Any, classes: NDArray[Any], *, unknown: str) -> NDArray[np.float64]:
    """Return the position of each label in ``classes``; NaN, a zero row, for others if ``unknown="zero"``.

    A label is compared by its canonical text (rows/cells.py), each by itself: 1, 1.0, True, ``np.int64(1)`` and "1"
    are one label in every container.
    """
    kind = getattr(getattr(labels, "dtype", None), "kind", "O")
    if unknown == "error" and kind != "O" and (kind in "SUT") != (classes.dtype.kind in "SUO"):
        raise InvalidArgument(
            "Expected classes and y of one type: one holds text, the other numbers. (Some tools of scikit-learn hand "
            "labels on as 0, 1, ...: cross_val_predict with a method, VotingClassifier, BaggingClassifier. State "
            "classes=[0, 1, ...] there.)"
        )
    whole = _whole_numbers(labels, classes)
    if whole is not None:
        return _known(whole, unknown)
    texts, of_row = column_texts(labels)
    position = {label_text(label): float(code) for code, label in enumerate(classes.tolist())}
    codes = np.array([position.get(text, np.nan) if text else np.nan for text in texts], dtype=np.float64)[of_row]
    return _known(codes, unknown)


def _whole_numbers(labels: Any, classes: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return the codes of an array of integers by comparison, which needs no sort; None for anything else."""
    if not (type(labels) is np.ndarray and labels.ndim == 1 and labels.dtype.kind in "iu") or len(classes) > _FEW:
        return None
    if [label_text(label) for label in classes.tolist()] == [str(code) for code in range(len(classes))]:
        codes = np.empty(len(labels))
        for start in range(0, len(labels), _BLOCK):
            own, block = labels[start : start + _BLOCK], codes[start : start + _BLOCK]
            block[:] = own
            block[(own < 0) | (own >= len(classes))] = np.nan
        return codes
    codes = np.full(len(labels), np.nan)
    for code, label in enumerate(classes.tolist()):
        number = _whole(label_text(label))
        if number is None:
            continue
        if abs(number) >= _EXACT:
            return None
        codes[labels == number] = code
    return codes


def _whole(text: str) -> int | None:
    """Return the whole number whose text is ``text``, None if there is none.

    ``int`` reads more than it writes: digits of every script, "1_0", " 7". No label that is a number has such a text.
    """
    try:
        number = int(text)
    except ValueError:  # text, a fraction, or thousands of digits
        return None
    return number if label_text(number) == text else None


def _known(codes: NDArray[np.float64], unknown: str) -> NDArray[np.float64]:
    """Return the codes, or refuse them if some are missing and that is an error."""
    if unknown == "error" and np.isnan(np.min(codes, initial=0.0)):  # NaN if one is
        raise DataError(
            "y has labels that are not among the declared classes. Declare them, clean them, or pass "
            "invalid_rows='zero' to count such rows as zero rows. Nothing was spent."
        )
    return codes


def _observed(labels: Any) -> NDArray[Any]:
    """Return the labels that occur, sorted; missing ones left out."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biuSU":
        return np.unique(labels)
    cells = [cell for cell in column_cells(labels) if label_text(cell)]
    try:
        return np.unique(np.array(sorted(set(cells))))
    except TypeError:
        raise DataError(
            "y holds text and numbers. State classes=[...], so that no row decides what the classes are."
        ) from None


def label_bound_of(bound: float | None, targets: NDArray[Any] | None) -> tuple[float, bool]:
    """Return the bound on |y|, and whether it was inferred from ``targets`` because none was declared."""
    if bound is not None:
        return positive("label_bound", bound, "Targets are clamped to it; it must be public."), False
    if targets is None:
        raise InvalidArgument("partial_fit sees a part of the rows: state label_bound when you make the estimator.")
    warnings.warn(
        "label_bound was not given, so the largest |y| is used, which is not covered by the guarantee. State "
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
