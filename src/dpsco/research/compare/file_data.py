"""Rows of a file for a comparison.

    half        a fixed random half of the rows per role (tuning, scoring)
    replicate   a random order of the half; the first 80 % to train on, the rest to test on

Guarantee
---------
No row serves both roles. In a replicate no row is used both for training and for testing. The comparison is research
on data that its reader may see: nothing about it is private.

Cost
----
All rows are in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError
from dpsco.planning.table_problem import model_ball
from dpsco.problem import Logistic, Problem, Softmax
from dpsco.query import Array
from dpsco.rows.csr import CsrRows, is_sparse
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.rows.public_columns import PublicColumns

__all__ = ["FileData"]

TRAINED_ON = 0.8
FEWEST_ROWS = 100


@dataclass(frozen=True)
class FileData:
    """A file, its declared columns, and the model to train on it."""

    path: Path = field(repr=False)
    labels: Labels
    columns: PublicColumns | int
    feature_norm: float
    radius: float

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.labels.classes or ())

    @property
    def problem(self) -> Problem:
        """The problem to train on."""
        width = self.columns if isinstance(self.columns, int) else self.columns.width
        loss = Logistic() if self.classes == 2 else Softmax(self.classes)
        return Problem(loss, model_ball(self.radius, loss), width, intercept=True)

    @property
    def training_rows(self) -> int:
        """Rows per run: 80 % of a half."""
        return int(TRAINED_ON * (len(_loaded(self)[1]) // 2))

    @property
    def digest(self) -> str:
        """A digest of the rows and their declaration, independent of the path."""
        text = f"{self.labels!r} {self.columns!r} {self.feature_norm} {self.radius}"
        return hashlib.sha256(text.encode() + _content(self.path)).hexdigest()

    def split(self, role: str, replicate: int) -> tuple[Any, NDArray[Any], Callable[[Array], dict[str, float]]]:
        """Return features and labels to train on, and a function that measures parameters on the test rows."""
        features, labels = _loaded(self)
        mine = halves(len(labels))[role]
        order = np.random.default_rng([replicate, len(mine)]).permutation(mine)
        train, test = order[: self.training_rows], order[self.training_rows :]
        rows, targets, problem = features[test], labels[test], self.problem

        def measure(x: Array) -> dict[str, float]:
            from dpsco.run.result import Model

            model = Model.from_parameters(x, problem)
            scores = model.scores(rows)
            hits = problem.loss.predict(scores) == targets
            return {"score": float(np.mean(problem.loss.value(scores, targets))), "accuracy": float(np.mean(hits))}

        return features[train], labels[train], measure


def halves(rows: int) -> dict[str, NDArray[np.int64]]:
    """Return the row numbers of each role: disjoint, and the same for every replicate."""
    order = np.random.default_rng(0).permutation(rows)
    return {"tuning": order[: rows // 2], "scoring": order[rows // 2 : 2 * (rows // 2)]}


@lru_cache(maxsize=1)
def _loaded(data: FileData) -> tuple[Array, NDArray[Any]]:
    parts = list(FileRows(data.path, data.labels, data.columns, feature_norm=data.feature_norm))
    features, labels = np.concatenate([_dense(f) for f, _ in parts]), np.concatenate([y for _, y in parts])
    known = np.isfinite(labels) & np.all(np.isfinite(features), axis=1)
    if int(np.sum(known)) < FEWEST_ROWS:
        raise DataError(
            f"Expected at least {FEWEST_ROWS} rows with a declared label to compare on. Check --label and --classes."
        )
    return features[known], labels[known].astype(np.int64)


def _dense(features: Any) -> Array:
    if not is_sparse(features):
        return np.asarray(features, dtype=np.float64)
    from scipy.sparse import csr_array

    rows = CsrRows.of(features)
    return np.asarray(csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape).toarray(), dtype=np.float64)


@lru_cache(maxsize=1)
def _content(path: Path) -> bytes:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files if file.is_file())
