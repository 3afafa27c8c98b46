"""A federation that nobody answers does not end as a success, and a private count says so."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import ClassVar

import numpy as np
import pytest

import dpsco
from dpsco import Account, Budget
from dpsco.accounting import gaussian
from dpsco.engines.flower import Attendance, LocalNodes, presence, serve
from dpsco.engines.flower.presence import SHARE, Count, silent
from dpsco.errors import ClusterError
from dpsco.query import Clipped
from dpsco.release.releaser import Releaser

from .worlds import KEY, a_plan, devices, rows, spread

Book = Callable[[float], float]
PLAN = a_plan()
CLIENTS = devices(*rows())


class Nobody:
    """Nodes that fail: workers that cannot start, a path that is wrong."""

    def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes | None]]:
        yield from ((node, None) for node in range(3))


@pytest.mark.parametrize("unit", ["client", "example"])
@pytest.mark.parametrize("key", [None, KEY])
def test_nobody_answers_and_the_run_ends_in_an_error(unit: str, key: bytes | None) -> None:
    """A private run errs with probability 1 - 3e-5: released count below 4 sigma."""
    with pytest.raises(ClusterError, match="Nobody answered"):
        serve(PLAN, Nobody(), unit=unit, key=key)


def _fails(x: np.ndarray) -> np.ndarray:
    raise OSError("The rows are not where the device looks for them.")


@pytest.mark.parametrize("unit", ["client", "example"])
@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("clients", [{}, dict.fromkeys(CLIENTS, _fails)])
def test_nodes_that_answer_with_nothing_have_not_answered(unit: str, key: bytes | None, clients: dict) -> None:
    """They host nobody, or no client finds its rows: the model would be noise."""
    with pytest.raises(ClusterError, match="Nobody answered"):
        serve(PLAN, LocalNodes(spread(clients, 3)), unit=unit, key=key)


def test_a_client_without_rows_answers_where_a_row_is_protected() -> None:
    """With unit example no row may decide whether the run succeeds. With unit client there is nothing to answer."""
    features, labels, _ = rows()
    empty = dpsco.engines.flower.linear_gradients(PLAN.problem, features[:0], labels[:0])
    nodes = LocalNodes(spread(dict.fromkeys(CLIENTS, empty), 3))
    serve(PLAN, nodes, unit="example")
    with pytest.raises(ClusterError, match="Nobody answered"):
        serve(PLAN, nodes, unit="client")
    for kind in range(3):
        assert empty.survey((kind, 1.0, 0.0, 1, 2, 0.5, 0.5, 0.5)).shape[0] == 0


def test_a_run_that_is_answered_ends_well_and_its_report_names_the_count() -> None:
    result = serve(PLAN, LocalNodes(spread(CLIENTS, 3)))
    assert (result.report.epsilon, result.report.mu) == (PLAN.budget.epsilon, PLAN.budget.mu)
    assert any("private count" in line for line in result.report.assumptions)
    assert result.plan == PLAN


def test_training_and_count_together_have_the_budget() -> None:
    for plan in (PLAN, a_plan("replace"), a_plan("zero-out", epsilon=0.3)):
        count = Count(plan)
        paid = count.calibration
        spent = (paid.difference / paid.sigma, count.training.budget.mu)
        assert gaussian.compose(*spent) <= plan.budget.mu
        assert gaussian.compose(*spent) == pytest.approx(plan.budget.mu, rel=1e-3)
        assert spent[0] == pytest.approx(SHARE * plan.budget.mu, rel=1e-3)
        assert 1 <= paid.difference <= 1.01  # a client moves the count by one, under every adjacency


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-2), (0.3, 1e-6), (1.0, 1e-6), (8.0, 1e-6), (20.0, 1e-6)])
def test_both_parts_lose_no_more_to_float64_noise_than_the_whole_may(epsilon: float, delta: float) -> None:
    """(1 + e^epsilon) l is paid at the epsilon of the report. A large delta is no reason to refuse a federation."""
    plan = dataclasses.replace(PLAN, n=100_000, budget=Budget(epsilon, delta, "add-remove"))
    count = Count(plan)
    parts = (count.training.budget, presence._part(plan.budget, SHARE))
    assert sum(math.exp(part.log_float_loss) for part in parts) <= math.exp(plan.budget.log_float_loss) * (1 + 1e-12)
    assert gaussian.compose(*(part.mu for part in parts)) == pytest.approx(plan.budget.mu, rel=1e-8)
    assert gaussian.compose(*(part.mu for part in parts)) <= plan.budget.mu
    assert count.calibration.sigma > 0


def test_the_decision_rests_on_the_released_count_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the count's noise fixed by hand, a full house is refused and an empty one is not."""
    answered, empty = LocalNodes(spread(CLIENTS, 3)), Nobody()
    monkeypatch.setattr(Count, "release", lambda self, *_: 0.0)
    with pytest.raises(ClusterError):
        serve(PLAN, answered)
    monkeypatch.setattr(Count, "release", lambda self, *_: 1e6)
    serve(PLAN, empty)


