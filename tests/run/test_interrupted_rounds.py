"""A round that was interrupted anywhere is finished by a second call: once, with its rows, note and evidence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.test_surveyed import BUDGET, KEY, PLAN, PROBLEM, N, data

import dpsco
import dpsco.run
from dpsco.query import Batch
from dpsco.run import Run
from dpsco.run.train import library_oracle

PLAIN = dpsco.Plan(PROBLEM, N, BUDGET, dpsco.AcceleratedSRGD(rounds=3, beta=1.0, clip=1.0))
_HERE = str(Path(dpsco.run.__file__).parent)
_LINES = {"finish_round", "tell", "_begin_round", "_enter_second_stage", "_release"}


class Interrupted(BaseException):
    pass


def finished(plan: dpsco.Plan, strike: int, *, signals: bool = False) -> tuple[Run, bool]:
    """A run whose strike-th line of what finishes a round is interrupted once, and whether there was such a line.

    ``signals``: in place of lines, the moments at which Python handles signals: calls, and returns of built-in calls.
    """
    rows, labels = data()
    struck, lines, before = False, [0], sys.gettrace()

    def profile(frame: Any, event: str, _: object) -> None:
        if frame.f_code.co_filename.startswith(_HERE) and event in ("call", "c_return"):
            lines[0] += 1
            if lines[0] == strike:
                raise Interrupted

    def trace(frame: Any, event: str, _: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE) or code.co_name not in _LINES | {"taken"}:
            return None
        if event == "line" and code.co_name in _LINES:
            lines[0] += 1
            if lines[0] == strike:
                raise Interrupted
        return trace

    run = Run(plan, oracle=library_oracle(plan), key=KEY)
    with run:
        for part in run.coming():
            asked = run.query
            run.absorb(Batch(asked.step, [(rows[part.first : part.last], labels[part.first : part.last])]))
            sys.setprofile(profile) if signals else sys.settrace(trace)
            try:
                run.finish_round()
            except Interrupted:
                sys.setprofile(None) if signals else sys.settrace(before)
                struck = True
                assert run.finish_round() == run.trace[-1]
            finally:
                sys.setprofile(None) if signals else sys.settrace(before)
    return run, struck


@pytest.mark.parametrize("signals", [False, True], ids=["lines", "signals"])
@pytest.mark.parametrize("plan", [PLAIN, PLAN], ids=["plain", "surveyed"])
def test_an_interrupt_at_any_moment_then_a_second_call_gives_the_same_run(plan: dpsco.Plan, signals: bool) -> None:
    """Also on the way back: the round is finished then, and a second call must not release the next one empty."""
    calm, _ = finished(plan, 0)
    expected = calm.result
    for strike in range(1, 1_000):
        run, struck = finished(plan, strike, signals=signals)
        result = run.result
        assert run.complete
        assert result.trace == expected.trace, strike
        assert [seen.step for seen in result.trace] == list(range(len(result.trace)))
        np.testing.assert_array_equal(result.model.coef, expected.model.coef)
        if expected.evidence is not None:
            np.testing.assert_array_equal(result.evidence.sums, expected.evidence.sums)
            np.testing.assert_array_equal(result.evidence.points, expected.evidence.points)
        if not struck:
            assert strike > 10
            return
    pytest.fail("a run has more lines than this test strikes")


def test_rows_that_come_after_the_release_of_their_round_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The round is out, and the next has not begun: the rows would be in neither."""
    rows, labels = data()
    run = Run(PLAIN, oracle=library_oracle(PLAIN), key=KEY)
    batch = Batch(0, [(rows[:400], labels[:400])])
    with run:
        run.absorb(batch)
        with monkeypatch.context() as patch:

            def interrupted() -> None:
                raise Interrupted

            patch.setattr(run, "_begin_round", interrupted)
            with pytest.raises(Interrupted):
                run.finish_round()
        with pytest.raises(dpsco.HorizonError, match="Call it again"):
            run.absorb(batch)
        assert run.finish_round() == run.trace[0]
        run.absorb(Batch(1, [(rows[400:800], labels[400:800])]))
        assert run.finish_round() == run.trace[1]
