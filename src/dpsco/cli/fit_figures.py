"""Figures of ``dpsco fit``: results on data declared public, and counts that are not private."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dpsco.rows.file_stream import Labels
    from dpsco.rows.public_columns import PublicColumns
    from dpsco.run.model_file import SavedModel
    from dpsco.run.result import Diagnostics

__all__ = ["check_test_rows", "not_private_figures", "reached_on"]


def check_test_rows(
    path: str, labels: Labels, columns: PublicColumns | int, feature_norm: float, reading: dict[str, Any]
) -> None:
    """Raise if files that the user declares public do not have the columns of the model; the first rows are read."""
    from dpsco.rows.file_stream import FileRows

    for _ in FileRows(path, labels, columns, feature_norm=feature_norm, **reading):
        return


def reached_on(path: str, saved: SavedModel, reading: dict[str, Any]) -> dict[str, str]:
    """Return accuracy or errors on files that the user declares public, without rows that lack a declared label."""
    from dpsco.rows.file_stream import FileRows

    rows, hits, loss, squares, spread, absolute = 0, 0, 0.0, 0.0, [0.0, 0.0], 0.0
    counts = np.zeros(len(saved.labels.classes or ()))
    for features, targets in FileRows(path, saved.labels, saved.columns, feature_norm=saved.feature_norm, **reading):
        known = np.isfinite(targets)
        features, targets = features[known], targets[known]
        scores, model_loss = saved.scores(features), saved.result.model.loss
        rows += len(targets)
        loss += float(np.sum(model_loss.value(scores, targets)))
        hits += int(np.sum(model_loss.predict(scores) == targets))
        bound = saved.labels.bound or 1.0
        counts += np.bincount(targets.astype(np.int64), minlength=len(counts)) if len(counts) else 0
        if saved.labels.bound is not None:
            squares += float(np.sum((scores - targets) ** 2)) * bound**2
            absolute += float(np.sum(np.abs(scores - targets))) * bound
            spread[0] += float(np.sum(targets)) * bound
            spread[1] += float(np.sum(targets**2)) * bound**2
    if rows == 0:
        return {"rows": "0"}
    figures = {"rows": f"{rows:,}", f"mean {saved.result.model.loss.kind} loss": f"{loss / rows:.5g}"}
    if saved.labels.bound is None:
        return {**figures, "accuracy": f"{hits / rows:.4f}", "of a constant": f"{counts.max() / rows:.4f}"}
    variance = spread[1] - spread[0] ** 2 / rows
    explained = "none" if variance <= 0 else f"{1 - squares / variance:.4f}"
    return {**figures, "mean absolute error": f"{absolute / rows:.5g}", "R^2": explained}


def not_private_figures(counted: Diagnostics) -> dict[str, str]:
    """Return counts over the raw rows as text."""
    rows = max(1, sum(counted.rows))
    return {
        "rows read": f"{sum(counted.rows):,}",
        "rows clipped": f"{sum(counted.clipped_rows):,} ({100 * sum(counted.clipped_rows) / rows:.2f} %)",
        "rows counted as zero (no declared label, or not finite)": f"{sum(counted.zeroed_rows):,}",
    }
