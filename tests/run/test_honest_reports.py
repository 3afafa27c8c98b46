"""A report never promises more than its run gives, whatever is passed to the run."""

from __future__ import annotations

import ctypes
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsco
from dpsco.clipping import CompiledOracle, PerExample
from dpsco.pages.guarantee_in_words import guarantee_in_words, headline_in_words
from dpsco.query import Clipped
from dpsco.rows.file_stream import FileRows, Labels
from dpsco.run import Run, watching
from dpsco.run.facts import Clipping, Facts
from dpsco.run.report import PrivacyReport
from dpsco.run.result import Round
from dpsco.run.train import library_oracle

PROBLEM = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), 3)
BUDGET = dpsco.Budget(1.0, 1e-6)
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-0.5, 0.5, (64, 3)), RNG.integers(0, 2, 64).astype(float)


def capped(stream: Any, cap: tuple[int, str | None] | None) -> Any:
    """As rows come whose ids somebody counts."""
    stream.cap = cap
    return stream


def plan(budget: dpsco.Budget = BUDGET) -> dpsco.Plan:
    return dpsco.Plan(PROBLEM, 64, budget, dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0))


@pytest.mark.parametrize(
    ("run", "stated"),
    [
        (dpsco.Budget(float("inf"), 1e-6), dpsco.Budget(0.5, 1e-6)),
        (dpsco.Budget(20.0, 1e-6), dpsco.Budget(0.1, 1e-6)),
        (dpsco.Budget(1.0, 1e-6), dpsco.Budget(1.0, 1e-6, "replace")),
    ],
)
def test_facts_cannot_state_a_smaller_budget_than_the_plan(run: dpsco.Budget, stated: dpsco.Budget) -> None:
    with pytest.raises(dpsco.InvalidArgument, match="facts"):
        dpsco.train(plan(run), dpsco.stream(X, Y), facts=Facts(budget=stated))


def test_a_watched_run_stays_not_private_when_it_is_resumed(tmp_path: Path) -> None:
    account = dpsco.Account.create(tmp_path / "account.json", dpsco.Budget(3.0, 1e-6))
    with watching(replay=[np.full(3, 2.0)] * 4):
        dpsco.train(plan(), dpsco.stream(X, Y), checkpoint=tmp_path / "run")
    with pytest.raises(dpsco.CheckpointError, match="another run"):
        dpsco.train(plan(), dpsco.stream(X, Y), checkpoint=tmp_path / "run", resume=True)
    with watching(lambda *_: None), pytest.raises(dpsco.AccountError, match="watched"):
        dpsco.train(plan(), dpsco.stream(X, Y), account=account)


def test_a_run_states_who_clips() -> None:
    unclipped = PerExample(lambda x, features, label: 1e6 * features)
    elsewhere = (Run(plan(), oracle=None), Run(plan(), oracle=None, facts=Facts()))
    for run in (*elsewhere, Run(plan(), oracle=unclipped), Run(plan(), oracle=unclipped, facts=Facts())):
        assert any("the caller's oracle" in line for line in run.report.assumptions)
    library = Run(plan(), oracle=dpsco.LinearOracle(dpsco.Logistic()))
    assert not any("the caller's oracle" in line for line in library.report.assumptions)
    convex = dpsco.plan(PROBLEM, n=64, budget=BUDGET, method="phased-sgd")
    sine = dpsco.LinearOracle(dpsco.Logistic(), slope=lambda score, label: -np.sin(50 * score))
    for oracle in (unclipped, sine, CompiledOracle(dpsco.Logistic(), slope=sine.slope)):
        with pytest.raises(dpsco.InvalidArgument, match="convex"):
            Run(convex, oracle=oracle)


