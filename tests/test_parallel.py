"""A team of threads: each piece runs once, callbacks keep the order of the jobs, and errors are raised."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time

import numpy as np  # noqa: F401  (loads a BLAS)
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dpsco import parallel
from dpsco.parallel import beside, for_each, in_order, one_blas_thread, team


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


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_done_beside_a_job_is_done_once_by_a_helper_while_the_caller_works(threads: int) -> None:
    done: list[str] = []
    working, aside = threading.Event(), threading.Event()

    def task() -> None:
        assert working.wait(60)  # the caller has begun without the helper
        done.append(threading.current_thread().name)
        aside.set()

    def work(thread: int) -> None:
        if not thread:
            working.set()
            assert threads == 1 or aside.wait(60)

    with beside(task), team(threads) as share:
        for _ in range(3):
            share(work, lambda: None)
    with team(threads) as share:
        share(work, lambda: None)
    assert done == ["dpsco-1"] * (threads - 1)


def test_an_error_beside_a_job_is_raised_and_nothing_goes_on_behind() -> None:
    inside: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError

    def work(thread: int) -> None:
        inside.append(thread)
        time.sleep(0.05)  # the helper joins meanwhile, and fails
        inside.remove(thread)

    with pytest.raises(ZeroDivisionError), beside(fail), team(2) as share:
        share(work, lambda: None)
    assert not inside


def test_a_task_of_a_context_that_an_interrupt_ended_is_not_done_beside_another_job() -> None:
    """The interrupt came before the first statement of ``__exit__``."""
    done: list[int] = []
    context = beside(lambda: done.append(1))
    context.__enter__()
    del context
    with team(2) as share:
        share(lambda _: time.sleep(0.05), lambda: None)  # long enough for the helper to join
    assert not done


def test_a_job_that_an_interrupt_left_half_closed_is_closed_again() -> None:
    entered: list[int] = []
    job = parallel._Job(entered.append, lambda: None, None)
    job._left.release()  # an interrupt behind this line of ``close``
    job.abandon()
    job.enter(1)
    assert not entered


def test_for_each_takes_every_item_once() -> None:
    done: list[int] = []
    for_each(done.append, range(1000))
    assert sorted(done) == list(range(1000))


def test_for_each_raises_an_error_when_nobody_is_at_work_any_more() -> None:
    begun, ended = [], []

    def work(item: int) -> None:
        begun.append(item)
        if item == 3:
            raise ValueError("item 3")
        threading.Event().wait(0.01)
        ended.append(item)

    with pytest.raises(ValueError, match="item 3"):
        for_each(work, range(8))
    assert set(begun) == {*ended, 3}


def test_an_interrupt_of_a_caller_that_waits_leaves_nobody_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsco import parallel as threads

    began, left = threading.Event(), []
    wait = threads._Job.wait

    def interrupted(job: threads._Job) -> None:
        monkeypatch.setattr(threads._Job, "wait", wait)
        raise KeyboardInterrupt

    def work(thread: int) -> None:
        if thread == 0:
            assert began.wait(60)
            monkeypatch.setattr(threads._Job, "wait", interrupted)
            return
        began.set()
        threading.Event().wait(0.05)
        left.append(thread)

    with pytest.raises(KeyboardInterrupt), team(2) as share:
        share(work, lambda: None)
    assert left == [1]


def blas_threads() -> list[int]:
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


@pytest.fixture
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that tests before left for good, as a worker of a cluster does, are none of these tests'."""
    monkeypatch.setattr(parallel, "_LIMITED", parallel._Limited())


@pytest.mark.usefixtures("no_limits")
def test_blas_has_one_thread_inside_nested_limits_and_its_own_number_again_behind_them() -> None:
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            assert set(blas_threads()) == {1}
            with one_blas_thread():
                assert set(blas_threads()) == {1}
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {2}
        with pytest.raises(KeyError), one_blas_thread():
            raise KeyError
        assert set(blas_threads()) == {2}
        for_good = one_blas_thread()  # where no block ends it
        assert set(blas_threads()) == {1}
        for_good.__exit__()
        assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("no_limits")
def test_blas_has_one_thread_until_the_last_of_two_runs_in_two_threads_ends() -> None:
    ended, looked, seen = threading.Event(), threading.Event(), list[list[int]]()

    def second() -> None:
        with one_blas_thread():
            looked.set()
            assert ended.wait(60)
            seen.append(blas_threads())

    with threadpool_limits(2, user_api="blas"):
        thread = threading.Thread(target=second)
        with one_blas_thread():
            thread.start()
            assert looked.wait(60)
        ended.set()
        thread.join()
        assert [set(counts) for counts in seen] == [{1}]
        assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("no_limits")
def test_blas_has_one_thread_in_any_thread_whichever_limited_it_first() -> None:
    seen = list[list[int]]()

    def other() -> None:
        with one_blas_thread():
            seen.append(blas_threads())

    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert [set(counts) for counts in seen] == [{1}]
        assert set(blas_threads()) == {2}


def test_a_task_that_has_tasks_of_its_own_runs_them_by_itself() -> None:
    """With fewer workers than such tasks, all of them would wait for one that is free."""

    def outer(k: int) -> list[int]:
        return list(in_order([lambda i=i: 10 * k + i for i in range(5)], 2))  # type: ignore[misc]

    found: list[list[list[int]]] = []
    caller = threading.Thread(
        target=lambda: found.append(list(in_order([lambda k=k: outer(k) for k in range(8)], 2))),  # type: ignore[misc]
        daemon=True,
    )
    caller.start()
    caller.join(60)
    assert found == [[[10 * k + i for i in range(5)] for k in range(8)]]


def test_results_are_in_order_and_an_error_leaves_nothing_behind() -> None:
    ran: list[int] = []

    def task(k: int) -> int:
        if k == 3:
            raise ZeroDivisionError
        ran.append(k)
        return k

    tasks = [lambda k=k: task(k) for k in range(100)]  # type: ignore[misc]
    assert list(in_order(tasks[4:], 3)) == list(range(4, 100))
    ran.clear()
    with pytest.raises(ZeroDivisionError):
        list(in_order(tasks, 2))
    before = list(ran)
    threading.Event().wait(0.05)
    assert ran == before
    assert len(ran) <= 12  # four per thread are taken ahead, and as many again until the error is met


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_the_handler_of_a_signal_may_come_back() -> None:
    """It interrupts the caller anywhere, also where tasks are handed over."""
    inner: list[list[int]] = []

    def again(*_: object) -> None:
        inner.append(list(in_order([lambda i=i: i for i in range(20)], 2)))  # type: ignore[misc]

    before = signal.signal(signal.SIGALRM, again)
    late = threading.Timer(60.0, lambda: os.kill(os.getpid(), signal.SIGTERM))  # a deadlock ends the test run
    late.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        while len(inner) < 200:
            assert list(in_order([lambda i=i: i for i in range(50)], 2)) == list(range(50))  # type: ignore[misc]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        late.cancel()
    assert all(part == list(range(20)) for part in inner)
