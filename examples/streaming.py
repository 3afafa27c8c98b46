"""A stream that is read once, interrupted, continued, and charged to an account.

python examples/streaming.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import dpsco
from dpsco.datasets import reference_problem

N = 100_000


def rows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows as from a queue: a thousand at a time, in a fixed order."""
    data = reference_problem(N, fresh=10)
    for start in range(0, N, 1_000):
        yield data.features[start : start + 1_000], data.labels[start : start + 1_000]


class PowerCut(Exception):
    pass


def cut_after_round_5(done: dpsco.Round) -> None:
    if done.step == 5:
        raise PowerCut


def main() -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(radius=10.0), dimension=50)
    plan = dpsco.plan(problem, n=N, budget=dpsco.Budget(epsilon=1.0, delta=1e-6))
    with tempfile.TemporaryDirectory() as folder:
        account = dpsco.Account.create(Path(folder) / "people.json", limit=dpsco.Budget(epsilon=2.0, delta=1e-6))
        checkpoint = Path(folder) / "run"
        try:
            dpsco.train(plan, dpsco.stream(rows()), checkpoint=checkpoint, account=account, on_round=cut_after_round_5)
        except PowerCut:
            print("stopped after 6 rounds; they are on disk")
        result = dpsco.train(plan, dpsco.stream(rows()), checkpoint=checkpoint, resume=True, account=account)
        print(f"finished: {len(result.trace)} rounds, epsilon {result.report.epsilon:g}")
        print(f"on the account: epsilon {account.epsilon:.4f}, left {account.remaining().epsilon:.4f}")


if __name__ == "__main__":
    main()
