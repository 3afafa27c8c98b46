"""Seeded bugs of facts and reports: what a run says of itself, and keeps saying when it is resumed."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["REPORT"]

REPORT = (
    Mutant(
        "a cap that nobody keeps is in the report",
        (
            ("run/preconditions.py", "not in ((None, None), (limit, column)):", "is None:"),
            (
                "run/preconditions.py",
                "max_rows_per_unit=limit, unit_column=column)",
                "max_rows_per_unit=stated.max_rows_per_unit)",
            ),
        ),
        ("tests/run/test_honest_reports.py::test_a_cap_that_the_rows_do_not_come_with_is_not_claimed",),
    ),
    Mutant(
        "a refused call changes whom a run protects",
        (("run/kept_facts.py", "if stated[name] not in (before[name], unstated):", "if False:"),),
        ("tests/run/test_honest_reports.py::test_no_later_call_changes_whom_a_run_protects_or_by_how_much",),
    ),
    Mutant(
        "a complete capped run is given back under another column of ids",
        (("run/kept_facts.py", "not (complete and stated == (None, None))", "not complete"),),
        ("tests/run/test_honest_reports.py::test_a_complete_run_is_not_given_back_under_another_column_of_ids",),
    ),
    Mutant(
        "a run goes on with other classes",
        (("estimators/classifiers.py", "if goes_on and not", "if False and not"),),
        (
            "tests/estimators/test_partial_fit.py::"
            "test_other_classes_in_the_middle_of_a_run_are_refused_and_change_nothing",
        ),
    ),
    Mutant(
        "a capped run promises privacy to one row",
        (("run/facts.py", 'record=facts.record if facts.max_rows_per_unit is None else "id"', "record=facts.record"),),
        ("tests/run/test_honest_reports.py::test_a_capped_run_protects_an_id_and_not_one_of_its_rows",),
    ),
    Mutant(
        "more rows of an id count than the noise covers",
        (("run/preconditions.py", "stated.max_rows_per_unit > part.records", "False"),),
        ("tests/run/test_honest_reports.py::test_a_capped_run_protects_an_id_and_not_one_of_its_rows",),
    ),
    Mutant(
        "sums from elsewhere pass for the library's",
        (("run/facts.py", "clipping: Clipping | None = None", "clipping: Clipping | None = Clipping.LIBRARY"),),
        ("tests/run/test_honest_reports.py::test_a_run_states_who_clips",),
    ),
    Mutant(
        "a new run inherits the facts of a dead attempt in its folder",
        (("run/kept_facts.py", ' and before["run"] == ledger.run_id', ""),),
        (
            "tests/run/test_honest_reports.py::"
            "test_a_new_run_says_nothing_of_an_attempt_that_ended_before_its_first_release",
        ),
    ),
    Mutant(
        "a run may be resumed without its cap on the rows of a person",
        (
            (
                "run/kept_facts.py",
                "stated != (cap, column) and not (complete and stated == (None, None))",
                "False",
            ),
        ),
        (
            "tests/run/test_honest_reports.py::"
            "test_a_run_is_resumed_with_the_cap_on_the_rows_of_a_person_that_it_began_with",
        ),
    ),
    Mutant(
        "rows of an interrupted call are taken again",
        (("estimators/base.py", "targets, within=True)", "targets, within=True)\n        run.unfinished = False"),),
        ("tests/estimators/test_partial_fit.py::test_an_interrupt_after_the_rows_were_taken_ends_the_run_too",),
    ),
    Mutant(
        "a run under the name of another, which is paid for",
        (
            ("release/ledger.py", 'if header["id"] != secret["id"]:', "if False:"),
            ("release/ledger.py", "canonical([self.run_id, self._digest, step])", "canonical([self._digest, step])"),
            ("run/kept_facts.py", 'before["run"] == ledger.run_id', "True"),
        ),
        ("tests/release/test_ledger_damage.py::test_the_name_of_a_run_that_was_paid_for_pays_for_no_other",),
    ),
    Mutant(
        "facts state a smaller budget than the plan's",
        (("run/preconditions.py", "if not same or whole.mu < part.mu:", "if False:"),),
        ("tests/run/test_honest_reports.py::test_facts_cannot_state_a_smaller_budget_than_the_plan",),
    ),
    Mutant(
        "a run of the caller's oracle says that the library clips",
        (("run/preconditions.py", "of_library = exact and", "of_library = True or"),),
        ("tests/run/test_honest_reports.py::test_a_run_states_who_clips",),
    ),
)
