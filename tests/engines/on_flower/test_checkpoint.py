"""A server that stops goes on: same model, nobody asked twice, nothing un-noised left behind."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dpsco
from dpsco.engines.flower import LocalNodes, Roster, serve
from dpsco.errors import CheckpointError
from dpsco.pages.guarantee_in_words import guarantee_in_words, headline_in_words
from dpsco.release.releaser import Releaser

from .worlds import KEY, T, a_plan, devices, rows, spread

PLAN = a_plan()
NODES = spread(devices(*rows()), 4)


class Stop(Exception):
    pass


class Asked:
    """A transport that notes which rounds it was asked for; from ``dying`` on, one node of four is gone."""

    def __init__(self, dying: int = T) -> None:
        self.steps: list[int] = []
        self._dying = dying

    def ask(self, query: bytes, step: int) -> Iterator[tuple[int, bytes]]:
        self.steps.append(step)
        return LocalNodes(NODES if step < self._dying else NODES[:3]).ask(query, step)


def stop_after(step: int):
    def on_round(done: dpsco.Round) -> None:
        if done.step == step:
            raise Stop

    return on_round


def test_a_stopped_run_goes_on_to_the_same_bits_without_asking_a_round_again(tmp_path: Path) -> None:
    whole = serve(PLAN, Asked(dying=4), key=KEY)
    first, second = Asked(), Asked(dying=0)  # by then a node is gone: asked again, rounds 0 to 3 would differ
    with pytest.raises(Stop):
        serve(PLAN, first, key=KEY, checkpoint=tmp_path, on_round=stop_after(3))
    resumed = serve(PLAN, second, key=KEY, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.model.coef, whole.model.coef)
    assert first.steps + second.steps == list(range(T))


def test_answers_that_came_just_before_a_stop_are_not_asked_for_again(tmp_path: Path, monkeypatch) -> None:
    release = Releaser.release

    def stops(self: Releaser, query, clipped):
        if query.step == 3:
            raise Stop
        return release(self, query, clipped)

    nodes = Asked()
    with monkeypatch.context() as patch:
        patch.setattr(Releaser, "release", stops)
        with pytest.raises(Stop):
            serve(PLAN, nodes, key=KEY, checkpoint=tmp_path)
    kept = tmp_path / "cohorts" / "round-00003.bin"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    resumed = serve(PLAN, nodes, key=KEY, checkpoint=tmp_path, resume=True)
    assert nodes.steps == list(range(T))
    np.testing.assert_array_equal(resumed.model.coef, serve(PLAN, Asked(), key=KEY).model.coef)


@pytest.mark.parametrize("key", [KEY, None], ids=["given key", "own key"])
def test_no_sum_is_left_on_disk_by_an_error_behind_the_last_release(tmp_path: Path, key: bytes | None) -> None:
    """A log that is closed, say: the noise key is erased then, and a sum beside the release would show the noise."""
    whole, nodes = serve(PLAN, Asked(), key=KEY), Asked()
    with pytest.raises(Stop):
        serve(PLAN, nodes, key=key, checkpoint=tmp_path, on_round=stop_after(T - 1))
    assert json.loads((tmp_path / "run" / "secret.json").read_bytes())["key"] is None
    assert not list(tmp_path.rglob("round-*.bin"))
    again = serve(PLAN, nodes, key=key, checkpoint=tmp_path, resume=True)
    assert nodes.steps == list(range(T))
    if key is not None:
        np.testing.assert_array_equal(again.model.coef, whole.model.coef)


def test_answers_stay_while_the_key_could_not_be_erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Releaser) -> None:
        raise OSError(errno.ENOSPC, "no space")

    nodes = Asked()
    with monkeypatch.context() as patch:
        patch.setattr(Releaser, "close", full)
        with pytest.raises(Stop):
            serve(PLAN, nodes, checkpoint=tmp_path, on_round=stop_after(T - 1))
    assert list(tmp_path.rglob("round-*.bin"))
    serve(PLAN, nodes, checkpoint=tmp_path, resume=True)
    assert nodes.steps == list(range(T))
    assert not list(tmp_path.rglob("round-*.bin"))


def test_no_sum_is_left_on_disk_after_the_last_round(tmp_path: Path) -> None:
    result = serve(PLAN, Asked(), checkpoint=tmp_path)
    assert not (tmp_path / "cohorts").exists()
    nobody = Asked(dying=0)
    again = serve(PLAN, nobody, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(again.model.coef, result.model.coef)
    assert nobody.steps == []
    assert not (tmp_path / "cohorts").exists()


def test_another_unit_plan_or_roster_is_refused(tmp_path: Path) -> None:
    plan, roster = a_plan("zero-out"), Roster({"device-1": 1})
    with pytest.raises(Stop):
        serve(plan, Asked(), checkpoint=tmp_path, assignment=roster, on_round=stop_after(1))
    for other in ({"unit": "example", "assignment": roster}, {"assignment": Roster({"device-1": 2})}, {}):
        with pytest.raises(CheckpointError, match="another federation"):
            serve(plan, Asked(), checkpoint=tmp_path, resume=True, **other)
    with pytest.raises(CheckpointError, match="another federation"):
        serve(a_plan("zero-out", rounds=4), Asked(), checkpoint=tmp_path, resume=True, assignment=roster)


def test_a_lost_header_lets_no_client_be_called_twice(tmp_path: Path) -> None:
    plan, roster = a_plan("zero-out"), Roster({"device-1": 1})
    with pytest.raises(Stop):
        serve(plan, Asked(), checkpoint=tmp_path, assignment=roster, on_round=stop_after(1))
    (tmp_path / "federation.json").unlink()
    with pytest.raises(CheckpointError, match="clients called twice"):
        serve(plan, Asked(), checkpoint=tmp_path, resume=True, assignment=Roster({"device-1": 2}))


def test_a_report_of_clients_promises_nothing_for_their_rows() -> None:
    """One row of a client with several may move its clipped mean by two clips; the noise is made for one."""
    report = serve(a_plan("zero-out"), Asked()).report
    assert report.record == "client"
    assert "epsilon for k clients" in dict(report.facts())
    words = " ".join(text for _, text in guarantee_in_words(report))
    assert "any one client" in headline_in_words(report)[1]
    assert "A change of some rows of a client counts as two clients" in words
    assert "Every single row" not in words
    two = dataclasses.replace(report, records=2)
    assert dict(two.facts())["protects"].startswith("any 2 clients at once (zero-out); one client: ")


def test_a_damaged_sum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        serve(PLAN, Asked(), checkpoint=tmp_path, on_round=stop_after(3))
    kept = tmp_path / "cohorts" / "round-00002.bin"
    raw = bytearray(kept.read_bytes())
    raw[40] ^= 1
    kept.write_bytes(raw)
    with pytest.raises(CheckpointError, match="round 2"):
        serve(PLAN, Asked(), checkpoint=tmp_path, resume=True)


def test_answers_and_count_are_in_the_folder_of_the_run_whatever_its_path_means(tmp_path: Path, monkeypatch) -> None:
    """A second count, or clients that are asked twice, would cost more than the plan."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def meanwhile(seen) -> None:
        if seen.step == 1:
            monkeypatch.chdir(tmp_path / "there")

    serve(PLAN, Asked(), checkpoint="run", on_round=meanwhile)
    assert list((tmp_path / "there").iterdir()) == []
    assert sorted(path.name for path in (tmp_path / "here" / "run").iterdir()) == ["count", "federation.json", "run"]