def test_the_count_is_noised_by_release(false_alarms: Book) -> None:
    """N = 300 counts of 100 clients: mean within 6 standard errors; of 1e5 grid steps hardly any comes twice."""
    false_alarms(2e-9)
    count, sigma = Count(PLAN), Count(PLAN).calibration.sigma
    found = np.array([count.release(100, None, "run", os.getpid()) for _ in range(300)])
    assert abs(found.mean() - 100) < 6 * sigma / math.sqrt(300)
    assert len(set(found.tolist())) > 290
    assert 0.7 * sigma < found.std() < 1.3 * sigma


def test_too_few_clients_to_tell_is_said_and_not_guessed() -> None:
    plan = a_plan(n=8, rounds=4)
    assert not Count(plan).tells
    result = serve(plan, Nobody())
    assert any("cannot tell" in line for line in result.report.assumptions)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 8.0])
def test_when_it_tells_both_errors_are_rare(epsilon: float) -> None:
    count = Count(a_plan(n=100_000, epsilon=epsilon))
    sigma = count.calibration.sigma
    assert count.tells
    assert silent(3.9 * sigma, count)
    assert not silent(count.plan.n - 3.9 * sigma, count)


def test_an_account_is_charged_the_whole_budget_once(tmp_path: Path) -> None:
    account = Account.create(tmp_path / "people.json", limit=Budget(6.0, 1e-5, "add-remove"))
    nodes = LocalNodes(spread(CLIENTS, 3))
    serve(PLAN, nodes, account=account, checkpoint=tmp_path / "run")
    serve(PLAN, nodes, account=account, checkpoint=tmp_path / "run", resume=True)
    assert [run["mu"] for run in account.runs] == [PLAN.budget.mu]


class Stop(Exception):
    pass


@pytest.mark.parametrize("at", ["before the count", "after the count"])
def test_a_stop_around_the_count_releases_it_once(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed federation counts those who answered before the stop, and finds a count that was released."""
    released: list[float] = []
    original = Count.release

    def watched(self: Count, *given) -> float:
        if at == "before the count" and not released:
            released.append(math.nan)
            raise Stop
        released.append(original(self, *given))
        if len(released) == 1:
            raise Stop
        return released[-1]

    monkeypatch.setattr(Count, "release", watched)
    with pytest.raises(Stop):
        serve(PLAN, LocalNodes(spread(CLIENTS, 3)), checkpoint=tmp_path)
    result = serve(PLAN, Nobody(), checkpoint=tmp_path, resume=True)
    assert isinstance(result, dpsco.Result)
    assert not (tmp_path / "cohorts").exists()
    if at == "after the count":
        assert released[0] == released[1]


def test_no_raw_count_reaches_anything_but_release(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[float] = []
    original = Releaser.release

    def watched(self: Releaser, query: object, clipped: Clipped) -> object:
        if clipped.total.shape == (1,):
            sums.append(float(clipped.total[0]))
        return original(self, query, clipped)  # type: ignore[arg-type]

    monkeypatch.setattr(Releaser, "release", watched)
    serve(PLAN, LocalNodes(spread(CLIENTS, 3)))
    assert sums == [len(CLIENTS)]


def test_the_operator_sees_the_counts_of_every_round() -> None:
    lines: list[tuple[int, int]] = []
    seen = Attendance(on_round=lambda step, counts: lines.append((step, counts["failed"])))
    with pytest.raises(ClusterError):
        serve(PLAN, Nobody(), key=KEY, attendance=seen)
    assert lines == [(step, 3) for step in range(PLAN.rounds)]


@pytest.mark.parametrize("unit", ["client", "example"])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_federation_that_nobody_answered_stays_one(unit: str, key: bytes | None, tmp_path: Path) -> None:
    """The answers are erased at the end: the second call could not find by them that there were none."""
    for resume in (False, True, True):
        with pytest.raises(ClusterError, match="Nobody answered"):
            serve(PLAN, Nobody(), unit=unit, key=key, checkpoint=tmp_path, resume=resume)
    assert not (tmp_path / "cohorts").exists()


@pytest.mark.parametrize("unit", ["client", "example"])
@pytest.mark.parametrize("key", [None, KEY])
def test_an_answered_federation_is_given_back_although_nobody_answers_now(
    unit: str, key: bytes | None, tmp_path: Path
) -> None:
    first = serve(PLAN, LocalNodes(spread(CLIENTS, 3)), unit=unit, key=key, checkpoint=tmp_path)
    again = serve(PLAN, Nobody(), unit=unit, key=key, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(again.model.coef, first.model.coef)


# --- the app that needs no code ---------------------------------------------------------------


class FewNodes:
    """In place of Flower's: nodes in this process, or none."""

    timeout = 0.1
    nodes: ClassVar[list[dict]] = []

    def __init__(self, grid: object, timeout: float) -> None:
        self._there = LocalNodes(self.nodes)

    def wait(self, nodes: int, seconds: float) -> None:
        """All that will come are here."""

    def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes]]:
        return self._there.ask(query, step)