def test_a_live_checkpoint_has_one_writer_whatever_file_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Run(plan(), oracle=None, checkpoint=folder):
        for file in folder.iterdir():
            if "lock" in file.name:
                file.unlink()
        with pytest.raises(dpsco.CheckpointError, match="in use"):
            Run(plan(), oracle=None, checkpoint=folder, resume=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_that_python_is_not_told_of_releases_nothing() -> None:
    run = Run(plan(), oracle=None)
    read, write = os.pipe()
    child = ctypes.CDLL(None).fork()
    if child == 0:
        try:
            run.absorb_sum(Clipped(np.ones(3), 16))
            run.finish_round()
            os.write(write, b"released")
        except dpsco.LedgerError:
            os.write(write, b"refused")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"refused"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_a_grandchild_is_told_that_it_is_a_fork() -> None:
    run = Run(plan(), oracle=None)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild:
            os.waitpid(grandchild, 0)
            os._exit(0)
        try:
            run.finish_round()
        except dpsco.LedgerError as error:
            os.write(write, b"fork" if "fork of" in str(error) else b"other")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"fork"


def test_a_complete_run_that_is_given_back_states_its_own_rows(tmp_path) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=2)
    plan = dpsco.Plan(problem, 100, dpsco.Budget(1.0, 1e-5), dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=1.0))
    rows, labels = np.ones((140, 2)) / 2, np.tile([0, 1], 70)
    read: list[int] = []

    def chunks():
        for first in range(0, 140, 20):
            read.append(first)
            yield rows[first : first + 20], labels[first : first + 20]

    first = dpsco.train(plan, dpsco.stream(rows[:60], labels[:60]), checkpoint=tmp_path)
    assert (first.report.rows_missing, first.report.rows_unread) == (40, 0)
    again = dpsco.train(plan, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True)
    assert (again.report.run_id, again.report.rows_planned) == (first.report.run_id, 100)
    assert again.report.to_json() == first.report.to_json()
    np.testing.assert_array_equal(again.model.coef, first.model.coef)
    dpsco.train(plan, dpsco.stream(chunks()), checkpoint=tmp_path, resume=True)
    assert not read  # a run that is complete needs no rows


@pytest.mark.parametrize("survey", ["none", "full"])
@pytest.mark.parametrize("gone", ["used up", "broken", "not finite", "of another width"])
def test_a_complete_run_is_given_back_when_its_rows_are_gone(gone: str, survey: str, tmp_path: Path) -> None:
    """A stream is read once: whoever lost the model, and not the checkpoint, has no rows to show."""

    def broken():
        raise OSError("no such topic")
        yield

    account = dpsco.Account.create(tmp_path / "people.json", BUDGET)
    planned = dpsco.plan(PROBLEM, n=64, budget=BUDGET, rounds=4, survey=survey)
    options = {"checkpoint": tmp_path / "run", "account": account}
    first = dpsco.train(planned, dpsco.stream(X, Y), **options)
    streams = {
        "used up": dpsco.stream(iter([])),
        "broken": dpsco.stream(broken()),
        "not finite": dpsco.stream(np.full_like(X, np.nan), Y),
        "of another width": dpsco.stream(X[:, :2], Y),
    }
    seen: list[dpsco.Round] = []
    again = dpsco.train(planned, streams[gone], **options, resume=True, on_round=seen.append)
    np.testing.assert_array_equal(again.model.coef, first.model.coef)
    assert again.report.to_json() == first.report.to_json()
    assert tuple(seen) == first.trace
    assert len(account.runs) == 1