def test_files_that_are_not_of_the_federation_stay(tmp_path: Path) -> None:
    """What a killed server was writing is removed; a file of somebody else is neither read nor removed."""
    with pytest.raises(Stop):
        serve(PLAN, Asked(), checkpoint=tmp_path, on_round=stop_after(3))
    (tmp_path / "cohorts" / ".dpsco-0123456789abcdef.new").write_bytes(b"half a sum")
    (tmp_path / "cohorts" / "notes.txt").write_text("mine")
    serve(PLAN, Asked(), checkpoint=tmp_path, resume=True)
    assert [path.name for path in (tmp_path / "cohorts").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["run", "cohorts", "count"])
def test_a_link_in_place_of_a_folder_is_refused_and_nothing_is_written_behind_it(tmp_path: Path, name: str) -> None:
    """Keys, and sums without noise, stay in the folder that was named."""
    folder, elsewhere = tmp_path / "federation", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / name).symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(CheckpointError, match="is a link"):
        serve(PLAN, Asked(), checkpoint=folder)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("unit", ["client", "example"])
def test_the_verdict_of_a_federation_whose_run_is_gone_decides_nothing(unit: str, tmp_path: Path) -> None:
    plan = a_plan("zero-out")
    serve(plan, Asked(), checkpoint=tmp_path, unit=unit)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(CheckpointError, match="verdict of an earlier federation"):
        serve(plan, Asked(), checkpoint=tmp_path, unit=unit)


def test_a_file_named_as_the_count_is_found_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("mine")
    nodes = Asked()
    with pytest.raises(CheckpointError, match="'count' in the folder"):
        serve(PLAN, nodes, checkpoint=tmp_path)
    assert not nodes.steps
    assert not (tmp_path / "run").exists()
    assert (tmp_path / "count").read_text() == "mine"


def test_answers_of_another_run_of_the_same_plan_are_refused(tmp_path: Path) -> None:
    """Both asked the same in their first round, of other clients."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        with pytest.raises(Stop):
            serve(PLAN, Asked(), checkpoint=folder, on_round=stop_after(0))
    (mine / "run" / "released.bin").write_bytes(b"")
    shutil.rmtree(mine / "cohorts")
    shutil.copytree(other / "cohorts", mine / "cohorts")
    nodes = Asked()
    with pytest.raises(CheckpointError, match="belong to another run or query"):
        serve(PLAN, nodes, checkpoint=mine, resume=True)
    assert not nodes.steps
