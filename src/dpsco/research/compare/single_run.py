"""One run of one method: what to run, and its outcome.

A `SingleRun` holds everything a run depends on: the setting, the method with its options, multiples of its knobs, the
mechanism, the rounds, and the role and replicate that fix rows and key. Keys are fixed: these are research runs, and
their reports say "not private". The method "planned" stands for what ``dpsco.plan`` chooses: its options are arguments
of ``dpsco.plan``, its rounds are the most that it may use, and nothing is tuned.

Guarantee
---------
The same `SingleRun` gives the same `RunOutcome`, seconds aside. Tuning and scoring share neither rows nor keys. If a
method refuses a configuration (a step size that its proof does not allow), the refusal is the outcome. A missing
optional package is an error, never an outcome.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import inspect
import math
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import dpsco
from dpsco.errors import DpscoError, ExtraMissing, InvalidArgument, one_of
from dpsco.json_files import canonical, jsonable
from dpsco.methods import METHODS, Method
from dpsco.methods.method import RoundMethod
from dpsco.research.compare.evaluation_data import MOST_REPLICATES, ROLES, Setting, rows_for

__all__ = ["PLANNED", "Fields", "RunOutcome", "SingleRun", "code_digest", "execute", "key_for"]

PLANNED = "planned"
"""Stands for what ``dpsco.plan`` chooses."""

Fields = tuple[tuple[str, Any], ...]
"""Names with values: a mapping that can be hashed."""


@dataclass(frozen=True)
class SingleRun:
    """What to run, on the data of which replicate."""

    setting: Setting
    method: str
    rounds: int
    """Rounds, where the method is told their number."""
    role: str
    replicate: int
    options: Fields = ()
    """Fields of the method, or arguments of ``dpsco.plan``."""
    scales: Fields = ()
    """Factors on the default values of the knobs."""

    def __post_init__(self) -> None:
        one_of("role", self.role, ROLES)
        if not 0 <= self.replicate < MOST_REPLICATES:
            raise InvalidArgument(f"Expected replicate={self.replicate} from 0 to {MOST_REPLICATES - 1}.")

    def digest(self) -> str:
        """Return a digest of the run and of the source code of its method."""
        file = self.setting.file
        setting = dataclasses.replace(self.setting, file=None)
        fields = {
            **{name: getattr(self, name) for name in ("method", "rounds", "role", "replicate")},
            **{name: sorted(getattr(self, name)) for name in ("options", "scales")},
            "setting": dataclasses.asdict(setting),
            "file": None if file is None else file.digest,
            "code": code_digest(self.method),
        }
        return hashlib.sha256(canonical(jsonable(fields))).hexdigest()[:32]


@dataclass(frozen=True)
class RunOutcome:
    """The result of a run. ``score`` is the excess risk, or the test loss on a file; None if the method refused."""

    score: float | None
    accuracy: float | None = None
    gradients: int = 0
    steps: int = 0
    participation: int = 0
    mu: float | None = None
    seconds: float = 0.0
    """Processor time."""
    refused: str = ""

    @property
    def score_or_infinity(self) -> float:
        """The score; infinite if the method refused."""
        return math.inf if self.score is None else self.score


def execute(run: SingleRun) -> RunOutcome:
    """Train, then measure on rows that were not used for training."""
    rows = rows_for(run.setting, run.role, run.replicate)
    began = time.process_time()
    try:
        plan = plan_of(run)
        stream = dpsco.stream(rows.features, rows.labels)
        result = dpsco.train(plan, stream, key=key_for(run.role, run.replicate))
    except ExtraMissing:
        raise
    except DpscoError as refusal:
        return RunOutcome(score=None, refused=str(refusal), seconds=round(time.process_time() - began, 3))
    seconds = round(time.process_time() - began, 3)
    counts, model = result.counts, result.model
    reached = rows.measure(_parameters(model, plan.problem))
    return RunOutcome(
        score=reached["score"],
        accuracy=reached.get("accuracy"),
        gradients=counts.gradients,
        steps=counts.batch_steps,
        participation=counts.participation,
        mu=float(result.report.mu),
        seconds=seconds,
    )


def plan_of(run: SingleRun) -> dpsco.Plan:
    """Return the plan of the configured method, or what ``dpsco.plan`` chooses."""
    setting = run.setting
    if run.method == PLANNED:
        given: dict[str, Any] = {"rounds": run.rounds, **dict(run.options)}
        return dpsco.plan(setting.problem, n=setting.n, budget=setting.budget, **given)
    return dpsco.Plan(setting.problem, setting.n, setting.budget, configured(run))


def configured(run: SingleRun) -> Method:
    """Return the method with its options and its scaled hyperparameters."""
    kind, setting = METHODS[run.method], run.setting
    rounds = {"rounds": run.rounds} if issubclass(kind, RoundMethod) else {}
    method = kind(**{"clip": setting.problem.lipschitz, **rounds, **dict(run.options)})
    defaults = method.defaults(setting.problem, setting.n, setting.budget)
    scaled: dict[str, Any] = {name: scale * defaults[name] for name, scale in run.scales}
    return dataclasses.replace(method, **scaled)


def key_for(role: str, replicate: int) -> bytes:
    """Return the fixed noise key of a replicate. No two replicates share it."""
    return hashlib.sha256(f"dpsco compare, {role}, {replicate}".encode()).digest()


def _parameters(model: dpsco.Model, problem: dpsco.Problem) -> Any:
    import numpy as np

    coef = np.atleast_2d(model.coef)
    if problem.intercept:
        coef = np.hstack([coef, np.reshape(model.intercept, (-1, 1))])
    return coef.ravel()


@cache
def code_digest(method: str) -> str:
    """Return a digest of the files that define a method and its base classes, without comments and docstrings."""
    if method == PLANNED:  # the planner and whatever it may choose
        folders = (Path(inspect.getfile(part)).parent for part in (dpsco.plan, Method))
        files = sorted(path for folder in folders for path in folder.glob("*.py"))
        return hashlib.sha256("".join(map(_statements, files)).encode()).hexdigest()[:16]
    kinds = [kind for kind in METHODS[method].__mro__ if issubclass(kind, Method) and kind is not Method]
    paths = sorted({inspect.getfile(kind) for kind in kinds})
    return hashlib.sha256("".join(_statements(Path(path)) for path in paths).encode()).hexdigest()[:16]


def _statements(path: Path) -> str:
    """Return the statements of a file, without comments and docstrings."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_docstring(part)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_docstring(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
