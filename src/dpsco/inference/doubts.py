"""When intervals would be wrong, read off released values: a refusal with a reason, or a note."""

from __future__ import annotations

import math
from typing import NamedTuple

from dpsco.errors import IntervalError
from dpsco.inference.evidence import Evidence
from dpsco.methods import AcceleratedSRGD
from dpsco.planning.plan import Plan
from dpsco.problem import L2Ball, MulticlassHinge

__all__ = ["Signs", "notes", "refuse", "refuse_plan"]

MOST_PARAMETERS = 4096
MOST_HIDDEN, MOST_LEFT, MOST_CLIPPED, MOST_SCORES, MOST_OVERSHOOT = 2.5, 1.0, 0.8, 0.5, 0.2
"""Beyond these, ``python -m benchmarks intervals`` finds coverage or width off."""
LEAST_DETERMINED = 0.06
"""Variance of a combination of columns of variance 1 that may be 0: below it their coefficients are not told apart."""
_NOT_SMALL = 0.4
"""Noise of the survey over a typical direction from which a note says so."""
LEAST_CURVED = 0.5
"""Curvature that the rounds show over the survey's, along the flattest direction, below which columns are extreme."""
_FLAT = 0.75
"""The same, below which a note says so."""
_BINDS = 0.95
"""Norm of a model over the radius of its ball from which the ball binds."""


class Signs(NamedTuple):
    """Released numbers that tell whether the linear response holds."""

    hidden: float
    """The survey's noise over the size of a typical direction."""
    misfit: float
    """Scatter of the rounds over what is expected."""
    numbers: int
    """Numbers behind ``misfit``."""
    left: float
    """Square of what optimisation left over the variance, for the median parameter."""
    clip: float
    """Typical length of a row's contribution over the clip."""
    scores: float
    """Mean square of the scores' error over that of large scores."""
    distance: float
    """Norm of the parameters."""
    overshoot: float = 0.0
    """Largest share of the start's distance that is left along a direction steeper than beta."""
    least: float = 1.0
    """Most that a combination of the columns, each of variance 1, may vary whose variance may be 0; 1 if none may."""
    curved: float = 1.0
    """Curvature that the rounds show over the one that the survey shows, along the flattest direction."""


def refuse_plan(evidence: Evidence | None) -> Evidence:
    """Return the evidence, if the plan allows intervals at all."""
    if evidence is None:
        raise IntervalError(
            "Intervals need a survey and rounds behind it: they release the rows' second moment, and the Hessian and "
            "both parts of the variance follow from that. This run had none, or its released values were not kept (a "
            "model read from a file). Plan with survey='intervals' (--survey intervals)."
        )
    method = evidence.second.plan.method
    if isinstance(evidence.plan.problem.loss, MulticlassHinge):
        raise IntervalError("Intervals are not known for the multiclass hinge: its Hessian is no form of the survey's.")
    if not evidence.complete:
        raise IntervalError("The run is not complete: its last rounds still move the model. Feed it all n rows.")
    if not isinstance(method, AcceleratedSRGD) or method.adaptive:
        raise IntervalError(
            f"Intervals are known for the rounds of accelerated-srgd after a survey; this run's are {method.name!r}."
        )
    if evidence.second.survey.kind != "full":
        raise IntervalError(
            f"A survey of kind {evidence.second.survey.kind!r} does not release correlations of the columns, and "
            "standard errors need them. Plan with survey='full'."
        )
    if len(evidence.points) < 2:
        raise IntervalError("One round after the survey shows no scatter of the gradients. Plan with more rounds.")
    if evidence.final.size > MOST_PARAMETERS:
        raise IntervalError(
            f"The model has {evidence.final.size} parameters; a covariance of more than {MOST_PARAMETERS} is not made."
        )
    return evidence


