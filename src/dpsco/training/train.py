"""The loop: ask, answer, release, tell; one pass; everything that leaves it is private."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsco.algorithms import ALGORITHMS, AcceleratedSRGD
from dpsco.data.stream import Stream
from dpsco.errors import AccountError, InvalidArgument, one_of
from dpsco.files import canonical
from dpsco.oracles import Oracle, linear_oracle
from dpsco.oracles.parallel import one_blas_thread
from dpsco.planning.plan import Plan
from dpsco.privacy.account import Account
from dpsco.privacy.ledger import Ledger, MemoryLedger, open_folder
from dpsco.privacy.noise import check_key, derive, new_key
from dpsco.privacy.release import Channel
from dpsco.privacy.report import UNITS, PrivacyReport
from dpsco.problem import CustomLoss
from dpsco.training.progress import progress_bar
from dpsco.training.result import Diagnostics, Model, Result, Round
from dpsco.values import Array, Batch

__all__ = ["report_of", "train"]


def train(
    plan: Plan,
    stream: Stream,
    *,
    algorithm: str = "accelerated-srgd",
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

    Guarantee: model, trace, report, checkpointed releases and everything passed to ``on_round`` together satisfy
    the plan's budget. Cost: one read of the rows, two gradients each; memory of a chunk and a few p-vectors.
    """
    if not isinstance(plan, Plan):
        raise InvalidArgument("Expected plan to be a dpsco.Plan.")
    if not isinstance(stream, Stream):
        raise InvalidArgument("Expected stream to be a dpsco.stream(...): it is what guards the single pass.")
    method = ALGORITHMS[one_of("algorithm", algorithm, ALGORITHMS)]
    x0 = _start(plan, start)
    if key is not None and account is not None:
        raise AccountError(
            "A run with a given key is not private and cannot be charged to an account. Leave the key out."
        )
    own_oracle = oracle is not None
    if oracle is None:
        if isinstance(plan.problem.loss, CustomLoss):
            raise InvalidArgument("A CustomLoss needs its gradients: pass oracle=dpsco.PerExample(gradient).")
        oracle = linear_oracle(plan.problem, plan.n, slow_source=not stream.fast)
    run = {
        "plan": plan.to_dict(),
        "algorithm": algorithm,
        "start": hashlib.sha256(x0.tobytes()).hexdigest(),
        "seeded": key is not None,
        "noise": _noise_digest(plan),
    }
    with _ledger(plan, run, key, checkpoint, resume) as ledger:
        batches = stream.open(plan)
        if account is not None:
            account.charge(ledger.run_id, plan.budget)
        channel = Channel(plan.calibration, plan.noise_mechanism, plan.problem.parameters, ledger)
        state = method.start(plan, x0)
        trace = []
        calm = nullcontext() if own_oracle else one_blas_thread()
        with calm, progress_bar(plan.rounds, plan.batch_size, show=progress) as advance:
            for batch in batches:
                query = method.ask(plan, state)
                if channel.complete:
                    released = channel.stored(query.step)
                    _skip(batch)
                else:  # rounds released before a stop are answered again: other rows than theirs are refused
                    clipped = oracle.answer(query, batch)
                    _note(diagnostics, clipped)
                    released = channel.release(query, clipped)
                before = state
                state = method.tell(plan, state, released)
                trace.append(_round(before, state))
                if on_round is not None:
                    on_round(trace[-1])
                advance()
        channel.close()
        report = report_of(plan, stream, method, ledger.run_id, seeded=key is not None, own_oracle=own_oracle)
    model = Model.from_parameters(method.output(state), plan.problem)
    return Result(model=model, report=report, trace=tuple(trace), plan=plan)


@contextmanager
def _ledger(
    plan: Plan, run: dict[str, Any], key: bytes | None, checkpoint: str | Path | None, resume: bool
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
            Path(checkpoint), run, digest, plan.problem.parameters, plan.rounds, run_key, resume=resume
        ) as ledger:
            yield ledger


def _noise_digest(plan: Plan) -> str:
    """What the noise of a run is made of: another fit or calibration of it may not resume what this one began."""
    numbers = (*plan.noise_mechanism.errors, plan.calibration.sigma, plan.calibration.grid)
    return hashlib.sha256(",".join(f"{number:.6e}" for number in numbers).encode()).hexdigest()


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
    nabla = float(np.linalg.norm(after.nabla))
    return Round(step=before.step, gradient_norm=nabla, move=float(np.linalg.norm(after.x - before.x)))


@cache
def _versions() -> dict[str, str]:
    """Versions that the noise depends on; looked up once, since the look-up reads files."""
    return {"python": platform.python_version(), **{name: version(name) for name in ("dpsco", "numpy", "randomgen")}}


def report_of(
    plan: Plan, stream: Stream, method: AcceleratedSRGD, run_id: str, *, seeded: bool, own_oracle: bool
) -> PrivacyReport:
    """The report of a run of ``plan`` on the rows that ``stream`` has handed out."""
    budget, noise = plan.budget, plan.calibration
    if not budget.private:
        reason = "no noise was added (epsilon = inf)."
    elif seeded:
        reason = "the noise key was given by hand; whoever knows it can remove the noise. For research only."
    else:
        reason = "each row enters one clipped difference, and one Gaussian mechanism covers the whole run."
    oracle = "the caller's oracle clips every row as the contract of oracles says, and looks at one row at a time"
    clipping = "no assumption on the loss or on the distribution of the rows: privacy rests on clipping"
    planned = plan.rounds * plan.batch_size
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
        mechanism=plan.mechanism,
        rounds=plan.rounds,
        batch_size=plan.batch_size,
        rows_planned=planned,
        rows_missing=None if stream.rows_read is None else planned - stream.rows_read,
        rows_unread=None if available is None else max(0, available - planned),
        gradients_per_example=method.gradients_per_example,
        clip=plan.clip,
        noise_std=noise.sigma,
        sensitivity=plan.noise_mechanism.sensitivity,
        difference=noise.difference,
        slack=noise.slack,
        grid=noise.grid,
        assumptions=(
            "the plan's numbers (n, batch size, clip, norms, classes, radius, start) were fixed without looking at "
            "the rows",
            "each row reached one stream once, and rows of one person beyond `records` are not in it",
            "the operating system's randomness and AES are sound; timing and memory are not watched",
            clipping,
            *((oracle,) if own_oracle else ()),
        ),
        publishable=("the model and every iterate", "the released sums of every round", "this report and the plan"),
        never_publish=("noise keys and checkpoints' secret.json", "diagnostics, unclipped or un-noised sums"),
        versions=dict(_versions()),
        run_id=run_id,
    )