def test_a_run_that_is_given_back_keeps_what_its_readers_were_asked_to_trust(tmp_path) -> None:
    """An oracle of the caller's, labels that were read off the rows, an earlier model, and the budget of a whole."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=2)
    plan = dpsco.Plan(problem, 100, dpsco.Budget(1.0, 1e-5), dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=1.0))
    rows, labels = np.ones((100, 2)) / 2, np.tile([0, 1], 50)
    facts = Facts(
        clipping=Clipping.CALLER,
        unit="a device",
        budget=dpsco.Budget(2.0, 1e-5),
        trusted=("the workers",),
        inferred=("the classes",),
        started=True,
    )
    first = dpsco.train(plan, dpsco.stream(rows, labels), checkpoint=tmp_path, facts=facts)
    again = dpsco.train(plan, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True)
    assert set(again.report.assumptions) == set(first.report.assumptions)
    for name in ("epsilon", "mu", "unit", "headline"):
        assert getattr(again.report, name) == getattr(first.report, name)
    once = dpsco.train(plan, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True, facts=facts)
    assert once.report.to_json() == first.report.to_json()
    kept = tmp_path / "facts.json"
    kept.write_bytes(kept.read_bytes().replace(b"the workers", b"nobody else"))
    with pytest.raises(dpsco.CheckpointError):
        dpsco.train(plan, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True)
    kept.unlink()
    with pytest.raises(dpsco.CheckpointError, match="is gone"):
        dpsco.train(plan, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True)


def test_a_run_is_resumed_with_the_cap_on_the_rows_of_a_person_that_it_began_with(tmp_path) -> None:
    """Without it, rows of one person behind the released rounds would all count, under a report that states the cap."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=2)
    method = dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=1.0)
    plan = dpsco.Plan(problem, 100, dpsco.Budget(1.0, 1e-5, records=2), method)
    rows, labels = np.ones((100, 2)) / 2, np.tile([0, 1], 50)

    def stop(done: Round) -> None:
        if done.step == 1:
            raise KeyboardInterrupt

    def train(folder: str, cap: tuple[int, str | None] | None, **more: Any) -> dpsco.Result:
        stream = capped(dpsco.stream(rows, labels), cap)
        return dpsco.train(plan, stream, checkpoint=tmp_path / folder, **more)

    pairs = ((1, None), None), (None, (1, None)), ((1, None), (2, None)), ((1, "person"), (1, "visit"))
    for folder, (began, other) in zip("abcd", pairs, strict=True):
        with pytest.raises(KeyboardInterrupt):
            train(folder, began, on_round=stop)
        with pytest.raises(dpsco.CheckpointError, match="max_rows_per_unit"):
            train(folder, other, resume=True)
        whole = train(folder, began, resume=True)
        given_back = train(folder, None, resume=True)  # complete: no row is read
        assert given_back.report.assumptions == whole.report.assumptions


def test_rows_of_a_file_state_their_cap_by_themselves(tmp_path) -> None:
    """``FileRows`` counts the rows of a person, whoever calls ``train``: the run keeps it, and its report says it."""
    rows = "".join(f"{k % 7 / 7},{k % 3 / 3},{k % 2},p{k % 60},v{k % 50}\n" for k in range(100))
    (tmp_path / "rows.csv").write_text("a,b,y,person,visit\n" + rows)
    labels, columns = Labels("y", classes=("0", "1")), dpsco.PublicColumns(ranges={"a": (0, 1), "b": (0, 1)})
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=2)
    method = dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=1.0)
    plan = dpsco.Plan(problem, 100, dpsco.Budget(1.0, 1e-5, records=2), method)

    def stop(done: Round) -> None:
        if done.step == 1:
            raise KeyboardInterrupt

    def train(cap: dict[str, Any], **more: Any) -> dpsco.Result:
        stream = dpsco.stream(FileRows(tmp_path / "rows.csv", labels, columns, **cap))
        return dpsco.train(plan, stream, checkpoint=tmp_path / "run", **more)

    began = {"unit": "person", "max_rows_per_unit": 1}
    with pytest.raises(KeyboardInterrupt):
        train(began, on_round=stop)
    for other in ({}, {**began, "max_rows_per_unit": 2}, {**began, "unit": "visit"}):
        with pytest.raises(dpsco.CheckpointError, match="max_rows_per_unit"):
            train(other, resume=True)
        with pytest.raises(dpsco.InvalidArgument, match="max_rows_per_unit=3"):
            train(other, resume=True, facts=Facts(max_rows_per_unit=3, unit_column="person"))
    assert any("the first 1 of an id that are read" in text for text in train(began, resume=True).report.assumptions)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("cap", [1, 2])
