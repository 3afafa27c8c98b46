"""One stage of a run: a plan with noise, ledger and state of its own. A plan without a survey has one, others two."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dpsco.clipping import MappedOracle, Oracle, RowMap, linear_oracle
from dpsco.errors import CheckpointError
from dpsco.held_files import Entry, Place
from dpsco.inference import Evidence
from dpsco.json_files import canonical, write_atomic
from dpsco.parallel import beside
from dpsco.planning.plan import Plan
from dpsco.planning.second_stage import SecondStage, second_stage
from dpsco.query import Array, Batch, Clipped, Query, Released
from dpsco.release.ledger import Ledger, MemoryLedger, open_folder
from dpsco.release.noise import derive, new_key
from dpsco.release.releaser import Releaser
from dpsco.run.result import Round
from dpsco.run.row_access import CountedRows

__all__ = ["Ledgers", "Stage", "State", "evidence_of", "rounds_behind"]

_BEGUN = "rounds.begun"
"""Empty file beside a survey: the rounds behind it have a key in a folder of their own, which must not be lost."""

State = Any
"""A method's own: it has ``step`` and ``x``."""

_LOST = "The checkpoint has lost files of the rounds behind its survey, or a key. Restore its folder from a copy."


class Stage:
    """The method's state between rounds, beside everything secret about the stage's noise.

    Parameters
    ----------
    plan : Plan
        What the stage runs.
    start : array
        x_0 of the stage.
    oracle : Oracle, optional
        Computes clipped sums; None if they are computed elsewhere.
    ledger : Ledger
        The stage's own.
    replay : sequence of arrays, optional
        Values to release in place of new ones (watch.py).
    behind : tuple of Round
        The rounds of the stage before, if there is one: a survey.
    row_map : RowMap, optional
        Turns the rows of a solver.
    """

    def __init__(
        self,
        plan: Plan,
        start: Array,
        oracle: Oracle | None,
        ledger: Ledger,
        replay: Sequence[Array] | None,
        behind: tuple[Round, ...] = (),
        row_map: RowMap | None = None,
    ) -> None:
        self.plan, self.method, self.schedule = plan, plan.method, plan.schedule
        self.ledger = ledger
        self.releaser = Releaser(
            self.schedule.calibration, self.schedule.mechanism, self.schedule.sum_length, ledger, replay=replay
        )
        self.restored = self.releaser.complete
        secrets = self.releaser
        bounded = self.method.needs == "convexity" and not self.schedule.survey_length  # a survey shortens rows itself
        self.rows = CountedRows(oracle, plan.problem, secrets.indices, bounded, secrets.inner_normals, row_map)
        self.state = self.method.start(self.schedule, start)
        self._behind = behind
        self._seen: list[Round] = []
        self._told: list[tuple[Array, Array]] = []

    @property
    def complete(self) -> bool:
        """Whether every round of the stage is released and stepped."""
        return bool(self.state.step == self.schedule.rounds)

    def answer(self, query: Query, batch: Batch) -> Clipped:
        """Return the sensitive answer of rows of the round."""
        portions = self.schedule.portions
        self.rows.at(None if portions is None else portions[query.step])
        # The caller's np.seterr would make errors and warnings of what a row holds.
        with np.errstate(all="ignore"), beside(partial(self.releaser.prepare, query)):
            return self.method.answer(self.schedule, query, batch, self.rows)

    def ask(self) -> Query:
        """Return what the next round asks."""
        return self.method.ask(self.schedule, self.state)

    def tell(self, released: Released) -> None:
        """Take the step that a release allows. After an interrupt the round counts with its notes, or not at all."""
        before = self.state
        after = self.method.tell(self.schedule, before, released)
        # Notes beyond the state do not count, and are replaced. The state is the last statement: no lock, no signal.
        if self.method.releases != "last iterate":
            self._seen[before.step :] = [_round(len(self._behind) + before.step, before, after)]
        if self._behind:
            self._told[before.step :] = [(before.x, released.value)]
        self.state = after

    @property
    def last(self) -> Round | None:
        """The last round; None before it, and where the method may not show it."""
        return self._seen[self.state.step - 1] if self._seen and self.state.step else None

    @property
    def trace(self) -> tuple[Round, ...]:
        """The rounds so far, with those behind which the stage is; none where the method may not show them."""
        return (*self._behind, *self._seen[: self.state.step])

    @property
    def told(self) -> list[tuple[Array, Array]]:
        """Point and released sum of each round so far; kept behind a survey, for inference."""
        return self._told[: self.state.step]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A run in progress holds rows and the noise key and is never pickled or copied.")

    def __repr__(self) -> str:
        return "Stage(<secret>)"


