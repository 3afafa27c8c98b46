"""Release: an interrupt at any moment, then a retry, gives the noise of an undisturbed run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.release.small_releaser import calibrated, channel, query, total

import dpsco
from dpsco import (
    LedgerError,
)
from dpsco.query import Clipped, Query
from dpsco.release.ledger import Ledger, MemoryLedger, open_folder
from dpsco.release.noise import new_key
from dpsco.release.releaser import Releaser


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("name", ["sqrt", "tree", "independent"])
def test_an_interrupt_at_any_draw_then_a_retry_gives_the_noise_of_an_undisturbed_run(
    name: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception is raised before or after the draw of each round; the round is repeated with the same sum."""
    noise = calibrated(name, 8, 3)[1]
    calm = channel(name, 8, key=bytes(32))
    expected = [calm.release(query(t, noise), total(0.0)).value for t in range(8)]
    drawn = Releaser._draw
    monkeypatch.setattr("dpsco.release.releaser._TOGETHER", together)
    for strike in range(8):
        for after in (False, True):
            source = channel(name, 8, key=bytes(32))
            pending = [True]

            def draw(
                self: Releaser,
                first: int,
                count: int,
                pending: list[bool] = pending,
                strike: int = strike,
                after: bool = after,
            ) -> np.ndarray:
                value = drawn(self, first, count) if after else None
                if first <= strike < first + count and pending:
                    pending.clear()
                    raise Interrupted
                return drawn(self, first, count) if value is None else value

            monkeypatch.setattr(Releaser, "_draw", draw)
            for t in range(8):
                try:
                    value = source.release(query(t, noise), total(0.0)).value
                except Interrupted:
                    with pytest.raises(LedgerError):
                        source.release(query(t, noise), total(1.0))  # its noise is promised to the first sum
                    value = source.release(query(t, noise), total(0.0)).value
                assert np.array_equal(value, expected[t])
            monkeypatch.setattr(Releaser, "_draw", drawn)


@pytest.mark.parametrize("name", ["sqrt", "tree", "independent"])
def test_an_interrupt_between_any_two_lines_then_a_retry_gives_the_same_noise(name: str) -> None:
    """Every line of release and of the mechanism is interrupted once, as by a signal handler."""
    package = str(Path(dpsco.__file__).parent)
    noise = calibrated(name, 3, 3)[1]
    calm = channel(name, 3, key=bytes(32))
    expected = [calm.release(query(t, noise), total(0.0)).value for t in range(3)]
    for strike in range(1, 3000):
        source, lines = channel(name, 3, key=bytes(32)), [0]

        def trace(frame: object, event: str, _: object, lines: list[int] = lines, strike: int = strike) -> object:
            if not frame.f_code.co_filename.startswith(package):  # type: ignore[attr-defined]
                return None
            if event == "line":
                lines[0] += 1
                if lines[0] == strike:
                    raise Interrupted
            return trace

        before = sys.gettrace()
        interrupted = False
        sums, queries = [total(0.0) for _ in range(3)], [query(t, noise) for t in range(3)]
        values = []
        for t in range(3):
            sys.settrace(trace)
            try:
                value = source.release(queries[t], sums[t]).value
            except Interrupted:
                sys.settrace(before)
                interrupted = True
                value = source.release(queries[t], sums[t]).value
            finally:
                sys.settrace(before)
            values.append(value)
        assert np.array_equal(values, expected), strike
        if not interrupted:
            return
    pytest.fail("release has more lines than this test strikes")


@pytest.mark.parametrize(("name", "where"), [("sqrt", ""), ("tree", ""), ("blt", ""), ("blt", "release/ledger.py")])
def test_a_handler_that_releases_between_any_two_lines_gets_the_value_that_the_outer_call_gives(
    name: str, where: str, tmp_path: Path
) -> None:
    """One sum has one released value: in the handler of a signal, behind it, in the ledger and in the next rounds.

    Of a ledger on disk only its own lines are struck: it syncs its files some eight times in every trial.
    """
    struck, on_disk = str(Path(dpsco.__file__).parent / where), bool(where)
    strategy, noise = calibrated(name, 4, 3)
    for strike in range(1, 3000):
        with _ledger(tmp_path / f"{strike}" if on_disk else None) as ledger:
            source, lines, nested = Releaser(noise, strategy, 3, ledger), [0], []
            sums, queries = [total(float(t)) for t in range(4)], [query(t, noise) for t in range(4)]
            source.release(queries[0], sums[0])

            def trace(
                frame: object,
                event: str,
                _: object,
                lines: list[int] = lines,
                strike: int = strike,
                nested: list[np.ndarray] = nested,
                source: Releaser = source,
                queries: list[Query] = queries,
                sums: list[Clipped] = sums,
            ) -> object:
                if event == "line" and frame.f_code.co_filename.startswith(struck):  # type: ignore[attr-defined]
                    lines[0] += 1
                    if lines[0] == strike:
                        sys.settrace(None)  # the handler's own lines are not struck
                        nested.append(source.release(queries[1], sums[1]).value)
                        sys.settrace(trace)
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                value = source.release(queries[1], sums[1]).value
            except LedgerError:  # the handler recorded the round before the outer call did
                value = nested[0]
            finally:
                sys.settrace(before)
            assert np.array_equal(ledger.value(1), value), strike
            assert all(np.array_equal(other, value) for other in nested), strike
            for t in (2, 3):
                assert np.array_equal(source.release(queries[t], sums[t]).value, ledger.value(t)), strike
            assert ledger.value(4) is None
        if not nested:
            return
    pytest.fail("release has more lines than this test strikes")


@contextmanager
def _ledger(folder: Path | None) -> Iterator[Ledger]:
    if folder is None:
        yield MemoryLedger(new_key())
    else:
        with open_folder(folder, {}, "digest", 3, 4, new_key(), resume=False) as ledger:
            yield ledger
