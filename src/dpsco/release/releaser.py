"""Release: the only code that turns ``Clipped`` into ``Released``.

    released_t = D_t + round_grid(w_t) + U_t,    w_t = increment of B Z for round t, U_t a dither (float_noise.py)

Guarantee
    Over a run, the released values are mu-GDP (calibration.py, release/mechanisms/protocol.py) because
    * a round beyond the horizon is refused, because its noise is not accounted for;
    * one noise value is used for one release: the fingerprint of (run, query, sum) is recorded before the value is
      returned; the same request again returns the stored value; another request is refused;
    * the noise key and buffers exist only here and in the secret part of the ledger. A forked child loses them, and
      threads of one process release one after the other.
Cost
    O(p) plus the mechanism's own cost per round.
"""

from __future__ import annotations

import hmac
import itertools
import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import DataError, HorizonError, LedgerError
from dpsco.fork_safety import forget_in_children
from dpsco.query import _BY_RELEASE, Array, Clipped, Query, Released, to_grid
from dpsco.release.calibration import Calibration, Uneven
from dpsco.release.ledger import Ledger
from dpsco.release.long_vectors import digests
from dpsco.release.mechanisms.protocol import Mechanism, NoiseBuffers
from dpsco.release.noise import Normals, begin, bernoulli, derive, end, normals, positions

__all__ = ["Releaser"]


_TOGETHER, _NUMBERS = 32, 1 << 14
"""Most rounds whose noise is drawn together, and the most numbers of more than one round."""


class _Drawn(NamedTuple):
    """SECRET: the noise of the rounds before ``next`` that was drawn last, and the buffers of ``next``."""

    next: int
    buffers: NoiseBuffers
    noise: tuple[Array, ...]


