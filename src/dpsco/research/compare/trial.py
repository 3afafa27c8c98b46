"""One run of one method: what it is, and what came out.

A trial is all that a run depends on: the setting, the method with its options, the multiples of its formula's knobs,
the plan's noise, the rounds, and whose data and key it takes (role and replicate). Keys are fixed by role and
replicate: these are research runs, and their reports say "not private".

Guarantee: the same trial gives the same outcome but for its seconds; tuning and scoring share neither rows nor keys.
A method that refuses a configuration (a step its proof does not allow) has the refusal as its outcome.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import inspect
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import dpsco
from dpsco.errors import DpscoError, InvalidArgument, one_of
from dpsco.json_files import canonical, jsonable
from dpsco.methods import ALGORITHMS, Algorithm
from dpsco.research.compare.settings import MOST_REPLICATES, ROLES, Setting, rows_for

__all__ = ["Fields", "Outcome", "Trial", "key_for", "run"]

Fields = tuple[tuple[str, Any], ...]
"""Names with values, in an order of their own: a mapping that can be hashed."""


@dataclass(frozen=True)
class Trial:
    """What to run."""

    setting: Setting
    algorithm: str
    rounds: int
    role: str
    replicate: int
    options: Fields = ()
    """Fields of the algorithm."""
    plan: Fields = ()
    """Fields of the plan: mechanism, z_step."""
    scales: Fields = ()
    """Multiples of the knobs' default values."""

    def __post_init__(self) -> None:
        one_of("role", self.role, ROLES)
        if not 0 <= self.replicate < MOST_REPLICATES:
            raise InvalidArgument(f"Expected replicate={self.replicate} from 0 to {MOST_REPLICATES - 1}.")

    def digest(self) -> str:
        """Of the trial and of the files that say what its method does."""
        file = self.setting.file
        setting = dataclasses.replace(self.setting, file=None)
        fields = {
            **{name: getattr(self, name) for name in ("algorithm", "rounds", "role", "replicate")},
            **{name: sorted(getattr(self, name)) for name in ("options", "plan", "scales")},
            "setting": dataclasses.asdict(setting),
            "file": None if file is None else file.digest,
            "code": _code(self.algorithm),
        }
        return hashlib.sha256(canonical(jsonable(fields))).hexdigest()[:32]


@dataclass(frozen=True)
class Outcome:
    """What came out: ``score`` is the excess risk, or the test loss on a file; None where the method refused."""

    score: float | None
    accuracy: float | None = None
    gradients: int = 0
    steps: int = 0
    participation: int = 0
    mu: float | None = None
    seconds: float = 0.0
    """Of the processor."""
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def run(trial: Trial) -> Outcome:
    """Train as ``trial`` says and measure on rows that were not trained on."""
    rows = rows_for(trial.setting, trial.role, trial.replicate)
    began = time.process_time()
    try:
        plan = _plan(trial)
        stream = dpsco.stream(rows.features, rows.labels)
        result = dpsco.train(plan, stream, algorithm=configured(trial, plan), key=key_for(trial.role, trial.replicate))
    except DpscoError as refusal:
        return Outcome(score=None, refused=str(refusal), seconds=round(time.process_time() - began, 3))
    seconds = round(time.process_time() - began, 3)
    counts, model = result.counts, result.model
    reached = rows.measure(_parameters(model, plan.problem))
    return Outcome(
        score=reached["score"],
        accuracy=reached.get("accuracy"),
        gradients=counts.gradients,
        steps=counts.batch_steps,
        participation=counts.participation,
        mu=float(result.report.mu),
        seconds=seconds,
    )


def configured(trial: Trial, plan: dpsco.Plan) -> Any:
    """The method with its options, its knobs at the trial's multiples of the formula's values."""
    method: Any = ALGORITHMS[trial.algorithm](**dict(trial.options))
    defaults = method.defaults(plan)
    return dataclasses.replace(method, **{name: scale * defaults[name] for name, scale in trial.scales})


def key_for(role: str, replicate: int) -> bytes:
    """The fixed noise key of a replicate: no two replicates, of one role or of two, share it."""
    return hashlib.sha256(f"dpsco compare, {role}, {replicate}".encode()).digest()


def _plan(trial: Trial) -> dpsco.Plan:
    problem, setting = trial.setting.problem, trial.setting
    settled = {"beta": problem.smoothness, "clip": problem.lipschitz, **dict(trial.plan)}
    return dpsco.Plan(problem, setting.n, setting.budget, rounds=trial.rounds, **settled)


def _parameters(model: dpsco.Model, problem: dpsco.Problem) -> Any:
    import numpy as np

    coef = np.atleast_2d(model.coef)
    if problem.intercept:
        coef = np.hstack([coef, np.reshape(model.intercept, (-1, 1))])
    return coef.ravel()


@cache
def _code(algorithm: str) -> str:
    """Digest of what a method does: the files of its class and of the methods it is made from, without their words."""
    kinds = [kind for kind in ALGORITHMS[algorithm].__mro__ if issubclass(kind, Algorithm) and kind is not Algorithm]
    paths = sorted({inspect.getfile(kind) for kind in kinds})
    return hashlib.sha256("".join(_statements(Path(path)) for path in paths).encode()).hexdigest()[:16]


def _statements(path: Path) -> str:
    """A file's statements: comments and strings that stand alone (docstrings) left out."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_words(part)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_words(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
