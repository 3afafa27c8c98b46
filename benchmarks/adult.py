"""Adult (census income): accuracy of the default private estimator and of logistic regression without privacy.

    python -m benchmarks adult PATH/adult.npz

The archive contains num (age, weight, education years, capital gain, capital loss, hours), cat, cat_levels, y, n_train.
Columns are scaled by public constants; nothing is computed from the rows.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

KEYS = 10


def load(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows: six numbers and one 0/1 feature a level."""
    archive = np.load(path, allow_pickle=False)
    age, weight, years, gain, lost, hours = archive["num"].T
    numbers = [age / 100, np.log1p(weight) / 15, years / 16, np.log1p(gain) / 12, np.log1p(lost) / 9, hours / 100]
    levels = [len(row.split("|")) for row in archive["cat_levels"]]
    hot = [np.eye(k)[archive["cat"][:, j]] for j, k in enumerate(levels)]
    rows, labels, n = np.hstack([np.stack(numbers, axis=1), *hot]), archive["y"], int(archive["n_train"])
    return rows[:n], labels[:n], rows[n:], labels[n:]


def main(path: Path | None = None) -> None:
    if path is None or not path.exists():
        print("  skipped: give the path of adult.npz, python -m benchmarks adult PATH")
        return
    from sklearn.linear_model import LogisticRegression

    from dpsco.estimators import PrivateLogisticRegression

    rows, labels, test_rows, test_labels = load(path)
    plain = LogisticRegression(C=100.0, max_iter=5_000).fit(rows, labels).score(test_rows, test_labels)
    scores, start = [], time.perf_counter()
    for _ in range(KEYS):
        model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1]).fit(rows, labels)
        scores.append(model.score(test_rows, test_labels))
    seconds = (time.perf_counter() - start) / KEYS
    print(f"  non-private {plain:.4f}   private (epsilon 1, delta 1e-5) {np.mean(scores):.4f} +- {np.std(scores):.4f}")
    print(
        f"  difference {100 * (plain - np.mean(scores)):.2f} points, {model.plan_.rounds} rounds, {seconds:.2f} s a fit"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
