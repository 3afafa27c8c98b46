"""The plan: every public number of a run, fixed before the first row is read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpsco.accounting.budget import Budget
from dpsco.errors import InvalidArgument, one_of, positive, positive_integer
from dpsco.json_files import canonical, jsonable
from dpsco.planning.explain import explain
from dpsco.problem import CustomLoss, Problem
from dpsco.release.calibration import Calibration, calibrate
from dpsco.release.mechanisms import MECHANISMS, Mechanism, mechanism
from dpsco.rows.layout import Layout

__all__ = ["Z_STEPS", "Plan", "Prediction"]

FORMAT = 1
Z_STEPS = ("listed", "halved")
_CLIP_RANGE = (1e-100, 1e100)


@dataclass(frozen=True)
class Prediction:
    """Expected excess risk of the final iterate and what it is made of."""

    optimisation: float
    noise: float
    sampling: float

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise InvalidArgument(f"Expected {field.name} to be a number >= 0: it is a part of a predicted excess.")

    @property
    def total(self) -> float:
        return self.optimisation + self.noise + self.sampling


@dataclass(frozen=True)
class Plan:
    """T rounds of B fresh rows, the steps, the clip and the noise. Nothing in it depends on private data.

    ``z_step``: ``"listed"`` moves z by eta_t/beta as Algorithm 1 is printed, ``"halved"`` by eta_t/(2 beta)
    as its proof does. ``clip=math.inf`` is allowed only with ``Budget(epsilon=math.inf)``.
    """

    problem: Problem
    n: int
    budget: Budget
    rounds: int
    beta: float
    clip: float
    z_step: str = "halved"
    mechanism: str = "sqrt"
    batch_size: int = 0
    """B; n // rounds unless given. The remaining rows are never read."""
    adaptive: bool = False
    """Whether beta may fall, after the first round, to the curvature that released values show (adaptation.py)."""
    rule: str = "by hand"
    prediction: Prediction | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.problem, Problem):
            raise InvalidArgument("Expected problem to be a dpsco.Problem.")
        if not isinstance(self.budget, Budget):
            raise InvalidArgument("Expected budget to be a dpsco.Budget, such as Budget(epsilon=1.0, delta=1e-6).")
        put = object.__setattr__
        put(self, "n", positive_integer("n", self.n, "It is the public number of rows."))
        put(self, "rounds", positive_integer("rounds", self.rounds, "It is the number of batch gradient steps T."))
        if self.rounds > self.n:
            raise InvalidArgument(
                f"Expected rounds={self.rounds} <= n={self.n}: every round needs at least one fresh row. Use fewer "
                "rounds."
            )
        default = self.batch_size == 0
        size = self.n // self.rounds if default else self.batch_size
        put(self, "batch_size", positive_integer("batch_size", size, "It is the public number of rows per round."))
        if self.batch_size * self.rounds > self.n:
            raise InvalidArgument(
                f"Expected rounds={self.rounds} times batch_size={self.batch_size} <= n={self.n}: each row is used "
                "once."
            )
        put(
            self,
            "beta",
            positive("beta", self.beta, "It scales the steps; the smoothness of the loss is a safe choice."),
        )
        put(self, "clip", positive("clip", self.clip, "It bounds one row's weighted difference.", infinite=True))
        if math.isfinite(self.clip) and not _CLIP_RANGE[0] <= self.clip <= _CLIP_RANGE[1]:
            raise InvalidArgument(
                f"Expected clip={self.clip} between {_CLIP_RANGE[0]} and {_CLIP_RANGE[1]}. Rescale the data."
            )
        one_of("z_step", self.z_step, Z_STEPS)
        one_of("mechanism", self.mechanism, [*MECHANISMS, "auto"])
        if not isinstance(self.adaptive, bool):
            raise InvalidArgument(f"Expected adaptive={self.adaptive!r} to be True or False.")
        if not isinstance(self.rule, str):
            raise InvalidArgument("Expected rule to be the name of the rule that made the plan.")
        _ = self.calibration  # refuses what floating point or the budget cannot honour

    # --- derived, all public ------------------------------------------------------------------

    @cached_property
    def noise_mechanism(self) -> Mechanism:
        """The factorisation that correlates the noise, for this horizon."""
        return mechanism(self.mechanism, horizon=self.rounds, dimension=self.problem.parameters, z_step=self.z_step)

    @cached_property
    def calibration(self) -> Calibration:
        """sigma, grid and slack."""
        rows = self.n if self.budget.adjacency == "add-remove" else self.batch_size
        return calibrate(
            self.budget, self.noise_mechanism, clip=self.clip, dimension=self.problem.parameters, rows=rows
        )

    @property
    def layout(self) -> Layout:
        """What a stream needs to know of the plan."""
        custom = isinstance(self.problem.loss, CustomLoss)
        return Layout(
            rounds=self.rounds,
            batch_size=self.batch_size,
            portions=None,
            width=None if custom else self.problem.dimension,
            labels=None if custom else self.problem.loss,
            adjacency=self.budget.adjacency,
            digest=self.digest(),
        )

    @property
    def predicted_excess(self) -> float | None:
        """Expected excess risk, where the planner predicts one."""
        return None if self.prediction is None else self.prediction.total

    def explain(self) -> str:
        """The plan in words."""
        return explain(self)

    # --- files --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["problem"] = self.problem.to_dict()
        data["budget"] = {f.name: getattr(self.budget, f.name) for f in dataclasses.fields(self.budget)}
        data["prediction"] = None if self.prediction is None else dataclasses.asdict(self.prediction)
        plain: dict[str, Any] = jsonable({"format": FORMAT, **data})
        return plain

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        expected = {"format", *(field.name for field in dataclasses.fields(cls))}
        if not isinstance(data, Mapping) or set(data) != expected or repr(data["format"]) != repr(FORMAT):
            raise InvalidArgument(f"Not a plan of format {FORMAT}: fields are missing, extra or of another version.")
        values = {key: data[key] for key in expected - {"format"}}
        try:
            values["problem"] = Problem.from_dict(data["problem"])
            values["budget"] = Budget(**{**data["budget"], "epsilon": _read(data["budget"]["epsilon"])})
            values["clip"] = _read(data["clip"])
            values["prediction"] = None if data["prediction"] is None else Prediction(**data["prediction"])
        except InvalidArgument:
            raise
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise InvalidArgument(f"Not a plan: {error}.") from None
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidArgument("Not a plan: the text is not JSON.") from None
        return cls.from_dict(data)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields alone: noise is calibrated anew by whichever version reads them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def digest(self) -> str:
        """SHA-256 of the plan: part of every noise key and fingerprint."""
        return hashlib.sha256(canonical(self.to_dict())).hexdigest()


def _read(value: Any) -> Any:
    """A number as JSON holds it: infinity is a string there."""
    return math.inf if value == "inf" else value
