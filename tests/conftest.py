"""Two things are added up over the whole suite, whichever worker ran a test: false alarms, and the marks of proof.

``false_alarms(alpha)`` books the rate at which a statistical test fails by chance; more than ``LIMIT`` in all fails the
run. Such tests draw fresh keys from the operating system. The keys of every other test come from its name, so that its
outcome is the same in every run; ``--fresh-keys`` draws them too and shows which bounds are too tight.
``mark_figure(number, text)`` notes what was measured for one of the twenty marks (proof_table.py); ``make test-slow``
ends with the table and writes it to build/marks.md.
"""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from _pytest.doctest import DoctestModule
from tests.optional_packages import pytest_pycollect_makemodule  # noqa: F401  (a hook)
from tests.proof_table import MARKS, marks_of

LIMIT = 1e-4
ROOT = Path(__file__).parents[1]

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy machine fails no example
hypothesis.settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fresh-keys", action="store_true", help="draw the keys of all tests from the operating system")


@pytest.fixture(autouse=True)
def keys_of_a_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of this process come from the name of the test, unless it books false alarms or tests keys themselves."""
    path = str(request.node.path)
    if request.config.option.fresh_keys or "false_alarms" in request.fixturenames or "tests/release/" in path:
        return
    source = random.Random(request.node.nodeid)  # noqa: S311  (not a secret)
    drawn = SimpleNamespace(token_bytes=source.randbytes, randbits=source.getrandbits)
    for module in ("dpsco.release.noise", "dpsco.estimators.base"):
        with contextlib.suppress(ImportError):  # without scikit-learn
            monkeypatch.setattr(f"{module}.secrets", drawn)


@pytest.fixture
def false_alarms(request: pytest.FixtureRequest) -> Callable[[float], float]:
    """Books alpha and returns it."""

    def book(alpha: float) -> float:
        request.node.user_properties.append(("false alarm", float(alpha)))
        return alpha

    return book


@pytest.fixture
def mark_figure(request: pytest.FixtureRequest) -> Callable[[int, str], None]:
    """Notes a figure for a mark."""

    def note(number: int, text: str) -> None:
        request.node.user_properties.append(("mark", [number, text]))

    return note


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect no doctests of tests: a failed import there would leave half a module, in which pytest finds no test."""
    found = yield
    return [collector for collector in found if not isinstance(collector, DoctestModule)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if marks_of(item.nodeid):
            item.add_marker(pytest.mark.proof)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """More false alarms than allowed is a failure of the suite, whoever caused it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput") and _alarms(reporter) > LIMIT:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    booked = _alarms(terminalreporter)
    if booked:
        terminalreporter.write_line(f"false alarms booked: {booked:.2g} of {LIMIT:g} per run")
    options = terminalreporter.config.option
    if "proof" not in str(options.markexpr) or options.collectonly:
        return
    lines = _table(terminalreporter)
    terminalreporter.section("marks of proof")
    for line in lines:
        terminalreporter.write_line(line)
    killed = _named(terminalreporter, "mutant")
    if killed:
        terminalreporter.section("mutants and what killed them")
        for name, killer in sorted(killed):
            terminalreporter.write_line(f"{name}: {killer}")
    page = ROOT / "build" / "marks.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _reports(reporter: Any, outcome: str) -> list[Any]:
    return [report for report in reporter.stats.get(outcome, []) if getattr(report, "when", "") in ("call", "setup")]


def _named(reporter: Any, wanted: str) -> list[Any]:
    """What tests have noted under a name."""
    reports = [r for outcome in ("passed", "failed") for r in _reports(reporter, outcome) if r.when == "call"]
    return [value for report in reports for name, value in report.user_properties if name == wanted]


def _alarms(reporter: Any) -> float:
    return float(sum(_named(reporter, "false alarm")))


def _table(reporter: Any) -> list[str]:
    counts: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    figures: dict[int, list[str]] = defaultdict(list)
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in _reports(reporter, outcome):
            if report.when == "setup" and outcome == "passed":
                continue
            for number in marks_of(report.nodeid):
                counts[number][outcome] += 1
            for name, value in report.user_properties if report.when == "call" else []:
                if name == "mark":
                    figures[value[0]].append(value[1])
    if exact := _named(reporter, "rows in exact arithmetic"):
        figures[9].insert(0, f"{sum(exact):,} rows, the longest as a share of the clip")
    if figures[12]:
        figures[12] = ["sums of neighbours apart, as a share of the declared difference", *sorted(figures[12])]
    if killed := _named(reporter, "mutant"):
        figures[13].append(f"{len(killed)} mutants killed")
    if fuzzed := _named(reporter, "fuzzed"):
        inputs = sum(count for _, count in fuzzed)
        figures[19].append(f"{inputs:,} fuzzed inputs over {len(fuzzed)} readers, no other error")
    lines = ["| mark | claim | measured | tests |", "|---|---|---|---|"]
    for number, (claim, _) in MARKS.items():
        found = counts[number]
        bad = found["failed"] + found["error"]
        tests = f"{found['passed']} passed" + (f", **{bad} FAILED**" if bad else "")
        tests += f", {found['skipped']} skipped" if found["skipped"] else ""
        measured = "; ".join(dict.fromkeys(figures[number])) or ("as claimed" if found["passed"] else "not run")
        lines.append(f"| {number} | {claim} | {measured} | {tests if found['passed'] or bad else '**none ran**'} |")
    return lines
