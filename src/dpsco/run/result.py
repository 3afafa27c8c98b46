"""What a run gives back: a model, a report, a trace. Nothing secret is reachable from any of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsco.errors import DataError
from dpsco.inference import Evidence, Inference, infer
from dpsco.lazy import cached_property
from dpsco.methods.in_geometry import released_by
from dpsco.planning.geometry import Geometry
from dpsco.planning.plan import Plan
from dpsco.planning.prediction import Prediction
from dpsco.planning.released_survey import Health
from dpsco.problem import CustomLoss, Loss, Problem
from dpsco.query import Array, Clipped
from dpsco.run.report import PrivacyReport

__all__ = ["Counts", "Diagnostics", "Model", "Result", "Round"]


@dataclass(frozen=True, eq=False)
class Model:
    """A linear model.

    Attributes
    ----------
    coef : array
        Shape (features,), or (classes, features) for softmax.
    intercept : array
        One number, or one per class.
    loss : Loss
        Turns scores into predictions.
    """

    coef: Array
    intercept: Array
    loss: Loss

    @classmethod
    def from_parameters(cls, x: Array, problem: Problem) -> Model:
        """Return the model that the vector ``x`` of a run stands for."""
        rows = x.reshape(problem.loss.outputs, -1).copy()
        coef = rows[:, : problem.dimension]
        intercept = rows[:, -1] if problem.intercept else np.zeros(len(rows))
        one = problem.loss.outputs == 1
        return cls(coef[0] if one else coef, intercept[0] if one else intercept, problem.loss)

    def parameters(self, problem: Problem) -> Array:
        """Return the vector that stands for the model in ``problem``: ``from_parameters`` makes the model of it."""
        coef = self.coef.reshape(problem.loss.outputs, -1)
        constant = [self.intercept.reshape(-1, 1)] if problem.intercept else []
        return np.hstack([coef, *constant]).ravel()

    def scores(self, features: ArrayLike) -> Array:
        """Return <a, coef> + intercept for each row."""
        a = np.asarray(features, dtype=np.float64)
        if isinstance(self.loss, CustomLoss) or a.ndim != 2 or a.shape[1] != self.coef.shape[-1]:
            raise DataError(f"Expected rows of {self.coef.shape[-1]} features for a linear model, got shape {a.shape}.")
        return np.asarray(a @ self.coef.T + self.intercept)

    def predict(self, features: ArrayLike) -> NDArray[Any]:
        """Return the predicted label of each row."""
        return self.loss.predict(self.scores(features))


@dataclass(frozen=True)
class Round:
    """One round as the public may see it: computed from released values only.

    Attributes
    ----------
    step : int
        The round t.
    gradient_norm : float
        ||nabla_t||: the private estimate of the gradient at x_t, noise included; 0 where a method releases none.
    move : float
        ||x_{t+1} - x_t||.
    """

    step: int
    gradient_norm: float
    move: float


@dataclass(frozen=True)
class Counts:
    """What a run did, in public numbers (run/row_access.py)."""

    gradients: int = 0
    """Example gradients: points times rows."""
    batch_steps: int = 0
    """Adaptive steps; two gradients of one batch are one step."""
    participation: int = 0
    """Most distinct states at which one row is used; 1 means single epoch."""

    def __add__(self, other: Counts) -> Counts:
        """Work of two stages, on rows of their own."""
        return Counts(
            self.gradients + other.gradients,
            self.batch_steps + other.batch_steps,
            max(self.participation, other.participation),
        )


@dataclass(frozen=True, eq=False)
class Result:
    """What a run gives.

    Attributes
    ----------
    model : Model
        The trained model.
    report : PrivacyReport
        What is guaranteed, to whom and on what assumptions.
    trace : tuple of Round
        The rounds; empty where a method's proof covers the last iterate alone.
    plan : Plan
        The plan of the run.
    counts : Counts
        The work; nothing in a run given back from a complete checkpoint or a model file.
    geometry, health
        What the survey released of the rows' geometry and fitness; None without one. The geometry states its source.
    evidence : Evidence
        The released values of a surveyed run, for inference; None without a survey.
    prediction : Prediction
        Excess risk to expect: the plan's, or the one that followed from the released survey; None if there is none.
    """

    model: Model
    report: PrivacyReport
    trace: tuple[Round, ...]
    plan: Plan
    counts: Counts = Counts()
    geometry: Geometry | None = None
    health: Health | None = None
    evidence: Evidence | None = field(default=None, repr=False)
    prediction: Prediction | None = None

    def __post_init__(self) -> None:
        if self.geometry is not None:  # as private as the run: the report knows
            source = released_by(self.report.run_id, private=self.report.private)
            object.__setattr__(self, "geometry", replace(self.geometry, source=source))

    @cached_property
    def inference(self) -> Inference:
        """Standard errors and intervals, in the units of the model.

        Raises
        ------
        IntervalError
            If the released values do not support them.
        """
        return infer(self.evidence)

    def covariance(self, part: str = "total") -> Array:
        """Return the covariance of (coefficients, intercept): ``Inference.covariance``."""
        return self.inference.covariance(part)

    def standard_errors(self, part: str = "total") -> Array:
        """Return standard errors of (coefficients, intercept): ``Inference.standard_errors``."""
        return self.inference.standard_errors(part)

    def confidence_intervals(self, level: float = 0.95) -> Array:
        """Return intervals of (coefficients, intercept): ``Inference.confidence_intervals``."""
        return self.inference.confidence_intervals(level)

    def predict_interval(self, features: ArrayLike, level: float = 0.95) -> Array:
        """Return intervals of predicted probabilities or means: ``Inference.predict_interval``."""
        return self.inference.predict_interval(features, level)

    def summary(self, level: float = 0.95) -> str:
        """Return the table of the parameters: ``Inference.summary``."""
        return self.inference.summary(level)

    def __repr__(self) -> str:
        rounds = f"{self.report.rounds} rounds of {self.report.method}"
        return f"Result({rounds}, epsilon={self.report.epsilon:g}, delta={self.report.delta:g}; {self.report.headline})"


@dataclass
class Diagnostics:
    """NOT PRIVATE: tallies over the raw rows, for whoever may see the data.

    Pass one to ``train(..., diagnostics=)`` to have it filled; no result, report or file holds it.

    Attributes
    ----------
    rows : list of int
        Rows met, by round.
    clipped_rows : list of int
        Rows whose difference was shortened, by round.
    zeroed_rows : list of int
        Rows that were not finite or had no valid label and counted as zero, by round.
    """

    rows: list[int] = field(default_factory=list)
    clipped_rows: list[int] = field(default_factory=list)
    zeroed_rows: list[int] = field(default_factory=list)

    def note(self, clipped: Clipped) -> None:
        """Write down the tallies of one round."""
        self.rows.append(clipped.rows)
        self.clipped_rows.append(clipped.clipped_rows)
        self.zeroed_rows.append(clipped.zeroed_rows)

    def __repr__(self) -> str:
        return "Diagnostics(<not private>)"