class Releaser:
    """The secret noise state of one run, behind one public method: ``release``.

    Parameters
    ----------
    calibration : Calibration or Uneven
        Amount of noise.
    mechanism : Mechanism
        Correlation of the noise.
    dimension : int
        Length p of the sums.
    ledger : Ledger
        Record of the releases.
    replay : sequence of arrays, optional
        Released values of another run, returned instead of new ones, with which an audit compares two data sets.
        Such a run is not private, and ``Run`` marks its report accordingly.
    """

    def __init__(
        self,
        calibration: Calibration | Uneven,
        mechanism: Mechanism,
        dimension: int,
        ledger: Ledger,
        *,
        replay: Sequence[Array] | None = None,
    ) -> None:
        self._calibration = calibration
        self._mechanism = mechanism
        self._dimension = dimension
        self._ledger = ledger
        # What was drawn so far, at most one value. Whoever needs noise takes it out and puts the next one in.
        self._drawn: deque[_Drawn] = deque(maxlen=1)
        self._normals: Normals | None = None
        # A query and its fingerprint, begun: what is left is to add the sum. Used once, like the noise.
        self._begun: deque[tuple[Query, hmac.HMAC]] = deque(maxlen=1)
        self._replay = () if replay is None else replay
        # Re-entrant: an interrupt can leave it held, and the thread that was interrupted must be able to try again.
        self._one_at_a_time = threading.RLock()
        forget_in_children(self)

    def forget(self) -> None:
        """Drop the buffers in a forked child, and replace the lock, which a thread of the parent may hold."""
        self._drawn, self._begun, self._normals = deque(maxlen=1), deque(maxlen=1), None
        self._one_at_a_time = threading.RLock()

    @property
    def complete(self) -> bool:
        """Whether every round of the plan is released and the key erased."""
        return self._ledger.complete

    def stored(self, step: int) -> Released:
        """Return the released value of round ``step``. Raise LedgerError if there is none."""
        value = self._ledger.value(step)
        if value is None:
            raise LedgerError(f"Round {step} is not released yet.")
        return Released(step, value, by=_BY_RELEASE)

    def release(self, query: Query, clipped: Clipped) -> Released:
        """Add the noise of this round to the sum, once.

        Parameters
        ----------
        query : Query
            The query of the round.
        clipped : Clipped
            The oracle's answer to it.

        Returns
        -------
        Released

        Raises
        ------
        HorizonError
            If the round is beyond the plan's rounds.
        LedgerError
            If the round was already released for another query or sum, an earlier round is missing, or the query does
            not match the calibration.
        DataError
            If the sum is not a finite float64 vector of the right length.
        """
        with self._one_at_a_time:
            return self._release(query, clipped)

    def prepare(self, query: Query) -> None:
        """Draw the noise of a round and hash its query, beside the work on its rows: neither needs their sum.

        It does nothing while a release is under way: one that the handler of a signal interrupted to add rows waits for
        the handler, which waits for this call.
        """
        if not self._one_at_a_time.acquire(blocking=False):
            return
        try:
            self._ledger.check_process()
            step = query.step
            if len(self._replay) <= step < self._mechanism.horizon and self._ledger.value(step) is None:
                self._noise(step, self._calibration.at(step))
                self._begun.append((query, self._begin_fingerprint(query, digests(*query.points))))
        finally:
            self._one_at_a_time.release()

    def _release(self, query: Query, clipped: Clipped) -> Released:
        self._ledger.check_process()
        step = query.step
        if not 0 <= step < self._mechanism.horizon:
            raise HorizonError(
                f"Round {step} was requested, but the plan covers rounds 0 to {self._mechanism.horizon - 1}. "
                "Make a plan with more rounds."
            )
        paid = self._calibration.at(step)
        if (query.clip, query.grid, query.rowwise) != (paid.clip, paid.grid, paid.rowwise):
            raise LedgerError("The noise is calibrated for another clip, grid or rounding than the query's.")
        total = clipped.total
        if total.shape != (self._dimension,) or total.dtype != np.float64 or not _all_finite(total):
            raise DataError(
                f"Expected the oracle to return a finite float64 sum of {self._dimension} numbers. "
                "An oracle must clip every row and count non-finite rows as zero."
            )
        fingerprint = self._fingerprint(query, clipped)
        recorded = self._ledger.fingerprint(step)
        if recorded is None:
            self._ledger.record(step, fingerprint)
        elif not hmac.compare_digest(recorded, fingerprint):
            raise LedgerError(
                f"Round {step} was already released for another query or other rows. A second release with the same "
                "noise would reveal the difference. Start a new run (a new key and a new budget) instead."
            )
        if self._ledger.value(step) is not None:
            return self.stored(step)
        if step < len(self._replay):
            value = np.array(self._replay[step], dtype=np.float64)
        else:
            value = to_grid(clipped.total, paid.grid) + self._noise(step, paid)
        self._ledger.store(step, value)
        return Released(step, value, by=_BY_RELEASE)

    def sample(self, step: int, rows: int, rate: float) -> NDArray[np.int64]:
        """Sample each of ``rows`` rows for round ``step`` with probability ``rate``. SECRET, like the noise."""
        return bernoulli(self._ledger.key, step, rows, rate)

    def indices(self, step: int, part: int, rows: int, size: int) -> NDArray[np.int64]:
        """Return ``size`` uniform positions below ``rows`` for a randomised solver; privacy does not depend on them."""
        return positions(self._ledger.key, step, part, rows, size)

    def inner_normals(self, step: int, size: int) -> Array:
        """Return standard normals for the noise inside an objective. SECRET: the release of ``step`` depends on them.

        Guarantee: independent of all other noise of the run. Another objective with the same normals is never
        released: the fingerprint of its minimiser would differ.
        """
        return normals(derive(self._ledger.key, "objective"), step, size)

    def close(self) -> None:
        """Drop the noise state and erase the key, after the last round."""
        with self._one_at_a_time:
            self._drawn, self._begun, self._normals = deque(maxlen=1), deque(maxlen=1), None
            self._ledger.erase_key()

    def _noise(self, step: int, paid: Calibration) -> Array:
        if paid.sigma == 0.0:
            return np.zeros(self._dimension)
        drawn = self._drawn_before(step)
        while drawn.next <= step:  # a resumed run rebuilds the buffers from (key, 0 .. step)
            drawn = self._more(drawn)
        self._drawn.append(drawn)
        return drawn.noise[step - drawn.next]

    def _more(self, drawn: _Drawn) -> _Drawn:
        """Draw the noise of the next rounds together: after a round over many rows, each call begins in cold caches."""
        at, buffers, size, increments = drawn.next, drawn.buffers, self._dimension, []
        paid, most = self._calibration.at(at), min(_TOGETHER, _NUMBERS // size, self._mechanism.horizon - at)
        alike = itertools.takewhile(lambda i: self._calibration.at(at + i) is paid, range(1, most))
        count = 1 + sum(1 for _ in alike)
        rows: Array = np.empty((0, size))
        if self._mechanism.rows == self._mechanism.horizon:  # round t draws row t
            rows = self._draw(at, count)

        def draw(row: int) -> Array:
            return rows[row - at] if 0 <= row - at < len(rows) else self._draw(row, 1)[0]

        for step in range(at, at + count):
            own, buffers = self._mechanism.increment(buffers, step, draw)
            increments.append(own)
        together = np.array(increments) if count > 1 else increments[0][None]
        return _Drawn(at + count, buffers, tuple(self._dithered(to_grid(together, paid.grid), at, paid)))

    def _drawn_before(self, step: int) -> _Drawn:
        """Take what was drawn, which nobody else has: the mechanism may overwrite the buffers.

        An interrupt drops it, and the handler of a signal that releases too finds nothing. Either starts again at 0.
        """
        try:
            drawn = self._drawn.pop()
        except IndexError:
            drawn = _Drawn(0, self._mechanism.start(), ())
        gone = step < drawn.next - len(drawn.noise)  # drawn before, but not stored
        return _Drawn(0, self._mechanism.start(), ()) if gone else drawn

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A releaser holds the noise key and cannot be pickled or copied.")

    def __repr__(self) -> str:
        return "Releaser(<secret>)"

    def _draw(self, first: int, count: int) -> Array:
        """Return rows ``first .. first + count`` of Z, which have one deviation."""
        noise = self._source().rows(first, count, self._dimension)
        noise *= self._calibration.deviation(first)
        return noise

    def _source(self) -> Normals:
        if self._normals is None:
            self._normals = Normals(self._ledger.key)
        return self._normals

    def _dithered(self, noise: Array, step: int, paid: Calibration) -> Array:
        bits = round(math.log2(paid.window / paid.grid)) if paid.window > paid.grid else 0
        if bits:
            noise += self._source().dithers(step, len(noise), self._dimension, bits) * paid.grid
        return noise

    def _fingerprint(self, query: Query, clipped: Clipped) -> bytes:
        # Hash each vector, in parallel, then take the keyed hash of the digests: it is as hard to forge.
        known, begun = self._begun.pop() if self._begun else (None, None)
        if begun is not None and known is query:
            (total,) = digests(clipped.total)
        else:
            total, *points = digests(clipped.total, *query.points)
            begun = self._begin_fingerprint(query, points)
        return end(begun, total)

    def _begin_fingerprint(self, query: Query, points: list[bytes]) -> hmac.HMAC:
        return begin(self._ledger.key, "fingerprint", query.digest(points))


def _all_finite(vector: Array) -> bool:
    """Whether all numbers are finite. A finite sum of squares says so in one read; another may have overflowed."""
    return math.isfinite(vector.dot(vector)) or bool(np.isfinite(vector).all())
