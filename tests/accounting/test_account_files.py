"""The file of an account: damage, processes, links, moves and interrupts."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dpsco import Account, AccountError, Budget, CheckpointError

LIMIT = Budget(epsilon=3.0, delta=1e-6)


def test_any_changed_byte_of_the_account_is_noticed(account: Account) -> None:
    account.charge("week 1", Budget(1.0, 1e-6))
    raw = account.path.read_bytes()
    for position in range(len(raw)):
        account.path.write_bytes(raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :])
        with pytest.raises((CheckpointError, AccountError)):
            _ = account.mu
    account.path.write_bytes(raw)
    assert len(account.runs) == 1


def test_an_edited_account_without_its_checksum_is_noticed(account: Account) -> None:
    account.charge("week 1", Budget(1.0, 1e-6))
    state = json.loads(account.path.read_text())
    state["runs"] = []
    account.path.write_text(json.dumps(state, sort_keys=True, separators=(",", ":")))
    with pytest.raises(CheckpointError):
        account.charge("week 2", Budget(1.0, 1e-6))


def test_processes_charging_at_once_never_overdraw(tmp_path: Path) -> None:
    """Six processes charge at once, waiting for each other; each charge is on file or refused by the limit."""
    path = tmp_path / "people.json"
    Account.create(path, limit=LIMIT)
    program = (
        "import sys; from dpsco import Account, AccountError, Budget\n"
        "account = Account(sys.argv[1], limit=Budget(3.0, 1e-6))\n"
        "try:\n"
        "    account.charge(sys.argv[2], Budget(1.2, 1e-6))\n"
        "except AccountError: sys.exit(3)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(path), f"run {k}"]) for k in range(6)]
    codes = [process.wait() for process in running]
    places = math.floor((LIMIT.mu / Budget(1.2, 1e-6).mu) ** 2)
    account = Account(path, limit=LIMIT)
    assert codes.count(0) == len(account.runs) == min(places, 6)
    assert account.mu <= LIMIT.mu * (1 + 1e-11)


def test_a_charge_waits_for_the_one_before_it(account: Account) -> None:
    """Another process holds the lock for half a second; the charge then goes through."""
    program = (
        "import fcntl, sys, time\n"
        "file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); print('held', flush=True); time.sleep(0.5)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(account.path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    account.charge("waited", Budget(1.0, 1e-6))
    assert [run["id"] for run in account.runs] == ["waited"]
    holder.wait()
    holder.stdout.close()


def test_a_charge_that_waits_in_vain_says_so(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsco.held_files import locked

    monkeypatch.setattr("dpsco.accounting.account.PATIENCE", 0.1)
    with (
        locked(account.path, "account"),
        pytest.raises(CheckpointError, match="in use by another process after"),
    ):
        account.charge("late", Budget(1.0, 1e-6))
    assert account.runs == []


def test_no_file_beside_an_account_can_be_deleted_to_charge_at_the_same_time(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever but the account is deleted while a charge is under way, a second charge waits."""
    from dpsco.held_files import locked

    monkeypatch.setattr("dpsco.accounting.account.PATIENCE", 0.1)
    account.charge("before", Budget(0.5, 1e-6))
    with locked(account.path, "account"):
        for beside in account.path.parent.iterdir():
            if beside != account.path:
                beside.unlink()
        with pytest.raises(CheckpointError, match="in use"):
            account.charge("between", Budget(0.5, 1e-6))
    assert [file.name for file in account.path.parent.iterdir()] == [account.path.name]


def test_a_charge_that_waited_for_another_sees_what_it_wrote(account: Account) -> None:
    """The first charge replaces the file on whose lock the second waits."""
    from dpsco.held_files import locked
    from dpsco.json_files import write_sealed

    def charge() -> None:
        account.charge("second", Budget(2.5, 1e-6))

    with ThreadPoolExecutor() as pool:
        with locked(account.path, "account"):
            waiting = pool.submit(charge)
            time.sleep(0.2)
            state = account._read()
            write_sealed(
                account.path, {**state, "runs": [{"id": "first", "mu": Budget(2.5, 1e-6).mu, "log_float_loss": -50.0}]}
            )
        with pytest.raises(AccountError, match="above its limit"):
            waiting.result()
    assert [run["id"] for run in account.runs] == ["first"]


