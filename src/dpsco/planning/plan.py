"""The plan: a problem, a public number of rows, a budget and a method. It has seen no data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, positive_integer
from dpsco.json_files import canonical, jsonable
from dpsco.lazy import cached_property
from dpsco.methods import Method, Schedule, Surveyed, method_from_dict
from dpsco.planning.explain import explain
from dpsco.planning.prediction import Prediction
from dpsco.problem import CustomLoss, Problem
from dpsco.rows.layout import Layout

__all__ = ["Plan"]

FORMAT = 2


@dataclass(frozen=True)
class Plan:
    """Every public number of a run, fixed before the first row is read.

    Parameters
    ----------
    problem : Problem
        Loss, domain and dimension.
    n : int
        Public number of rows.
    budget : Budget
        The guarantee.
    method : Method
        The method with its hyperparameters, such as ``AcceleratedSRGD(rounds=16, clip=1.0)``.
    rule : str
        Name of the rule that chose the method's hyperparameters. Descriptive.
    prediction : Prediction, optional
        The predicted excess risk. Descriptive.

    Raises
    ------
    InvalidArgument
        If the method's proof does not cover the problem or the budget, or floating point cannot honour them.
    """

    problem: Problem
    n: int
    budget: Budget
    method: Method
    rule: str = "by hand"
    prediction: Prediction | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.problem, Problem):
            raise InvalidArgument("Expected problem to be a dpsco.Problem.")
        if not isinstance(self.budget, Budget):
            raise InvalidArgument("Expected budget to be a dpsco.Budget, such as Budget(epsilon=1.0, delta=1e-6).")
        if not isinstance(self.method, Method):
            raise InvalidArgument(
                "Expected method to be one of dpsco's methods with its hyperparameters, such as "
                "dpsco.AcceleratedSRGD(rounds=16, clip=1.0). dpsco.plan(..., method='dp-sgd') chooses them."
            )
        if not isinstance(self.rule, str):
            raise InvalidArgument("Expected rule to be the name of the rule that made the plan.")
        object.__setattr__(self, "n", positive_integer("n", self.n, "It is the public number of rows."))
        try:
            _ = self.schedule  # refuses what the method, floating point or the budget cannot honour
        except ArithmeticError:
            raise InvalidArgument(
                f"The numbers of this plan leave the range of float64 in the formulas of method={self.method.name!r}. "
                "Use a smaller radius, n or dimension, or hyperparameters closer to 1."
            ) from None

    # --- derived, all public ------------------------------------------------------------------

    @cached_property
    def schedule(self) -> Schedule:
        """Rows and noise of every round."""
        with np.errstate(all="ignore"):  # as in dpsco.plan
            return self.method.schedule(self.problem, self.n, self.budget)

    @property
    def rounds(self) -> int:
        """Adaptive rounds of the run: each asks once and releases once. With a survey, the most there can be."""
        return self.method.rounds if isinstance(self.method, Surveyed) else self.schedule.rounds

    @property
    def batch_size(self) -> int:
        """Rows per round; on average, where rounds differ."""
        if isinstance(self.method, Surveyed):
            return max(1, self.n // self.rounds)
        return self.schedule.mean_size

    @property
    def clip(self) -> float:
        """Bound on what one row contributes."""
        return self.method.clip

    @property
    def layout(self) -> Layout:
        """The public layout of the rows, for a stream."""
        custom = isinstance(self.problem.loss, CustomLoss)
        return Layout(
            rounds=self.rounds,
            batch_size=self.batch_size,
            portions=self.schedule.portions,
            width=None if custom else self.problem.dimension,
            labels=None if custom else self.problem.loss,
            adjacency=self.budget.adjacency,
            digest=self.digest(),
            places=self.n if isinstance(self.method, Surveyed) else self.rounds,
        )

    def predicting(self, prediction: Prediction) -> Plan:
        """Return the same plan with its predicted excess; the schedule, which takes milliseconds, is kept."""
        plan = object.__new__(Plan)
        plan.__dict__.update(self.__dict__, prediction=prediction)
        return plan

    @property
    def predicted_excess(self) -> float | None:
        """Expected excess risk, where the planner predicts one."""
        return None if self.prediction is None else self.prediction.total

    def explain(self) -> str:
        """Describe the plan in words."""
        return explain(self.schedule, self.method, self.rule, self.prediction)

    # --- files --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        budget = {field.name: getattr(self.budget, field.name) for field in dataclasses.fields(self.budget)}
        data = {
            "format": FORMAT,
            "problem": self.problem.to_dict(),
            "n": self.n,
            "budget": budget,
            "method": self.method.to_dict(),
            "rule": self.rule,
            "prediction": None if self.prediction is None else dataclasses.asdict(self.prediction),
        }
        plain: dict[str, Any] = jsonable(data)
        return plain

    def to_json(self) -> str:
        """Return the plan as JSON text; ``from_json`` reads it back."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Return the plan that ``to_dict`` wrote.

        Raises
        ------
        InvalidArgument
            If a field is missing, extra, or no possible value.
        """
        expected = {"format", *(field.name for field in dataclasses.fields(cls))}
        if not isinstance(data, Mapping) or set(data) != expected or repr(data["format"]) != repr(FORMAT):
            raise InvalidArgument(f"Not a plan of format {FORMAT}: fields are missing, extra or of another version.")
        try:
            budget = {**data["budget"]}
            if budget["epsilon"] == "inf":
                budget["epsilon"] = math.inf
            return cls(
                problem=Problem.from_dict(data["problem"]),
                n=data["n"],
                budget=Budget(**budget),
                method=method_from_dict(data["method"]),
                rule=data["rule"],
                prediction=None if data["prediction"] is None else Prediction(**data["prediction"]),
            )
        except InvalidArgument:
            raise
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise InvalidArgument(f"Not a plan: {error}.") from None

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan that ``to_json`` wrote; raises ``InvalidArgument`` if the text is none."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidArgument("Not a plan: the text is not JSON.") from None
        return cls.from_dict(data)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields alone: the version that reads them works out the schedule anew."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def digest(self) -> str:
        """SHA-256 of the plan: part of every noise key and fingerprint."""
        return hashlib.sha256(canonical(self.to_dict())).hexdigest()
