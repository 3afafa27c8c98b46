"""Did anybody answer? A private count of the clients that were counted, which alone decides.

Whether a run ends in an error is an output. Decided by the raw count, it would tell whether the only client was there.

Statement
    A client is counted in one round, so it moves the number of counted clients by at most 1. A federation with noise
    gives ``SHARE`` of mu to that number, and the rest to training:

        mu_count = SHARE mu,    mu_training = sqrt(1 - SHARE^2) mu.

    Together they are mu-GDP: Gaussian mechanisms compose to the root of the sum of squares. With SHARE = 1/10 the noise
    of training grows by 0.5 %. At the epsilon of the whole, float64 noise loses no more in both than in one run.
Decision
    With sigma the noise of the count, the run ends in an error if the released count is below 4 sigma although
    plan.n > 8 sigma clients were planned for. Nobody answered: no error with probability 3e-5. All of n answered: an
    error with probability 3e-5. If plan.n is smaller, no private count can tell, and the report says so.
Not needed
    With ``unit="example"`` a row is protected, and whether its node sends a sum does not depend on a row: the number of
    sums decides, and the report says so. An answer without one is none: a node without clients of the round, or whose
    gradient functions all fail, has sent nothing to learn from. It rests on what the clipping of the clients rests on,
    too: a node hosts the same clients, and their gradient functions answer, whatever one row holds. A client without
    rows sends a sum of 0. A count with noise could not tell a handful of nodes from none. Without noise, or with a
    given key, nothing is private and the number of clients decides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from dpsco.accounting import gaussian
from dpsco.accounting.budget import Budget
from dpsco.errors import ClusterError
from dpsco.held_files import Held
from dpsco.planning.plan import Plan
from dpsco.query import Clipped, Query
from dpsco.release.calibration import Calibration, calibrate
from dpsco.release.ledger import Ledger, MemoryLedger, open_folder
from dpsco.release.mechanisms.independent import Independent
from dpsco.release.noise import derive, new_key
from dpsco.release.releaser import Releaser

__all__ = ["SHARE", "Count", "refuse_silence", "silent"]

SHARE = 0.1
"""Share of mu that the count has."""

_SURE = 4.0
_MOST = 1 << 40


@dataclass(frozen=True)
class Count:
    """The private count of a federation: how training pays for it, and its release."""

    plan: Plan

    @property
    def training(self) -> Plan:
        """The plan with the budget that the count leaves."""
        return dataclasses.replace(self.plan, budget=_part(self.plan.budget, math.sqrt(1.0 - SHARE * SHARE)))

    @property
    def calibration(self) -> Calibration:
        """Noise and grid of the count, paid from its share of the budget."""
        budget = _part(self.plan.budget, SHARE)
        clip = 1.0 / budget.clips_apart  # a client that is replaced moves the count by 1, not by 2
        return calibrate(budget, Independent(1), clip=clip, dimension=1, rows=_MOST)

    @property
    def tells(self) -> bool:
        """Whether the count of ``plan.n`` clients stands out from its noise."""
        return self.plan.n > 2.0 * _SURE * self.calibration.sigma

    def release(self, counted: int, folder: Held | None, run: str, process: int) -> float:
        """Return ``counted`` with noise, made once: a resumed federation finds the number of its ``run``."""
        paid = self.calibration
        query = Query(0, (np.zeros(1),), (1.0,), paid.clip, self.plan.n, paid.grid, paid.rowwise)
        with self._ledger(folder, run, process) as ledger:
            source = Releaser(paid, Independent(1), 1, ledger)
            if source.complete:
                return float(source.stored(0).value[0])
            released = source.release(query, Clipped(np.array([float(min(counted, _MOST))]), counted))
            source.close()
            return float(released.value[0])

    @contextmanager
    def _ledger(self, folder: Held | None, run: str, process: int) -> Iterator[Ledger]:
        digest = self.plan.digest()
        key = derive(new_key(), "count", digest)
        if folder is None:
            yield MemoryLedger(key, process=process)
        else:
            about = {"count of": digest, "run": run}
            with open_folder(folder / "count", about, digest, 1, 1, key, resume=True, process=process) as ledger:
                yield ledger


def refuse_silence(*, silent: bool) -> None:
    """Raise ``ClusterError`` if nobody answered."""
    if silent:
        raise ClusterError(
            "Nobody answered: the model is noise. The budget is spent. Check that nodes connect, find their rows, can "
            "start workers, and name clients by 1 to 64 of A-Z a-z 0-9 . _ : - ; the operator's log has the counts of "
            "every round (NOT PRIVATE)."
        )


def silent(released: float, count: Count) -> bool:
    """Whether a released count says that nobody answered."""
    return count.tells and released < _SURE * count.calibration.sigma


def _part(budget: Budget, share: float) -> Budget:
    """Return ``share`` of mu, at the point of its own curve where float64 noise may lose half of the whole's l.

    delta of the whole pays (1 + e^epsilon) l for the losses of both parts, at the epsilon of the whole. The smaller
    epsilon of a part at the same delta would allow it a loss that is larger by e^(epsilon - its own).
    """
    mu, allowed = share * budget.mu * (1.0 - 1e-12), budget.log_float_loss - math.log(2.0)

    def at(epsilon: float) -> Budget:
        return Budget(epsilon, min(gaussian.delta_of(mu, epsilon), budget.delta), budget.adjacency, budget.records)

    low = high = min(mu, budget.epsilon)
    while at(high).log_float_loss > allowed:
        low, high = high, 2.0 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if at(middle).log_float_loss > allowed else (low, middle)
    return at(high)
