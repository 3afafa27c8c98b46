"""Who is compared: a method and the options that make it one of its variants.

Every contender may scale its own knobs (``algorithm.knobs``), and nothing else is tuned: a variant with other options
is a contender of its own. Clip is the Lipschitz constant for all, the one public value at which nothing is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpsco.algorithms import ALGORITHMS
from dpsco.comparison.search import Point
from dpsco.comparison.settings import Setting
from dpsco.comparison.trial import Fields, Trial

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
    own_rounds: bool = False
    """Whether the algorithm takes the number of rounds as an option of its own, and not from the plan."""

    @property
    def method(self) -> Any:
        """The algorithm, for what it declares."""
        return ALGORITHMS[self.algorithm](**dict(self.options))

    @property
    def knobs(self) -> tuple[str, ...]:
        return tuple(self.method.knobs)

    def trial(self, setting: Setting, rounds: int, point: Point, role: str, replicate: int) -> Trial:
        """The run of one configuration."""
        return Trial(
            setting=setting,
            algorithm=self.algorithm,
            rounds=rounds,
            role=role,
            replicate=replicate,
            options=self.options + ((("rounds", rounds),) if self.own_rounds else ()),
            plan=self.plan,
            scales=tuple((name, 2.0**k) for name, k in zip(self.knobs, point, strict=True)),
        )

    def described(self, point: Point) -> dict[str, Any]:
        """A configuration in words that a reader can check: multiples of the formula's values."""
        return {f"{name} x": round(2.0**k, 4) for name, k in zip(self.knobs, point, strict=True)}
