"""Equal budgets; tuning and scoring share neither rows nor keys."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from dpsco.research.compare.compared_methods import NOT_TUNED, OURS
from dpsco.research.compare.comparison_size import FULL, MEDIUM, QUICK, TuningBudget
from dpsco.research.compare.evaluation_data import MOST_REPLICATES, ROLES, Setting, rows_for
from dpsco.research.compare.file_data import FileData, halves
from dpsco.research.compare.sections import (
    accuracy_on_file,
    excess_by_passes,
    excess_by_rounds,
    excess_by_size,
    minimiser_outside_set,
)
from dpsco.research.compare.single_run import PLANNED, RunOutcome, SingleRun, key_for
from dpsco.research.compare.tuning import TuningTask, tune
from dpsco.rows.file_stream import Labels


def followed(task: TuningTask, outcome: RunOutcome) -> list[SingleRun]:
    """Return every run that a task asks for if each has this outcome."""
    steps, asked = tune(task), []
    runs = next(steps)
    try:
        while True:
            asked += runs
            runs = steps.send([outcome] * len(runs))
    except StopIteration:
        return asked


def test_every_tuned_method_of_every_section_has_the_same_budget() -> None:
    for size in (QUICK, MEDIUM, FULL):
        sections = (excess_by_rounds, excess_by_passes, minimiser_outside_set, excess_by_size)
        tasks = [task for section in sections for task in section.tasks(size)]
        planned = [task for task in tasks if task.method.method == PLANNED]
        assert {(t.budget.configurations, t.budget.tuning, t.budget.scoring) for t in planned} == {
            (1, 0, size.budget.scoring)
        }
        tasks = [task for task in tasks if task.method not in NOT_TUNED and task not in planned]
        assert {task.budget for task in tasks} == {size.budget}
        for task in {task.method.name: task for task in tasks}.values():
            for outcome in (RunOutcome(score=1.0), RunOutcome(score=None, refused="no")):
                asked = followed(task, outcome)
                assert len(asked) == size.budget.runs
                tuned = {(t.scales, t.options, t.rounds) for t in asked if t.role == "tuning"}
                assert len(tuned) == size.budget.configurations


def test_scoring_shares_neither_keys_nor_seeds_with_tuning() -> None:
    replicates = range(MOST_REPLICATES)
    keys = {key_for(role, i) for role, i in product(ROLES, replicates)}
    seeds = {first + i for first, i in product(ROLES.values(), replicates)}
    assert len(keys) == len(seeds) == 2 * MOST_REPLICATES
    asked = followed(TuningTask(OURS, Setting(n=500), 4, TuningBudget(5, 2, 3)), RunOutcome(score=1.0))
    assert [t.role for t in asked].count("scoring") == 3


def test_simulated_rows_of_the_two_roles_are_different_rows() -> None:
    setting = Setting(n=200, dimension=3, fresh=50)
    tuning, scoring = (rows_for(setting, role, 0).features for role in ROLES)
    assert not np.isin(tuning, scoring).any()


def test_rows_of_a_file_serve_one_role_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1_001, 2)) / 10
    np.savez(tmp_path / "rows.npz", X=rows, y=(rows[:, 0] > 0).astype(int))
    data = FileData(tmp_path / "rows.npz", Labels("y", ("0", "1")), 2, 1.0, 20.0)
    found = {
        (role, i): {tuple(row) for row in rows_for(Setting(n=data.training_rows, file=data), role, i).features}
        for role, i in product(ROLES, range(3))
    }
    assert {len(rows) for rows in found.values()} == {data.training_rows} == {400}
    for i, j in product(range(3), range(3)):
        assert not found["tuning", i] & found["scoring", j]
    assert found["scoring", 0] != found["scoring", 1]
    both = halves(1_001)
    assert not set(both["tuning"]) & set(both["scoring"])
    tasks = accuracy_on_file.tasks(QUICK, data)
    assert {task.budget for task in tasks if task.method.method != PLANNED} == {QUICK.budget}
    assert {task.budget.tuning for task in tasks if task.method.method == PLANNED} == {0}
