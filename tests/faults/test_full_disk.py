"""A disk that is full in the middle of a run: it stops, nothing is lost, and with room again it ends the same."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.faults.small_disk import in_a_small_disk

_A_RUN = """
rows = np.random.default_rng(0).standard_normal((600, 400))
problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 400)
plan = dpsco.Plan(problem, 600, dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=12, beta=1.0, clip=1.0))

def run(**how):
    stream = dpsco.stream(rows, (rows[:, 0] > 0).astype(float))
    return dpsco.train(plan, stream, key=bytes(32), **how).model.coef

ballast.write_bytes(bytes(int(sys.argv[2])))
stopped = filled(lambda: run(checkpoint=folder / "run"))
left = sorted(p.name for p in (folder / "run").iterdir()) if (folder / "run").exists() else []
ballast.unlink()
same = bool(np.array_equal(run(checkpoint=folder / "run", resume=True), run()))
print(json.dumps({"stopped": stopped, "left": left, "same": same}))
"""


@pytest.mark.parametrize(
    "ballast", [pytest.param(90_000, marks=pytest.mark.slow), 104_000, pytest.param(116_000, marks=pytest.mark.slow)]
)
def test_a_run_that_meets_a_full_disk_stops_and_goes_on_when_there_is_room(ballast: int, tmp_path) -> None:
    told = in_a_small_disk(tmp_path, _A_RUN, ballast)
    assert told["stopped"] == "ENOSPC"
    assert not [name for name in told["left"] if name.endswith(".new")]
    assert told["same"]


_AN_ACCOUNT = """
rows, labels = np.random.default_rng(0).standard_normal((60, 3)), np.zeros(60)
problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 3)
plan = dpsco.Plan(problem, 60, dpsco.Budget(0.5, 1e-6), dpsco.AcceleratedSRGD(rounds=3, beta=1.0, clip=1.0))
account = dpsco.Account.create(folder / "people.json", limit=dpsco.Budget(9.0, 1e-6))
released = []

def run():
    dpsco.train(plan, dpsco.stream(rows, labels), account=account, on_round=lambda at: released.append(at.step))

run()
before = (folder / "people.json").read_bytes()
fill()
stopped = filled(run)
kept, seen = (folder / "people.json").read_bytes() == before, list(released)
ballast.unlink()
run()
print(json.dumps({"stopped": stopped, "kept": kept, "released": seen, "runs": len(account.runs)}))
"""


def test_a_run_that_cannot_be_written_into_its_account_releases_nothing(tmp_path) -> None:
    told = in_a_small_disk(tmp_path, _AN_ACCOUNT)
    assert told == {"stopped": "ENOSPC", "kept": True, "released": [0, 1, 2], "runs": 2}


_A_COMMAND = """
from dpsco.cli import main
from dpsco.run import watching
from dpsco.run.model_file import SavedModel
work = Path(sys.argv[2])
rng = np.random.default_rng(0)
lines = [",".join(map(str, [*row, int(row[0] > 0)])) for row in rng.standard_normal((500, 3)).round(3).tolist()]
(work / "rows.csv").write_text("a,b,c,y\\n" + "\\n".join(lines) + "\\n")

def fit():
    options = f"--label y --features a,b,c --epsilon 1 --delta 1e-6 --rounds 4 --survey none --json --resume"
    options += f" --checkpoint {work}/run"
    return main(["fit", str(work / "rows.csv"), "--out", str(folder / "model.json"), *options.split()])

def crowd(*_):  # the disk fills up while the run goes on
    if not ballast.exists():
        fill()

(folder / "model.json").write_text("an older model")
fill()
codes = [fit()]
spent = (work / "run").exists()
ballast.unlink()
with watching(crowd):
    codes.append(fit())
kept = (folder / "model.json").read_text() == "an older model"
released = (work / "run" / "released.bin").read_bytes()
ballast.unlink()
with watching(lambda *_: None):
    codes.append(fit())
same = (work / "run" / "released.bin").read_bytes() == released
rows = SavedModel.read(folder / "model.json").result.report.rows_planned
print(json.dumps({"codes": codes, "spent": spent, "kept": kept, "same": same, "rows": rows}))
"""


def test_a_command_whose_model_finds_no_room_keeps_the_old_one_and_gives_the_new_one_later(tmp_path) -> None:
    """A full disk is refused before the run. One that fills up later costs nothing: the next call releases nothing."""
    disk, work = tmp_path / "disk", tmp_path / "work"
    disk.mkdir()
    work.mkdir()
    told = in_a_small_disk(disk, _A_COMMAND, work)
    assert told == {"codes": [2, 2, 0], "spent": False, "kept": True, "same": True, "rows": 500}


_A_FEDERATION = """
from dpsco.engines.flower import LocalNodes, linear_gradients, serve
P, rng, asked = 300, np.random.default_rng(0), []
problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), P)
plan = dpsco.Plan(problem, 60, dpsco.Budget(1.0, 1e-6, "add-remove"),
                  dpsco.AcceleratedSRGD(rounds=8, beta=1.0, clip=1.0))
rows = rng.standard_normal((60, 1, P))
nodes = LocalNodes([{f"home-{i}": linear_gradients(problem, rows[i], [i % 2]) for i in range(60)}])

class Noted:
    def ask(self, query, step):
        asked.append(step)
        return nodes.ask(query, step)

def run(**how):
    return serve(plan, Noted(), key=bytes(32), **how).model.coef

expected, asked = run(), []
ballast.write_bytes(bytes(int(sys.argv[2])))
stopped = filled(lambda: run(checkpoint=folder / "run"))
before, asked = asked, []
ballast.unlink()
same = bool(np.array_equal(run(checkpoint=folder / "run", resume=True), expected))
print(json.dumps({"stopped": stopped, "before": before, "after": asked, "same": same}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("ballast", [80_000, 96_000, 108_000])
def test_a_federation_that_meets_a_full_disk_goes_on_with_the_answers_it_kept(ballast: int, tmp_path) -> None:
    """Only the round whose answers found no room is asked again: nothing of it was released."""
    told = in_a_small_disk(tmp_path, _A_FEDERATION, ballast)
    assert told["stopped"] == "ENOSPC"
    assert told["same"]
    assert len(set(told["before"]) & set(told["after"])) <= 1
    assert {*told["before"], *told["after"]} == set(range(8))


def test_a_file_that_may_not_grow_leaves_the_old_one_whole(tmp_path) -> None:
    """RLIMIT_FSIZE: the write fails half-way, and what was there before is still there."""
    program = (
        "import resource, signal, sys; from pathlib import Path; from dpsco.json_files import write_atomic\n"
        "path = Path(sys.argv[1]); write_atomic(path, b'old')\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: write_atomic(path, bytes(5000))\n"
        "except OSError: print('refused', path.read_bytes(), len(list(path.parent.iterdir())))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "file")], capture_output=True, text=True)
    assert done.stdout.strip() == "refused b'old' 1"
