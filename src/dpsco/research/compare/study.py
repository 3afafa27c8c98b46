"""Tuning and scoring of one contender at one place: equal budgets, then runs that the tuning never saw.

    tune     each configuration on ``tuning`` replicates, the mean of their scores decides (search.py)
    score    the best configuration on ``scoring`` replicates: other rows, other keys

Guarantee: every study of an effort tries the same number of configurations and makes the same number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

from dpsco.research.compare.contenders import Contender
from dpsco.research.compare.search import Point, Search
from dpsco.research.compare.settings import Setting
from dpsco.research.compare.trial import Outcome, Trial

__all__ = ["Effort", "Study", "Tuned", "studied"]

Steps = Generator[list[Trial], list[Outcome], "Tuned"]


@dataclass(frozen=True)
class Effort:
    """Budget of a study."""

    configurations: int
    tuning: int
    scoring: int

    @property
    def runs(self) -> int:
        return self.configurations * self.tuning + self.scoring


@dataclass(frozen=True)
class Study:
    """A contender at a setting and a number of rounds."""

    contender: Contender
    setting: Setting
    rounds: int
    effort: Effort


@dataclass(frozen=True)
class Tuned:
    """What a study found."""

    study: Study
    best: Point
    tried: int
    """Configurations, those refused included."""
    refused: int
    edges: tuple[bool, ...]
    """For each knob, whether the optimum stayed at the edge of what was tried."""
    outcomes: tuple[Outcome, ...]
    """Of the scoring runs."""

    @property
    def scores(self) -> tuple[float, ...]:
        return tuple(math.inf if o.score is None else o.score for o in self.outcomes)

    @property
    def works(self) -> bool:
        """Whether the method took the setting at all."""
        return all(math.isfinite(score) for score in self.scores)


def studied(study: Study) -> Steps:
    """Ask for runs, take their outcomes, return what was found."""
    who, effort = study.contender, study.effort
    search = Search(knobs=len(who.knobs), choices=who.sizes, budget=effort.configurations)
    while points := search.ask():
        wanted = [_trials(study, point, "tuning", effort.tuning) for point in points]
        outcomes = yield [trial for trials in wanted for trial in trials]
        for place, point in enumerate(points):
            search.tell(point, _mean(outcomes[place * effort.tuning : (place + 1) * effort.tuning]))
    scored = yield _trials(study, search.best, "scoring", effort.scoring)
    return Tuned(
        study=study,
        best=search.best,
        tried=len(search.scores),
        refused=sum(math.isinf(score) for score in search.scores.values()),
        edges=search.edges if effort.tuning else (False,) * len(who.knobs),
        outcomes=tuple(scored),
    )


def _trials(study: Study, point: Point, role: str, replicates: int) -> list[Trial]:
    return [study.contender.trial(study.setting, study.rounds, point, role, i) for i in range(replicates)]


def _mean(outcomes: list[Outcome]) -> float:
    """Their mean score; 0 where nothing was run, for a contender that is not tuned."""
    return sum(math.inf if o.score is None else o.score for o in outcomes) / max(1, len(outcomes))