def refuse(signs: Signs, radius: float = math.inf) -> None:
    """Raise IntervalError where the numbers contradict the linear response; ``radius`` is that of the domain's ball."""
    try:
        _refuse(signs)
    except IntervalError as reason:
        if signs.distance <= _BINDS * radius:
            raise
        raise IntervalError(
            f"The ball of radius={radius:.4g} binds: the model is the best one within it, and the released rounds do "
            "not say how far the best one without it is. Declare a larger radius."
        ) from reason


def _refuse(signs: Signs) -> None:
    if not signs.hidden <= MOST_HIDDEN:
        raise IntervalError(
            f"The survey's noise is {signs.hidden:.2g} times a typical direction of the rows, and standard errors need "
            f"at most {MOST_HIDDEN:g}. survey='intervals' surveys the most rows. Beyond it: use more rows, a larger "
            "epsilon, or narrower ranges of the columns (a feature_norm closer to the rows' norm)."
        )
    if not signs.least >= LEAST_DETERMINED:
        raise IntervalError(
            "Columns are collinear: a combination of them hardly varies, so the data do not tell their coefficients "
            "apart, and an interval of each would say nothing. All levels of a column of categories beside an "
            "intercept are: leave one out with PublicColumns(..., drop='first') or --drop first. One such column alone "
            "can do with fit_intercept=False."
        )
    if not signs.misfit <= 1.5 + 4 * math.sqrt(2 / signs.numbers):
        raise IntervalError(
            f"The released rounds scatter {signs.misfit:.2g} times as much as the survey and the noise explain: the "
            "rounds did not settle, or contributions were clipped often. Survey more rows, or use more rows."
        )
    if not signs.curved >= LEAST_CURVED:
        raise IntervalError(
            f"Along one direction the rounds show {signs.curved:.2g} of the curvature that the survey showed. A column "
            "may vary by a few extreme rows alone, which the clip shortens and the loss flattens, and its interval "
            "would be wrong. Declare a range without such values, or log; or use more rows or a larger epsilon."
        )
    if not signs.left <= MOST_LEFT:
        raise IntervalError(
            "The rounds stopped short: what is left of the distance from the start exceeds the standard error. Plan "
            "with more rounds."
        )
    if not signs.overshoot <= MOST_OVERSHOOT:
        raise IntervalError(
            "The rounds overshot: along one direction the loss is far steeper than the survey showed, and the model "
            "still swings about the minimum there. Survey more rows, or use more rows or a larger epsilon."
        )
    if not signs.clip <= MOST_CLIPPED:
        raise IntervalError(
            f"A typical contribution is {signs.clip:.2g} of the clip, so many are clipped and the model leans towards "
            "what the others say. Use more rows or a larger epsilon: the plan then clips less."
        )
    if not signs.scores <= MOST_SCORES:
        raise IntervalError(
            "The error of the scores is as large as scores of this loss are: the loss is not quadratic over it. Use "
            "more rows, fewer columns or a larger epsilon."
        )


def notes(signs: Signs, plan: Plan) -> tuple[str, ...]:
    """List what a reader should know about intervals that are given."""
    found = []
    domain = plan.problem.domain
    if isinstance(domain, L2Ball) and signs.distance > _BINDS * domain.radius:
        found.append(
            "The ball of the domain binds: the model is the best one within it, and the intervals are those of a model "
            "without it, which are wider."
        )
    if signs.left > 0.1:
        found.append("The rounds left part of the distance from the start; its square is counted in the intervals.")
    if signs.curved < _FLAT:
        found.append(
            "Along one direction the rounds show less curvature than the survey did. The survey's noise can do that; "
            "so can a column that varies by a few extreme rows alone, whose interval is then wrong."
        )
    if signs.hidden > _NOT_SMALL:
        found.append(
            "The survey's noise is not small beside the rows: a standard error may be off by a fifth, more for a "
            "column that hardly varies. Intervals are wider by as much as that costs coverage."
        )
    return tuple(found)
