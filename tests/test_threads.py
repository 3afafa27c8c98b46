"""A team of threads: every piece is taken once, what follows a job keeps the order, and errors come out."""

from __future__ import annotations

import itertools
import threading

import pytest

from dpsco.oracles.parallel import team
from dpsco.threads import for_each


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_piece_is_taken_once_and_jobs_are_followed_up_in_order(threads: int) -> None:
    taken: list[tuple[int, int]] = []
    followed: list[int] = []
    with team(threads) as share:
        for job in range(20):
            pieces = itertools.count()

            def work(thread: int, job: int = job, pieces: itertools.count[int] = pieces) -> None:
                while (piece := next(pieces)) < 50:
                    taken.append((job, piece))

            share(work, lambda job=job: followed.append(job))  # type: ignore[misc]
    assert sorted(taken) == [(job, piece) for job in range(20) for piece in range(50)]
    assert followed == list(range(20))


def test_an_error_in_a_helper_is_raised_and_nothing_goes_on_behind() -> None:
    inside, began = [], threading.Event()

    def work(thread: int) -> None:
        if thread == 0:
            assert began.wait(60)
            return
        began.set()
        inside.append(thread)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), team(2) as share:
        share(work, lambda: inside.append(-1))
    assert inside == [1]


def test_an_error_of_the_caller_waits_for_helpers_that_are_inside() -> None:
    began, left = threading.Event(), []

    def work(thread: int) -> None:
        if thread == 0:
            assert began.wait(60)
            raise KeyboardInterrupt
        began.set()
        threading.Event().wait(0.05)
        left.append(thread)

    with pytest.raises(KeyboardInterrupt), team(2) as share:
        share(work, lambda: None)
    assert left == [1]


def test_for_each_does_all_and_raises_the_first_error() -> None:
    done = set()

    def work(item: int) -> None:
        done.add(item)
        if item in (3, 5):
            raise ValueError(str(item))

    with pytest.raises(ValueError, match="3"):
        for_each(work, range(8))
    assert done == set(range(8))
