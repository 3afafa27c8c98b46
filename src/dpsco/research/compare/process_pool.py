"""Many tuning tasks at once on the cores of a machine; every finished run is kept on disk.

Guarantee
---------
Results do not depend on the number of processes or on the order in which runs end. An interrupted comparison that is
started again with the same cache makes only the missing runs.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context, parent_process
from typing import Any

from dpsco.research.compare.run_cache import RunCache
from dpsco.research.compare.single_run import RunOutcome, SingleRun, execute
from dpsco.research.compare.tuning import TunedMethod, TuningTask, tune

__all__ = ["RunPool", "initialise_worker", "open_pool"]

Steps = Generator[list[SingleRun], list[RunOutcome], Any]


@dataclass
class _Job:
    """A generator that asks for runs, and the outcomes that have arrived for its last request."""

    steps: Steps
    outcomes: list[RunOutcome | None] = field(default_factory=list)
    result: Any = None


class RunPool:
    """Executes runs in single-threaded processes and keeps their outcomes in a cache."""

    def __init__(self, executor: Any, cache: RunCache, advance: Callable[[int], None]) -> None:
        self._executor, self._cache, self._advance = executor, cache, advance
        self.made = 0
        """Runs executed by this pool; runs found in the cache do not count."""

    def tune(self, tasks: Sequence[TuningTask]) -> list[TunedMethod]:
        """Return the tuned methods in the order of ``tasks``."""
        return self._complete([tune(task) for task in tasks])

    def execute(self, runs: Sequence[SingleRun]) -> list[RunOutcome]:
        """Return the outcomes in the order of ``runs``."""

        def ask() -> Generator[list[SingleRun], list[RunOutcome], list[RunOutcome]]:
            return (yield list(runs))

        return self._complete([ask()])[0] if runs else []

    def _complete(self, generators: Sequence[Steps]) -> list[Any]:
        waiting: dict[Future[RunOutcome], tuple[SingleRun, list[tuple[_Job, int]]]] = {}
        submitted: dict[str, Future[RunOutcome]] = {}
        jobs = [_Job(steps) for steps in generators]
        for job in jobs:
            self._send(job, None, waiting, submitted)
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                run, places = waiting.pop(future)
                outcome = future.result()
                self._cache.put(run, outcome)
                del submitted[run.digest()]
                self.made += 1
                for job, place in places:
                    job.outcomes[place] = outcome
                    self._advance(1)
                    if None not in job.outcomes:
                        self._send(job, list(job.outcomes), waiting, submitted)
        return [job.result for job in jobs]

    def _send(self, job: _Job, outcomes: Any, waiting: dict[Any, Any], submitted: dict[str, Any]) -> None:
        """Send outcomes to a job and submit the runs it asks for next; cached runs are answered at once."""
        while True:
            try:
                runs = job.steps.send(outcomes)
            except StopIteration as end:
                job.result = end.value
                return
            known = [self._cache.get(run) for run in runs]
            job.outcomes = list(known)
            self._advance(sum(outcome is not None for outcome in known))
            if None not in known:
                outcomes = known
                continue
            for place, run in enumerate(runs):
                if known[place] is None:
                    digest = run.digest()
                    if digest not in submitted:
                        submitted[digest] = self._executor.submit(execute, run)
                        waiting[submitted[digest]] = (run, [])
                    waiting[submitted[digest]][1].append((job, place))
            return


@contextmanager
def open_pool(cache: RunCache, processes: int, advance: Callable[[int], None]) -> Iterator[RunPool]:
    """Open a pool; its processes end when it closes, also after an error."""
    others = set(active_children())
    executor = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=initialise_worker)
    try:
        yield RunPool(executor, cache, advance)
    except BaseException:
        for process in set(active_children()) - others:  # do not wait for runs that may take minutes
            process.terminate()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def initialise_worker() -> None:
    """Limit a worker to one thread, before its libraries read the limit, and end it with its parent."""
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives it too and closes the pool
    threading.Thread(target=_exit_with, args=(parent_process(),), daemon=True).start()


def _exit_with(parent: Any) -> None:
    """Exit when the parent ends: after a kill of the parent the pipe to it never closes."""
    parent.join()
    os._exit(1)
