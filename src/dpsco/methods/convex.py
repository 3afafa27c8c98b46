"""Methods whose privacy rests on convexity: every row's loss must be convex, L-Lipschitz and M-smooth.

``Run`` shortens rows to ``feature_norm`` for such a method, so L and M hold for every row whatever the data, and
computes in float64. A clip C below L keeps the loss of a scalar linear model convex, C-Lipschitz and M-smooth: it
clamps the derivative phi'(m), which is non-decreasing and stays so. The softmax loss has no such argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument
from dpsco.methods.method import Method
from dpsco.problem import CustomLoss, Domain, Problem, Product
from dpsco.problem.domains import DOMAINS
from dpsco.problem.losses import LOSSES

__all__ = ["ConvexMethod"]


@dataclass(frozen=True, kw_only=True)
class ConvexMethod(Method):
    """A method that is private for convex losses alone; its schedule refuses everything else."""

    needs: ClassVar[str] = "convexity"
    assumptions: ClassVar[tuple[str, ...]] = (
        "the loss is convex, Lipschitz and smooth in every row: true of this loss for rows within feature_norm, to "
        "which longer ones were shortened",
    )

    def _check_convex(self, problem: Problem, budget: Budget) -> None:
        if type(problem.loss) is CustomLoss or type(problem.loss) not in LOSSES.values():
            raise InvalidArgument(
                f"method={self.name!r} is private for convex losses only, which the library cannot know of a "
                "CustomLoss. Use one of dpsco's losses, or a method that needs clipping alone."
            )
        if not _known(problem.domain):
            raise InvalidArgument(
                f"method={self.name!r} is private if projections push no two points apart, which the library cannot "
                "know of a domain of your own. Use one of dpsco's domains, or a method that needs clipping alone."
            )
        if not math.isfinite(problem.diameter):
            raise InvalidArgument(
                f"method={self.name!r} needs a bounded domain, such as L2Ball(radius=10.0): its step size and its "
                "noise are worked out from the diameter."
            )
        if problem.loss.outputs > 1 and self.clip < problem.lipschitz:
            raise InvalidArgument(
                f"Expected clip={self.clip:.6g} >= L={problem.lipschitz:.6g} for method={self.name!r}: its privacy "
                f"rests on convexity, and clipping breaks that of the {problem.loss.kind} loss."
            )
        if budget.adjacency == "add-remove":
            raise InvalidArgument(
                f"method={self.name!r} places rows by position, which adjacency='add-remove' does not allow. Plan "
                "with 'zero-out' or 'replace'."
            )

    def _lipschitz(self, problem: Problem) -> float:
        """Lipschitz constant of the (clipped) loss."""
        return min(self.clip, problem.lipschitz)

    @staticmethod
    def _largest_step(problem: Problem) -> float:
        """2/M, a hair less: gradient steps up to it are non-expansive."""
        return 2.0 / problem.smoothness * (1.0 - 1e-9)

    def _check_non_expansive(self, step_size: float, largest: float) -> None:
        if step_size > largest:
            raise InvalidArgument(
                f"Expected step_size={step_size:.6g} <= {largest:.6g} for method={self.name!r}: beyond 2/M a gradient "
                "step may push two runs apart, and its privacy proof fails."
            )


def _known(domain: Domain) -> bool:
    """Whether the domain, and every part of a product, is one of the library's: a class derived from one is not."""
    parts = domain.parts if isinstance(domain, Product) else ()
    return type(domain) in DOMAINS.values() and all(map(_known, parts))