def the_app(folder: Path, monkeypatch: pytest.MonkeyPatch, nodes: list[dict], **more: object) -> None:
    from types import SimpleNamespace

    from dpsco.engines.flower import app

    (folder / "plan.json").write_text(PLAN.to_json())
    config = {"plan": str(folder / "plan.json"), "model": str(folder / "model.json"), "timeout": 0.1, **more}
    monkeypatch.setattr(FewNodes, "nodes", nodes)
    monkeypatch.setattr(app, "FlowerNodes", FewNodes)
    app.main(None, SimpleNamespace(run_config=config))  # type: ignore[arg-type]


def test_the_app_logs_counts_charges_an_account_and_writes_attendance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    account = Account.create(tmp_path / "people.json", limit=Budget(6.0, 1e-5, "add-remove"))
    files = {"account": str(account.path), "attendance": str(tmp_path / "counts.json")}
    the_app(tmp_path, monkeypatch, spread(CLIENTS, 3), **files)
    said = [line for line in capsys.readouterr().out.splitlines() if "NOT PRIVATE" in line]
    assert len(said) == PLAN.rounds
    assert all("counted" in line for line in said)
    assert [run["mu"] for run in account.runs] == [PLAN.budget.mu]
    assert (tmp_path / "model.json").exists()
    assert (tmp_path / "counts.json").stat().st_mode & 0o777 == 0o600


def test_an_app_that_nobody_answers_ends_in_an_error_and_writes_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ClusterError, match="Nobody answered"):
        the_app(tmp_path, monkeypatch, [])
    assert "nobody answered" in capsys.readouterr().out
    assert not (tmp_path / "model.json").exists()


def test_an_app_whose_model_cannot_be_written_says_so_before_it_asks_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(dpsco.InvalidArgument, match="Cannot write"):
        the_app(tmp_path, monkeypatch, spread(CLIENTS, 3), model=str(tmp_path / "file" / "model.json"))


@pytest.mark.parametrize("name", ["model", "attendance"])
@pytest.mark.parametrize("over", ["plan", "roster", "account", "checkpoint", "each other"])
def test_the_app_writes_over_nothing_that_it_reads(
    name: str, over: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account.create(tmp_path / "people.json", limit=Budget(6.0, 1e-5, "add-remove"))
    roster = tmp_path / "roster.json"
    roster.write_text("{}")
    given = {"plan": tmp_path / "plan.json", "roster": roster, "account": account.path}
    inside = {"checkpoint": tmp_path / "run" / "federation.json", "each other": tmp_path / "model.json"}
    files = {"account": str(account.path), "roster": str(roster), "checkpoint": str(tmp_path / "run")}
    files |= {"attendance": str(tmp_path / "counts.json")} | {name: str((given | inside)[over])}
    if over == "each other":
        files["attendance"] = str(tmp_path / "model.json")
    with pytest.raises(dpsco.InvalidArgument, match="would be lost|could be lost"):  # noqa: RUF043
        the_app(tmp_path, monkeypatch, spread(CLIENTS, 3), **files)
    assert not account.runs
    assert not (tmp_path / "run").exists()


def test_a_key_that_is_none_is_refused_without_being_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(dpsco.InvalidArgument, match="key= to be 64 hexadecimal digits") as refused:
        the_app(tmp_path, monkeypatch, spread(CLIENTS, 3), key="correct horse")
    assert "horse" not in str(refused.value)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("behind", ["_ended", "release", "new_key"])
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_fork_behind_the_last_round_does_not_release_the_count_a_second_time(
    behind: str, on_disk: bool, tmp_path: Path
) -> None:
    """The keys of training are erased then, and the count has none yet: the handler of a signal may fork in between."""
    read, write = os.pipe()

    def fork_once(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_name
        armed.extend([name] if name == "_ended" else [])
        if event == "call" and armed and name == behind:
            sys.setprofile(None)
            children.append(os.fork())

    children: list[int] = []
    armed: list[str] = []
    sys.setprofile(fork_once)
    try:
        serve(PLAN, LocalNodes(spread(CLIENTS, 3)), checkpoint=tmp_path / "run" if on_disk else None)
        outcome = b"released"
    except (dpsco.LedgerError, dpsco.CheckpointError):
        outcome = b"refused"
    finally:
        sys.setprofile(None)
    if children == [0]:
        os.write(write, outcome)
        os._exit(0)
    assert outcome == b"released"
    os.waitpid(children[0], 0)
    assert os.read(read, 20) == b"refused"
    os.close(read)
    os.close(write)