def test_a_capped_run_protects_an_id_and_not_one_of_its_rows(adjacency: str, cap: int) -> None:
    """A row that goes lets another of its id count: one row may move a sum by more than the noise is made for."""
    budget = dpsco.Budget(1.0, 1e-6, adjacency, cap)
    report = dpsco.train(plan(budget), capped(dpsco.stream(X, Y), (cap, None))).report
    assert report.record == "id"
    facts = dict(report.facts())
    assert facts["protects"].startswith(f"one id with all its rows, of which {cap} count")
    assert facts["epsilon for k ids"].startswith(f"2: {report.group_epsilon(2 * cap):.4g}")
    words = " ".join(text for _, text in guarantee_in_words(report))
    assert "Nothing is promised for one row of several" in words
    assert "ny one person" in headline_in_words(report)[1]
    assert PrivacyReport.from_json(report.to_json()) == report
    with pytest.raises(dpsco.InvalidArgument, match="records=3"):
        dpsco.train(plan(budget), capped(dpsco.stream(X, Y), (3, None)))


def test_a_cap_that_the_rows_do_not_come_with_is_not_claimed() -> None:
    """Nobody counts the rows of an id there: a person with 100 of them would move a sum by 100 clips."""
    budget = dpsco.Budget(1.0, 1e-6, records=3)
    for told in (Facts(max_rows_per_unit=3, unit_column="person"), Facts(unit_column="person")):
        for cap in (None, (2, "person"), (3, "visit")):
            with pytest.raises(dpsco.InvalidArgument, match="State the cap where the ids are"):
                dpsco.train(plan(budget), capped(dpsco.stream(X, Y), cap), facts=told)
    same = Facts(max_rows_per_unit=3, unit_column="person")
    report = dpsco.train(plan(budget), capped(dpsco.stream(X, Y), (3, "person")), facts=same).report
    assert report.record == "id"


def test_a_new_run_says_nothing_of_an_attempt_that_ended_before_its_first_release(tmp_path) -> None:
    """A folder is free until then. Its facts were joined into the next run, whose report then promised more."""
    problem, method = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), 2), dpsco.AcceleratedSRGD
    strong, weak = dpsco.Budget(0.5, 1e-6, "replace", 4), dpsco.Budget(0.49, 1e-6)
    rows, labels = np.ones((100, 2)) / 2, np.tile([0, 1], 50)
    small = dpsco.Account.create(tmp_path / "small.json", dpsco.Budget(0.1, 1e-6, "replace", 4))
    facts = Facts(budget=strong, unit="one household", inferred=("the classes",), started=True)
    refused = dpsco.Plan(problem, 100, strong, method(rounds=4, beta=0.2, clip=1.0))
    rows_of_ids = capped(dpsco.stream(rows, labels), (3, None))
    with pytest.raises(dpsco.AccountError):
        dpsco.train(refused, rows_of_ids, checkpoint=tmp_path / "run", facts=facts, account=small)
    plan = dpsco.Plan(problem, 100, weak, method(rounds=4, beta=0.2, clip=1.0))
    account = dpsco.Account.create(tmp_path / "people.json", dpsco.Budget(3.0, 1e-6))
    made = dpsco.train(plan, dpsco.stream(rows, labels), checkpoint=tmp_path / "run", account=account).report
    alone = dpsco.train(plan, dpsco.stream(rows, labels)).report
    for name in ("epsilon", "adjacency", "records", "unit", "headline", "assumptions"):
        assert getattr(made, name) == getattr(alone, name)


def test_a_refused_call_keeps_no_lock_while_its_error_lives(tmp_path) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=2)
    method = dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=1.0)
    plan = dpsco.Plan(problem, 100, dpsco.Budget(1.0, 1e-5), method)
    rows, labels = np.ones((100, 2)) / 2, np.tile([0, 1], 50)
    dpsco.train(plan, dpsco.stream(rows, labels), checkpoint=tmp_path, facts=Facts(form="one"))
    with pytest.raises(dpsco.CheckpointError, match="other columns") as kept:
        dpsco.train(plan, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True, facts=Facts(form="two"))
    dpsco.train(plan, dpsco.stream(rows, labels), checkpoint=tmp_path, resume=True)
    assert kept.value is not None


