"""Many studies at once over the cores of a machine, every finished run on disk.

Guarantee: what comes out does not depend on the number of processes or on the order in which runs end. A killed
comparison that is started again with the same store makes only the runs that are missing.
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

from dpsco.research.compare.store import Store
from dpsco.research.compare.study import Study, Tuned, studied
from dpsco.research.compare.trial import Outcome, Trial, run

__all__ = ["Pool", "opened_pool"]


@dataclass
class _Task:
    """A study under way: the runs it waits for, by their place in the list it asked for."""

    steps: Generator[list[Trial], list[Outcome], Any]
    outcomes: list[Outcome | None] = field(default_factory=list)
    result: Any = None


class Pool:
    """Runs trials in processes of one thread each, and remembers them in a store."""

    def __init__(self, executor: Any, store: Store, advance: Callable[[int], None]) -> None:
        self._executor, self._store, self._advance = executor, store, advance
        self.made = 0
        """Runs made by this pool, those found in the store aside."""

    def study(self, studies: Sequence[Study]) -> list[Tuned]:
        """The results of ``studies``, in their order."""
        return self._drive([studied(study) for study in studies])

    def runs(self, trials: Sequence[Trial]) -> list[Outcome]:
        """The outcomes of ``trials``, in their order."""

        def ask() -> Generator[list[Trial], list[Outcome], list[Outcome]]:
            return (yield list(trials))

        return self._drive([ask()])[0] if trials else []

    def _drive(self, generators: Sequence[Generator[list[Trial], list[Outcome], Any]]) -> list[Any]:
        waiting: dict[Future[Outcome], tuple[Trial, list[tuple[_Task, int]]]] = {}
        asked: dict[str, Future[Outcome]] = {}
        tasks = [_Task(steps) for steps in generators]
        for task in tasks:
            self._send(task, None, waiting, asked)
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                trial, places = waiting.pop(future)
                outcome = future.result()
                self._store.put(trial, outcome)
                del asked[trial.digest()]
                self.made += 1
                for task, place in places:
                    task.outcomes[place] = outcome
                    self._advance(1)
                    if None not in task.outcomes:
                        self._send(task, list(task.outcomes), waiting, asked)
        return [task.result for task in tasks]

    def _send(self, task: _Task, outcomes: Any, waiting: dict[Any, Any], asked: dict[str, Any]) -> None:
        """Hand outcomes to a study and start what it asks for next; runs in the store are answered at once."""
        while True:
            try:
                trials = task.steps.send(outcomes)
            except StopIteration as end:
                task.result = end.value
                return
            found = [self._store.get(trial) for trial in trials]
            task.outcomes = list(found)
            self._advance(sum(outcome is not None for outcome in found))
            if None not in found:
                outcomes = found
                continue
            for place, trial in enumerate(trials):
                if found[place] is None:
                    digest = trial.digest()
                    if digest not in asked:
                        asked[digest] = self._executor.submit(run, trial)
                        waiting[asked[digest]] = (trial, [])
                    waiting[asked[digest]][1].append((task, place))
            return


@contextmanager
def opened_pool(store: Store, jobs: int, advance: Callable[[int], None]) -> Iterator[Pool]:
    """A pool of ``jobs`` processes; they end when it closes, whatever the reason."""
    others = set(active_children())
    executor = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield Pool(executor, store, advance)
    except BaseException:
        for process in set(active_children()) - others:  # a run may take minutes, and nobody waits for it any more
            process.terminate()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """A process of the pool: one thread for its libraries, set before they read it, and no life after its parent."""
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told too, and ends its pool
    threading.Thread(target=_end_with, args=(parent_process(),), daemon=True).start()


def _end_with(parent: Any) -> None:
    """A killed parent leaves nobody to hand a result to, and a pipe that never closes."""
    parent.join()
    os._exit(1)
