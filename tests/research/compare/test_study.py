"""Equal budgets, and rows and keys of tuning apart from those of scoring."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from dpsco.research.compare import on_a_file, outside, over_passes, over_rounds, over_sizes
from dpsco.research.compare.file_data import FileData, halves
from dpsco.research.compare.lineup import NOT_TUNED, OURS
from dpsco.research.compare.scale import FULL, QUICK
from dpsco.research.compare.settings import MOST_REPLICATES, ROLES, Setting, rows_for
from dpsco.research.compare.study import Effort, Study, studied
from dpsco.research.compare.trial import Outcome, Trial, key_for
from dpsco.rows.file_stream import Labels


def followed(study: Study, outcome: Outcome) -> list[Trial]:
    """Every run that a study asks for when each has this outcome."""
    steps, asked = studied(study), []
    trials = next(steps)
    try:
        while True:
            asked += trials
            trials = steps.send([outcome] * len(trials))
    except StopIteration:
        return asked


def test_every_contender_of_every_section_has_the_same_budget() -> None:
    for scale in (QUICK, FULL):
        sections = (over_rounds, over_passes, outside, over_sizes)
        studies = [study for section in sections for study in section.studies(scale)]
        studies = [study for study in studies if study.contender not in NOT_TUNED]
        assert {study.effort for study in studies} == {scale.effort}
        for study in {study.contender.name: study for study in studies}.values():
            for outcome in (Outcome(score=1.0), Outcome(score=None, refused="no")):
                asked = followed(study, outcome)
                assert len(asked) == scale.effort.runs
                tuned = {(t.scales, t.options, t.plan, t.rounds) for t in asked if t.role == "tuning"}
                assert len(tuned) == scale.effort.configurations


def test_scoring_shares_neither_keys_nor_seeds_with_tuning() -> None:
    replicates = range(MOST_REPLICATES)
    keys = {key_for(role, i) for role, i in product(ROLES, replicates)}
    seeds = {first + i for first, i in product(ROLES.values(), replicates)}
    assert len(keys) == len(seeds) == 2 * MOST_REPLICATES
    asked = followed(Study(OURS, Setting(n=500), 4, Effort(5, 2, 3)), Outcome(score=1.0))
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
    studies = on_a_file.studies(QUICK, data)
    assert {study.effort for study in studies} == {QUICK.effort}