def test_a_complete_run_is_not_given_back_under_another_column_of_ids(tmp_path) -> None:
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=2)
    method = dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=1.0)
    plan = dpsco.Plan(problem, 100, dpsco.Budget(1.0, 1e-5, records=2), method)
    rows, labels = np.ones((100, 2)) / 2, np.tile([0, 1], 50)

    def train(cap: tuple[int, str] | None, **more):
        return dpsco.train(plan, capped(dpsco.stream(rows, labels), cap), checkpoint=tmp_path, **more)

    train((2, "person"))
    for other in ((2, "visit"), (1, "person")):
        with pytest.raises(dpsco.CheckpointError, match="max_rows_per_unit=2 in the column 'person'"):
            train(other, resume=True)
    assert train(None, resume=True).report.record == "id"


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(
    "other", [Facts(record="client"), Facts(unit="one client"), Facts(budget=dpsco.Budget(2.0, 1e-5))]
)
def test_no_later_call_changes_whom_a_run_protects_or_by_how_much(other: Facts, complete: bool, tmp_path) -> None:
    """Neither one that is refused for its rows, nor one that is given the run back; and the account stays open."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(4.0), dimension=2)
    method = dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=1.0)
    planned = dpsco.Plan(problem, 100, dpsco.Budget(1.0, 1e-5), method)
    rows, labels = np.ones((100, 2)) / 2, np.tile([0, 1], 50)
    account = dpsco.Account.create(tmp_path / "people.json", dpsco.Budget(3.0, 1e-5))

    def stop(done: Round) -> None:
        if done.step == 1 and not complete:
            raise KeyboardInterrupt

    def train(**more: Any) -> dpsco.Result:
        stream = dpsco.stream(more.pop("rows", rows), labels)
        return dpsco.train(planned, stream, checkpoint=tmp_path / "run", account=account, **more)

    with pytest.raises(KeyboardInterrupt) if not complete else nullcontext():
        train(on_round=stop)
    for read in (rows, -rows):
        with pytest.raises(dpsco.CheckpointError, match="What a run promises"):
            train(rows=read, resume=True, facts=other)
    report = train(resume=True).report
    assert (report.record, report.epsilon) == ("row", 1.0)
    assert report.unit == dpsco.train(planned, dpsco.stream(rows, labels)).report.unit
    assert len(account.runs) == 1


def test_a_start_that_is_an_earlier_model_is_in_the_headline() -> None:
    problem = dpsco.Problem(dpsco.Softmax(3), dpsco.L2Ball(4.0), dimension=2, intercept=True)
    method = dpsco.AcceleratedSRGD(rounds=4, beta=0.2, clip=1.0)
    planned = dpsco.Plan(problem, 99, dpsco.Budget(1.0, 1e-5), method)
    rows, labels = np.ones((99, 2)) / 2, np.tile([0, 1, 2], 33)
    first = dpsco.train(planned, dpsco.stream(rows, labels)).model
    x = first.parameters(problem)
    assert np.array_equal(dpsco.Model.from_parameters(x, problem).coef, first.coef)
    assert np.array_equal(dpsco.Model.from_parameters(x, problem).intercept, first.intercept)
    made = [dpsco.train(planned, dpsco.stream(rows, labels), start=s, key=bytes(32)) for s in (first, x)]
    assert np.array_equal(made[0].model.coef, made[1].model.coef)
    assert any("its own guarantee adds up" in text for text in made[0].report.exceptions)


def test_a_run_that_is_fed_by_hand_does_not_say_how_many_rows_are_missing() -> None:
    """It is not told how many came."""
    run_plan = plan()
    with Run(run_plan, oracle=library_oracle(run_plan)) as run:
        for batch in dpsco.stream(X, Y).open(run.layout):
            run.absorb(batch)
            run.finish_round()
    assert run.complete
    assert run.report.rows_missing is None