def test_a_charge_waits_for_the_file_that_replaced_the_one_it_waited_for(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One charge has written and ended, another holds the new file: a third, which waited for the first, waits on."""
    from dpsco.held_files import locked
    from dpsco.json_files import write_sealed

    monkeypatch.setattr("dpsco.accounting.account.PATIENCE", 1.0)
    first, second = locked(account.path, "account"), locked(account.path, "account")
    with ThreadPoolExecutor() as pool, first:
        waiting = pool.submit(account.charge, "third", Budget(0.5, 1e-6))
        time.sleep(0.2)
        write_sealed(account.path, account._read())
        with second:
            first.__exit__(None, None, None)
            with pytest.raises(CheckpointError, match="in use"):
                waiting.result()
    assert account.runs == []


def test_an_account_that_is_away_for_a_moment_is_named(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise FileNotFoundError

    with monkeypatch.context() as patch:
        patch.setattr("dpsco.accounting.account.locked", away)
        with pytest.raises(AccountError, match="try again"):
            account.charge("first", Budget(0.5, 1e-6))
    account.charge("first", Budget(0.5, 1e-6))


def test_of_processes_that_create_an_account_at_once_one_succeeds(tmp_path: Path) -> None:
    program = (
        "import sys; from dpsco import Account, AccountError, Budget\n"
        "try: Account.create(sys.argv[1], limit=Budget(3.0, 1e-6)).charge(sys.argv[2], Budget(2.5, 1e-6))\n"
        "except AccountError: sys.exit(3)\n"
    )
    path = str(tmp_path / "people.json")
    running = [subprocess.Popen([sys.executable, "-c", program, path, f"run {k}"]) for k in range(4)]
    assert sorted(process.wait() for process in running) == [0, 3, 3, 3]
    assert len(Account(path).runs) == 1


def test_symbolic_links_to_an_account_are_one_account(account: Account, tmp_path: Path) -> None:
    """Two links once let epsilon = 4.08 through a limit of 3."""
    (tmp_path / "elsewhere").mkdir()
    links = [tmp_path / "elsewhere" / f"link {k}" for k in range(2)]
    for link in links:
        link.symlink_to(account.path)
    first, second = (Account(link, limit=LIMIT) for link in links)
    first.charge("one", Budget(2.5, 1e-6))
    with pytest.raises(AccountError, match="above its limit"):
        second.charge("two", Budget(2.5, 1e-6))
    assert first.mu == second.mu == account.mu == Budget(2.5, 1e-6).mu
    assert all(link.is_symlink() for link in links)


def test_a_link_through_a_folder_is_the_same_account(account: Account, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(tmp_path, target_is_directory=True)
    assert Account(tmp_path / "other" / account.path.name).path == account.path


def test_an_account_with_hard_links_is_refused(account: Account, tmp_path: Path) -> None:
    (tmp_path / "twin.json").hardlink_to(account.path)
    for path in (account.path, tmp_path / "twin.json"):
        with pytest.raises(AccountError, match="hard links"):
            Account(path)
    with pytest.raises(AccountError, match="hard links"):
        account.charge("one", Budget(1.0, 1e-6))


def test_a_link_in_place_of_an_open_account_does_not_split_it(tmp_path: Path) -> None:
    """The account was moved while it was open; a charge replaced the link and left the moved file as it was."""
    path, moved = tmp_path / "people.json", tmp_path / "moved.json"
    account = Account.create(path, limit=Budget(3.0, 1e-6))
    account.charge("first", Budget(1.0, 1e-6))
    path.rename(moved)
    path.symlink_to(moved)
    with pytest.raises(AccountError, match="moved"):
        account.charge("second", Budget(1.0, 1e-6))
    Account(path).charge("second", Budget(1.0, 1e-6))
    assert len(Account(moved).runs) == 2


def _moved(path: Path) -> None:
    path.rename(path.with_name("moved.json"))


def _linked(path: Path) -> None:
    path.with_name("moved.json").hardlink_to(path)


@pytest.mark.parametrize("when", ["before the last look", "between the last look and the new file"])
@pytest.mark.parametrize("happens", [_moved, _linked])
def test_an_account_that_is_moved_or_linked_during_a_charge_is_still_one_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Any, when: str
) -> None:
    """The other name would keep an account that lacks the run, and the old name would come back as a second one."""
    place = tmp_path / "people.json"
    account = Account.create(place, limit=LIMIT)
    account.charge("before", Budget(1.0, 1e-6))
    name = "fsync" if when == "before the last look" else "replace"
    real, done = getattr(os, name), []

    def then(*args: Any, **options: Any) -> Any:
        if not done:
            done.append(happens(place))
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, then)
        with pytest.raises((CheckpointError, AccountError)):
            account.charge("run", Budget(1.0, 1e-6))
    left = [path for path in tmp_path.iterdir() if path.suffix == ".json"]
    inodes = {path.stat().st_ino for path in left}
    assert len(inodes) == 1
    for path in left[1:]:
        path.unlink()
    assert [run["id"] for run in Account(left[0]).runs] == ["before"]
    Account(left[0]).charge("run", Budget(1.0, 1e-6))


@pytest.mark.parametrize("hidden", [".nfs000001", ".fuse_hidden01"])
def test_the_name_that_a_network_file_system_gives_a_replaced_file_is_not_another_account(
    account: Account, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    """It keeps files that are open under such a name until they are closed."""
    real = os.replace

    def kept(*args: Any, **options: Any) -> None:
        account.path.with_name(hidden).hardlink_to(account.path)
        real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", kept)
        account.charge("run", Budget(1.0, 1e-6))
    assert [run["id"] for run in account.runs] == ["run"]


@pytest.mark.parametrize("when", ["before it is opened", "after it is opened"])
def test_an_account_whose_folder_moves_during_a_charge_is_still_one_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Opened before, the run is charged where the folder is now; otherwise it is refused."""
    folder = tmp_path / "of"
    account = Account.create(folder / "people.json", limit=LIMIT)
    name = "open" if when == "before it is opened" else "replace"
    real, done = getattr(os, name), []

    def then(first: Any, *args: Any, **options: Any) -> Any:
        if not done and (name == "replace" or first == folder):
            done.append(folder.rename(tmp_path / "moved"))
            folder.mkdir()
        return real(first, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, then)
        with nullcontext() if name == "replace" else pytest.raises(CheckpointError, match="moved"):
            account.charge("run", Budget(1.0, 1e-6))
    assert not list(folder.iterdir())
    known = [run["id"] for run in Account(tmp_path / "moved" / "people.json").runs]
    assert known == (["run"] if name == "replace" else [])


def test_accounts_that_change_places_during_a_charge_keep_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account.create(tmp_path / "people.json", limit=LIMIT)
    other = Account.create(tmp_path / "others.json", limit=LIMIT)
    account.charge("of people", Budget(1.0, 1e-6))
    other.charge("of others", Budget(1.0, 1e-6))
    real, done = os.fsync, []

    def then(descriptor: int) -> None:
        if not done:
            done.append(account.path.rename(tmp_path / "moved.json"))
            other.path.rename(account.path)
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", then)
        with pytest.raises(CheckpointError, match="moved"):
            account.charge("run", Budget(1.0, 1e-6))
    assert [run["id"] for run in Account(tmp_path / "people.json").runs] == ["of others"]
    assert [run["id"] for run in Account(tmp_path / "moved.json").runs] == ["of people"]


def test_a_charge_leaves_other_files_alone(tmp_path: Path) -> None:
    """Also one whose name looks like that of a file being written: here another account."""
    one, two = (Account.create(tmp_path / name, LIMIT) for name in ("people.json", "people.json.new"))
    two.charge("week 1", Budget(1.0, 1e-6))
    one.charge("week 1", Budget(1.0, 1e-6))
    assert len(two.runs) == len(one.runs) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["people.json", "people.json.new"]


@pytest.mark.parametrize("at", ["before the content", "after it"])
def test_an_interrupted_creation_leaves_an_account_or_nothing(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpsco.json_files import write_sealed

    def interrupted(*arguments: Any, **options: Any) -> None:
        if at == "after it":
            write_sealed(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dpsco.accounting.account.write_sealed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Account.create(tmp_path / "people.json", LIMIT)
    if at == "after it":
        assert Account(tmp_path / "people.json").runs == []
    else:
        assert list(tmp_path.iterdir()) == []


def test_an_account_that_was_never_begun_says_what_to_do(tmp_path: Path) -> None:
    """A process that ended while it made the file: nothing was charged, and there is no copy to restore."""
    (tmp_path / "people.json").touch()
    with pytest.raises(AccountError, match="delete the file and create it again"):
        Account.create(tmp_path / "people.json", limit=LIMIT)
    assert not (tmp_path / "people.json").stat().st_size
