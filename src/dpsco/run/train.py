"""The loop: ask, answer, release, tell; one pass; everything that leaves it is private."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsco.accounting.account import Account
from dpsco.clipping import CompiledOracle, LinearOracle, Oracle, linear_oracle
from dpsco.errors import AccountError, InvalidArgument, one_of
from dpsco.json_files import canonical
from dpsco.methods import ALGORITHMS, Algorithm, Schedule
from dpsco.methods.method import GAUSSIAN
from dpsco.parallel import one_blas_thread
from dpsco.planning.plan import Plan
from dpsco.problem import CustomLoss
from dpsco.query import Array, Batch
from dpsco.release.ledger import Ledger, MemoryLedger, open_folder
from dpsco.release.noise import check_key, derive, new_key
from dpsco.release.releaser import Releaser
from dpsco.rows.stream import Stream
from dpsco.run.progress import progress_bar
from dpsco.run.report import UNITS, PrivacyReport
from dpsco.run.result import Diagnostics, Model, Result, Round
from dpsco.run.row_access import Waist

__all__ = ["report_of", "train"]


def train(
    plan: Plan,
    stream: Stream,
    *,
    algorithm: str | Algorithm = "accelerated-srgd",
    start: ArrayLike | None = None,
    oracle: Oracle | None = None,
    key: bytes | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    account: Account | None = None,
    progress: bool = False,
    on_round: Callable[[Round], None] | None = None,
    diagnostics: Diagnostics | None = None,
) -> Result:
    """Train in one pass, as ``plan`` says, on the rows of ``stream``.

    ``algorithm``
        a name, or one of ``dpsco.methods`` with options of its own. Some go over the rows more than once (then the
        stream must be of arrays), and some are private for convex losses only: ``docs/methods.md``.
    ``start``
        x_0, projected into the domain; 0 unless given. It must not depend on the rows of the stream.
    ``oracle``
        computes clipped sums; the loss of the plan decides unless given (``PerExample(gradient)`` takes any).
    ``key``
        32 bytes that fix the noise, for research: the report then says "not private".
    ``checkpoint``, ``resume``
        a folder that survives a killed process: after each round the release is on disk, and ``resume=True``
        with the same plan and a stream of the same rows goes on bit for bit; other rows are refused. A run
        that is complete is given back as it was, whatever the stream holds.
    ``account``
        an ``Account`` to charge before the first release.
    ``diagnostics``
        a ``Diagnostics`` to fill: NOT PRIVATE, for the eyes of whoever may see the data.

    Guarantee: model, trace, report, counts, checkpointed releases and everything passed to ``on_round`` together
    satisfy the plan's budget. Cost (of the default algorithm): one read of the rows, two gradients each; memory of a
    chunk and a few p-vectors.
    """
    if not isinstance(plan, Plan):
        raise InvalidArgument("Expected plan to be a dpsco.Plan.")
    if not isinstance(stream, Stream):
        raise InvalidArgument("Expected stream to be a dpsco.stream(...): it is what guards the single pass.")
    method = algorithm if isinstance(algorithm, Algorithm) else ALGORITHMS[one_of("algorithm", algorithm, ALGORITHMS)]()
    x0 = _start(plan, start)
    own_oracle = oracle is not None
    method.check(plan, own_oracle=own_oracle)
    schedule = method.schedule(plan)
    _check_uses(method, schedule, seeded=key is not None, account=account, checkpoint=checkpoint, on_round=on_round)
    if oracle is None:
        if isinstance(plan.problem.loss, CustomLoss):
            raise InvalidArgument("A CustomLoss needs its gradients: pass oracle=dpsco.PerExample(gradient).")
        oracle = _oracle(plan, stream, method)
    run = {
        "plan": plan.to_dict(),
        "algorithm": method.describe(),
        "start": hashlib.sha256(x0.tobytes()).hexdigest(),
        "seeded": key is not None,
        "noise": schedule.noise_digest(),
    }
    with _ledger(plan, run, key, checkpoint, resume, schedule.rounds) as ledger:
        channel = Releaser(schedule.calibration, schedule.mechanism, plan.problem.parameters, ledger)
        waist = Waist(oracle, plan.problem, channel.indices, bounded=method.needs == "convexity")
        portions = schedule.portions
        batches = stream.open(
            dataclasses.replace(plan.layout, portions=portions, label_rule=getattr(oracle, "label_rule", None)),
            channel.sample,
        )
        if account is not None:
            account.charge(ledger.run_id, plan.budget)
        state = method.start(plan, x0)
        trace = []
        # The library's oracles have threads of their own, which those of the matrix library would stand in the way of.
        calm = one_blas_thread() if isinstance(oracle, (CompiledOracle, LinearOracle)) else nullcontext()
        with calm, progress_bar(schedule.rounds, schedule.mean_size(plan), show=progress) as advance:
            for batch in batches:
                query = method.ask(plan, state)
                if channel.complete:
                    released = channel.stored(query.step)
                    if portions is None or portions[query.step].rate == 1.0:
                        _skip(batch)
                else:  # rounds released before a stop are answered again: other rows than theirs are refused
                    waist.at(None if portions is None else portions[query.step])
                    clipped = method.answer(plan, query, batch, waist)
                    _note(diagnostics, clipped)
                    released = channel.release(query, clipped)
                before = state
                state = method.tell(plan, state, released)
                if method.releases != "last iterate":
                    trace.append(_round(before, state))
                    if on_round is not None:
                        on_round(trace[-1])
                advance()
        channel.close()
        report = report_of(plan, stream, method, ledger.run_id, seeded=key is not None, own_oracle=own_oracle)
    model = Model.from_parameters(method.output(state), plan.problem)
    return Result(model=model, report=report, trace=tuple(trace), plan=plan, counts=waist.counts)


def _check_uses(
    method: Algorithm, schedule: Schedule, *, seeded: bool, account: Any, checkpoint: Any, on_round: Any
) -> None:
    """Refuse what the guarantee of the method does not cover."""
    if seeded and account is not None:
        raise AccountError(
            "A run with a given key is not private and cannot be charged to an account. Leave the key out."
        )
    if account is not None and schedule.accounting != GAUSSIAN:
        raise AccountError(
            f"An account adds up Gaussian-DP parameters, and algorithm={method.name!r} has none: its epsilon holds at "
            "one delta. Keep its runs out of the account and compose them with their accountant."
        )
    if method.releases == "last iterate" and (checkpoint is not None or on_round is not None):
        raise InvalidArgument(
            f"algorithm={method.name!r} may show its last iterate and nothing before it: a checkpoint holds the "
            "releases of every round and on_round shows them. Leave checkpoint and on_round out."
        )


def _oracle(plan: Plan, stream: Stream, method: Algorithm) -> Oracle:
    if method.needs == "convexity":  # its proof counts on float64 in every step
        return LinearOracle(plan.problem.loss, plan.problem.intercept)
    return linear_oracle(plan.problem, plan.n, slow_source=not stream.fast)


@contextmanager
def _ledger(
    plan: Plan, run: dict[str, Any], key: bytes | None, checkpoint: str | Path | None, resume: bool, rounds: int
) -> Iterator[Ledger]:
    digest = hashlib.sha256(canonical(run)).hexdigest()
    # Another plan, start or algorithm under the same master key has unrelated noise.
    run_key = derive(new_key() if key is None else check_key(key), "run", digest)
    if checkpoint is None:
        if resume:
            raise InvalidArgument("resume=True needs checkpoint=FOLDER: there is nothing to resume from.")
        yield MemoryLedger(run_key)
    else:
        with open_folder(
            Path(checkpoint), run, digest, plan.problem.parameters, rounds, run_key, resume=resume
        ) as ledger:
            yield ledger


def _start(plan: Plan, start: ArrayLike | None) -> Array:
    size = plan.problem.parameters
    x0 = np.zeros(size) if start is None else np.array(start, dtype=np.float64).ravel()
    if x0.size != size or not np.all(np.isfinite(x0)):
        raise InvalidArgument(f"Expected start to be {size} finite numbers, got {x0.size}.")
    return plan.problem.domain.project(x0)


def _skip(batch: Batch) -> None:
    """Pass over the rows of a run that is complete: nothing is released any more."""
    for _ in batch.chunks:
        pass


def _note(diagnostics: Diagnostics | None, clipped: Any) -> None:
    if diagnostics is not None:
        diagnostics.rows.append(clipped.rows)
        diagnostics.clipped_rows.append(clipped.clipped_rows)
        diagnostics.zeroed_rows.append(clipped.zeroed_rows)


def _round(before: Any, after: Any) -> Round:
    nabla, move = after.nabla, after.x - before.x
    length = 0.0 if nabla is None else math.sqrt(nabla.dot(nabla))
    return Round(step=before.step, gradient_norm=length, move=math.sqrt(move.dot(move)))


@cache
def _versions() -> dict[str, str]:
    """Versions that the noise depends on; looked up once, since the look-up reads files."""
    return {"python": platform.python_version(), **{name: version(name) for name in ("dpsco", "numpy", "randomgen")}}


def report_of(
    plan: Plan, stream: Stream, method: Algorithm, run_id: str, *, seeded: bool, own_oracle: bool
) -> PrivacyReport:
    """The report of a run of ``plan`` on the rows that ``stream`` has handed out."""
    budget, schedule = plan.budget, method.schedule(plan)
    noise = schedule.worst()
    if not budget.private:
        reason = "no noise was added (epsilon = inf)."
    elif seeded:
        reason = "the noise key was given by hand; whoever knows it can remove the noise. For research only."
    else:
        reason = method.reason
    oracle = "the caller's oracle clips every row as the contract of oracles says, and looks at one row at a time"
    planned = schedule.rows(plan)
    available = stream.rows_available
    return PrivacyReport(
        private=budget.private and not seeded,
        reason=reason,
        mu=budget.mu,
        epsilon=budget.epsilon,
        delta=budget.delta,
        adjacency=budget.adjacency,
        records=budget.records,
        unit=UNITS[budget.adjacency],
        algorithm=method.name,
        needs=method.needs,
        releases=method.releases,
        accounting=schedule.accounting,
        mechanism=plan.mechanism if schedule.mechanism is plan.noise_mechanism else schedule.mechanism.name,
        rounds=schedule.rounds,
        batch_size=schedule.mean_size(plan),
        sampling=schedule.words or "one pass",
        rows_planned=planned,
        rows_missing=None if stream.rows_read is None else planned - stream.rows_read,
        rows_unread=None if available is None else max(0, available - planned),
        gradients_per_example=method.gradients_each(plan),
        clip=noise.clip,
        noise_std=noise.sigma,
        sensitivity=schedule.sensitivity,
        difference=noise.difference,
        slack=noise.slack,
        grid=noise.grid,
        assumptions=(
            "the plan's numbers (n, batch size, clip, norms, classes, radius, start) were fixed without looking at "
            "the rows",
            "each row reached one stream once, and rows of one person beyond `records` are not in it",
            "the operating system's randomness and AES are sound; timing and memory are not watched",
            *method.assumptions(),
            *((oracle,) if own_oracle else ()),
        ),
        publishable=(*_PUBLISHABLE[method.releases], "this report and the plan"),
        never_publish=("noise keys and checkpoints' secret.json", "diagnostics, unclipped or un-noised sums"),
        versions=dict(_versions()),
        run_id=run_id,
    )


_PUBLISHABLE = {
    "all iterates": ("the model and every iterate", "the released sums of every round"),
    "phase outputs": ("the model and the released output of every phase, and no iterate in between",),
    "last iterate": ("the model, which is the last iterate, and no iterate before it",),
}