class Ledgers:
    """Opens the ledger of each stage of a run; ``resources`` closes them."""

    def __init__(self, resources: ExitStack, *, seeded: bool, watched: bool, resume: bool) -> None:
        self._resources, self._resume = resources, resume
        # Asked before a key is made: a fork from the handler of a signal, between the key and its ledger, owns no run.
        self._process = os.getpid()
        # Whoever resumes a seeded or watched run must say so again, or its report would call it private.
        self._about = {"seeded": seeded, "watched": watched}
        self._opened: dict[Place | str, Ledger] = {}

    def open(self, plan: Plan, about: dict[str, Any], folder: str | Place | None, master: bytes) -> Ledger:
        """Return the ledger of a stage, with a key of its own: another plan, start or stage has unrelated noise."""
        schedule = plan.schedule
        about = {**about, **self._about, "noise": schedule.noise_digest()}
        digest = hashlib.sha256(canonical(about)).hexdigest()
        key = derive(master, "run", digest)
        # One noise, one ledger: a call behind an error, or inside another one, finds the ledger open.
        if folder is None:
            return self._opened.setdefault(digest, MemoryLedger(key, process=self._process))
        place = folder if isinstance(folder, Entry) else Path(folder)
        if place not in self._opened:
            sizes = schedule.sum_length, schedule.rounds
            self._opened[place] = self._resources.enter_context(
                open_folder(place, about, digest, *sizes, key, resume=self._resume, process=self._process)
            )
            begun = self._opened[place]
            if (
                begun.folder is not None
                and begun.fingerprint(0) is None
                and (begun.folder / "rounds/secret.json").exists()
            ):
                self._resources.close()
                raise CheckpointError(_LOST)  # of a run that got further; a new one could not go on behind its survey
        return self._opened[place]


def evidence_of(plan: Plan, second: SecondStage | None, stage: Stage) -> Evidence | None:
    """Return what rounds behind a survey released so far; None without any, and before the first."""
    if second is None or not stage.told or not plan.method.single_epoch:
        return None
    points, sums = (np.stack(part) for part in zip(*stage.told, strict=True))
    return Evidence(plan, second, points, sums, stage.method.output(stage.state), complete=stage.complete)


def rounds_behind(
    survey: Stage,
    released: Array,
    ledgers: Ledgers,
    replay: Sequence[Array] | None,
    *,
    elsewhere: bool,
) -> tuple[SecondStage, Stage]:
    """Return the rounds that a released survey plans.

    Parameters
    ----------
    survey : Stage
        Released; its key is erased only if the whole run was complete on disk.
    released : array
        What it released.
    ledgers, replay
        As for the survey's own stage.
    elsewhere : bool
        Whether sums are computed elsewhere.

    Guarantee
    ---------
    The key of the rounds follows from that of the survey, so two ledgers of rounds behind one survey would add one
    noise to two sums. With a checkpoint the rounds are therefore in the folder that the survey's ledger holds, whatever
    its path has come to mean, and a note beside the survey's key says so before their first release.
    """
    second = second_stage(survey.plan, released)
    about = {
        "plan": survey.plan.to_dict(),
        "survey": hashlib.sha256(released.tobytes()).hexdigest(),
        "map": hashlib.sha256(canonical(second.map.to_dict())).hexdigest(),
        "method": second.plan.method.to_dict(),
        "start": hashlib.sha256(second.start.tobytes()).hexdigest(),
    }
    home = survey.ledger.folder
    if home is not None and (survey.restored or (home / _BEGUN).exists()):
        # The rounds have their key in their folder. A new ledger there would release its rows a second time.
        lost = not all((home / f"rounds/{name}").exists() for name in ("run.json", "secret.json"))
        if lost:
            raise CheckpointError(_LOST)
    master = new_key() if survey.restored else derive(survey.ledger.key, "rounds")
    oracle: Oracle | None = None
    later = second.plan
    solver = later.method.needs == "convexity"
    if not elsewhere and not solver:
        inner = linear_oracle(later.problem, later.n, squares=later.schedule.squares)
        oracle = MappedOracle(inner, second.map)
    ledger = ledgers.open(second.plan, about, None if home is None else home / "rounds", master)
    if survey.restored and not ledger.complete:
        raise CheckpointError(_LOST)  # without its key the survey cannot be compared with these rows
    if home is not None:
        write_atomic(home / _BEGUN, b"")
    return second, Stage(later, second.start, oracle, ledger, replay, survey.trace, second.map if solver else None)


def _round(step: int, before: State, after: State) -> Round:
    nabla, move = after.nabla, after.x - before.x
    length = 0.0 if nabla is None else math.sqrt(nabla.dot(nabla))
    return Round(step=step, gradient_norm=length, move=math.sqrt(move.dot(move)))
