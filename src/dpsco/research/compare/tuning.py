"""Tuning and scoring of one method at one setting.

    tune     try each configuration on ``tuning`` replicates; the mean of their scores decides (pattern_search.py)
    score    run the best configuration on ``scoring`` replicates, with other rows and other keys

Guarantee
---------
All tasks with one budget try the same number of configurations and make the same number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

from dpsco.research.compare.compared_methods import ComparedMethod
from dpsco.research.compare.comparison_size import TuningBudget
from dpsco.research.compare.evaluation_data import Setting
from dpsco.research.compare.pattern_search import GridPoint, PatternSearch
from dpsco.research.compare.single_run import RunOutcome, SingleRun

__all__ = ["TunedMethod", "TuningTask", "tune"]


@dataclass(frozen=True)
class TuningTask:
    """A method to tune and score at a setting and a number of rounds."""

    method: ComparedMethod
    setting: Setting
    rounds: int
    budget: TuningBudget


@dataclass(frozen=True)
class TunedMethod:
    """The result of a `TuningTask`."""

    task: TuningTask
    best: GridPoint
    tried: int
    """Configurations tried, refused ones included."""
    refused: int
    edges: tuple[bool, ...]
    """Per knob, whether the best value is the smallest or the largest that was tried."""
    outcomes: tuple[RunOutcome, ...]
    """Outcomes of the scoring runs."""

    @property
    def scores(self) -> tuple[float, ...]:
        """Scores of the scoring runs; infinite where the method refused."""
        return tuple(outcome.score_or_infinity for outcome in self.outcomes)

    @property
    def accepted(self) -> bool:
        """Whether the method accepted the setting."""
        return all(math.isfinite(score) for score in self.scores)


def tune(task: TuningTask) -> Generator[list[SingleRun], list[RunOutcome], TunedMethod]:
    """Yield runs to make, receive their outcomes, return the tuned method."""
    method, budget = task.method, task.budget
    search = PatternSearch(len(method.knobs), method.choice_sizes, budget.configurations)
    while points := search.ask():
        outcomes = yield [run for point in points for run in _runs(task, point, "tuning", budget.tuning)]
        for place, point in enumerate(points):
            search.tell(point, _mean_score(outcomes[place * budget.tuning : (place + 1) * budget.tuning]))
    scored = yield _runs(task, search.best, "scoring", budget.scoring)
    return TunedMethod(
        task=task,
        best=search.best,
        tried=len(search.scores),
        refused=sum(math.isinf(score) for score in search.scores.values()),
        edges=search.edges if budget.tuning else (False,) * len(method.knobs),
        outcomes=tuple(scored),
    )


def _runs(task: TuningTask, point: GridPoint, role: str, replicates: int) -> list[SingleRun]:
    return [task.method.single_run(task.setting, task.rounds, point, role, i) for i in range(replicates)]


def _mean_score(outcomes: list[RunOutcome]) -> float:
    """Return the mean score, or 0 without runs: a method that is not tuned has one configuration and no tuning run."""
    return sum(outcome.score_or_infinity for outcome in outcomes) / max(1, len(outcomes))
