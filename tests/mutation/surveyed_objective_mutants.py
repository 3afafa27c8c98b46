"""Seeded bugs of objective perturbation behind a survey: who is in which release, rows in its coordinates, budget."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["SURVEYED_OBJECTIVE"]

METHOD = "tests/methods/test_surveyed_objective.py"

SURVEYED_OBJECTIVE = (
    Mutant(
        "surveyed rows in the objective too",
        (
            (
                "run/run.py",
                "first = self._asked().step * size + (0 if behind is None else behind.schedule.rows)",
                "first = self._asked().step * size",
            ),
        ),
        (f"{METHOD}::test_a_row_is_in_one_release_and_changes_nothing_else",),
    ),
    Mutant(
        "rows in the survey's coordinates longer than declared",
        (("run/row_passes.py", "long = lengths > feature_norm * _WITHIN", "long = lengths > 1e9 * feature_norm"),),
        (f"{METHOD}::test_one_row_moves_gradient_and_determinant_by_no_more_than_was_accounted_for",),
    ),
    Mutant(
        "rows in the survey's coordinates centred by their chunk",
        (
            (
                "run/row_access.py",
                "        yield row_map.rows(np.asarray(rows, dtype=np.float64)), labels\n",
                "        b = np.nan_to_num(row_map.rows(np.asarray(rows, dtype=np.float64)))\n"
                "        yield b - np.mean(b, axis=0), labels\n",
            ),
        ),
        (f"{METHOD}::test_one_row_moves_gradient_and_determinant_by_no_more_than_was_accounted_for",),
    ),
    Mutant(
        "twice the budget behind a survey",
        (
            (
                "planning/second_stage.py",
                'later_plan = Plan(mapped, left, budget, found.later, rule="released survey"',
                "budget = dataclasses.replace(budget, epsilon=2 * budget.epsilon)\n"
                '    later_plan = Plan(mapped, left, budget, found.later, rule="released survey"',
            ),
        ),
        (f"{METHOD}::test_both_releases_have_the_whole_budget_and_no_more",),
    ),
    Mutant(
        "an objective behind a survey charged as a Gaussian mechanism",
        (("methods/surveyed_objective.py", "Composition(text, gaussian=False)", "Composition(text, gaussian=True)"),),
        (f"{METHOD}::test_it_has_no_mu_and_accounts_refuse_it",),
    ),
    Mutant(
        "a survey spent before its objective is refused",
        (("methods/surveyed_objective.py", "        plain_objective(problem, n - self.rows, budget)\n", ""),),
        (f"{METHOD}::test_what_its_proof_or_its_plan_does_not_cover_is_refused",),
    ),
    Mutant(
        "a release that shows nothing ends the run",
        (
            (
                "planning/objective_in_geometry.py",
                "        not np.any(shape.sizes > 0)\n        or not all(map(math.isfinite, parts))\n"
                "        or not all(1 / SANE < size < SANE for size in (longest, row_map.norm))\n",
                "        False\n",
            ),
        ),
        ("tests/planning/test_objective_in_geometry.py::test_a_spent_survey_is_never_followed_by_a_refusal",),
    ),
)
