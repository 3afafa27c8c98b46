"""Who is compared: a method, the options that make it one of its variants, and what is tuned beside its knobs.

Every contender may scale its own knobs (``algorithm.knobs``); ``choices`` are further settings tried with the same
budget. Clip is the Lipschitz constant for all, the one public value at which nothing is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpsco.methods import ALGORITHMS
from dpsco.research.compare.search import Point
from dpsco.research.compare.settings import Setting
from dpsco.research.compare.trial import Fields, Trial

__all__ = ["Contender"]


@dataclass(frozen=True)
class Contender:
    """A method as it enters the comparison."""

    name: str
    algorithm: str
    kind: str
    """"ours", "one pass", "one pass, more tuned" or "many passes": how pages group and draw it."""
    options: Fields = ()
    plan: Fields = ()
    choices: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    """Names (``plan.`` before those of the plan) with the values that are tried."""
    own_rounds: bool = False
    """Whether the algorithm takes the number of rounds as an option of its own, and not from the plan."""

    @property
    def method(self) -> Any:
        """The algorithm, for what it declares."""
        return ALGORITHMS[self.algorithm](**dict(self.options))

    @property
    def knobs(self) -> tuple[str, ...]:
        return tuple(self.method.knobs)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each choice has."""
        return tuple(len(values) for _, values in self.choices)

    def trial(self, setting: Setting, rounds: int, point: Point, role: str, replicate: int) -> Trial:
        """The run of one configuration."""
        chosen = [(name, values[place]) for (name, values), place in zip(self.choices, point.places, strict=True)]
        rounds = dict(chosen).get("rounds", rounds)
        own = (("rounds", rounds),) if self.own_rounds else ()
        options = tuple(pair for pair in chosen if not pair[0].startswith("plan.") and pair[0] != "rounds")
        return Trial(
            setting=setting,
            algorithm=self.algorithm,
            rounds=rounds,
            role=role,
            replicate=replicate,
            options=self.options + own + options,
            plan=self.plan + tuple((name[5:], value) for name, value in chosen if name.startswith("plan.")),
            scales=tuple((name, 2.0**k) for name, k in zip(self.knobs, point.exponents, strict=True)),
        )

    def described(self, point: Point) -> dict[str, Any]:
        """A configuration in words that a reader can check."""
        chosen = {name: values[place] for (name, values), place in zip(self.choices, point.places, strict=True)}
        return {**{f"{k} x": round(2.0**e, 4) for k, e in zip(self.knobs, point.exponents, strict=True)}, **chosen}
