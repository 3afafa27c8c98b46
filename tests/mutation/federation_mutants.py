"""Seeded bugs of federations: a client or a node that decides about others, counts and deadlines."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["FEDERATION"]

FAULTS = "tests/engines/on_flower/test_faults.py"
PRESENCE = "tests/engines/on_flower/test_presence.py"

FEDERATION = (
    Mutant(
        "a node with a long sum is dropped whole",
        (
            (
                "engines/flower/server.py",
                "            shorter = numbers.astype(np.float64) * (most / length)\n",
                "            return None\n            shorter = numbers.astype(np.float64) * (most / length)\n",
            ),
        ),
        ("tests/engines/on_flower/test_faults.py::test_one_more_row_moves_a_long_sum_by_no_more_than_one_row",),
    ),
    Mutant(
        "the raw count decides that nobody answered",
        (
            (
                "engines/flower/server.py",
                "return silent(count.release(",
                "return not counted and silent(count.release(",
            ),
        ),
        (f"{PRESENCE}::test_the_decision_rests_on_the_released_count_alone",),
    ),
    Mutant(
        "training keeps the budget of the count",
        (
            (
                "engines/flower/presence.py",
                "budget=_part(self.plan.budget, math.sqrt(1.0 - SHARE * SHARE))",
                "budget=self.plan.budget",
            ),
        ),
        (f"{PRESENCE}::test_training_and_count_together_have_the_budget",),
    ),
    Mutant(
        "places of a node taken as they come",
        (("engines/flower/transport.py", "all(type(place) is int for place in places)", "True"),),
        ("tests/engines/on_flower/test_replies.py::test_a_node_that_names_no_places_is_asked_in_every_round",),
    ),
    Mutant(
        "a client whom no answer can name",
        (("engines/flower/client.py", "asked.places) if can_carry(client) else None", "asked.places)"),),
        (f"{FAULTS}::test_an_id_that_an_answer_cannot_name_costs_no_other_client_of_its_node",),
    ),
    Mutant(
        "clients of a node share the points of a query",
        (("engines/flower/client.py", "gradients(x.copy())", "gradients(x)"),),
        (f"{FAULTS}::test_a_gradient_function_that_works_in_place_changes_no_other_client",),
    ),
    Mutant(
        "an id that is no text ends the answer of its node",
        (("engines/flower/wire.py", "return isinstance(name, str) and name.isascii()", "return name.isascii()"),),
        (f"{FAULTS}::test_an_id_that_is_no_text_costs_no_other_client_of_its_node[None]",),
    ),
    Mutant(
        "clients of a node under the text of their ids' type",
        (
            (
                "engines/flower/app.py",
                'column_texts(_own_ids(ids), of="id")',
                "np.unique(np.asarray(ids).astype(str), return_inverse=True)",
            ),
        ),
        (
            "tests/engines/on_flower/test_breaks.py::"
            "test_an_odd_id_in_the_rows_of_a_node_leaves_the_other_clients_their_ids",
        ),
    ),
    Mutant(
        "ids of a node refused for the type that a missing one gives them",
        (("engines/flower/app.py", "column_texts(_own_ids(ids), of=", "column_texts(ids, of="),),
        ("tests/engines/on_flower/test_rows_of_a_node.py::test_a_missing_id_takes_the_id_of_its_row_alone",),
    ),
    Mutant(
        "large ids of a node count unless one is missing",
        (("engines/flower/app.py", "[id_text(complex(number)) for", "[id_text(number) for"),),
        ("tests/engines/on_flower/test_rows_of_a_node.py::test_large_numbers_are_no_ids_whatever_their_type",),
    ),
    Mutant(
        "a gradient function that ends the process of a node",
        (("engines/flower/client.py", "except BaseException:", "except Exception:"),),
        (
            "tests/engines/on_flower/test_client.py::"
            "test_whatever_a_gradient_function_raises_costs_its_own_client_alone[SystemExit]",
        ),
    ),
    Mutant(
        "a client's word taken for its clip",
        (("engines/flower/server.py", "        if length <= bound:\n", "        if True:\n"),),
        ("tests/replay/test_every_federation.py::test_a_client_moves_one_round_whatever_it_says[unclipped]",),
    ),
    Mutant(
        "an answer that comes twice counts twice",
        (("engines/flower/server.py", "total = total + counted\n", "total = total + counted * (1 + len(again))\n"),),
        ("tests/replay/test_every_federation.py::test_a_client_moves_one_round_whatever_it_says[twice]",),
    ),
    Mutant(
        "replies read one after the other: a slow one lets late ones count",
        (("engines/flower/transport.py", "reader.start()", "reader.run()"),),
        ("tests/engines/on_flower/test_replies.py::test_a_reply_that_takes_long_to_read_lets_no_late_one_count[0.5]",),
    ),
    Mutant(
        "a client counts in rounds that are not its own",
        (
            (
                "engines/flower/server.py",
                "elif called_by(asked, self._assignment, name):",
                "elif True:",
            ),
        ),
        ("tests/engines/on_flower/test_faults.py::test_a_faulty_client_counts_as_zero[not its round]",),
    ),
    Mutant(
        "a federation asks surveyed clients again",
        (("engines/flower/client.py", "asked.first <= place < asked.last", "place < asked.last"),),
        (
            "tests/engines/on_flower/test_surveyed.py::"
            "test_every_client_is_asked_once_and_the_stretches_of_places_are_disjoint",
        ),
    ),
    Mutant(
        "a federation that takes second moments under replace",
        (
            (
                "engines/flower/server.py",
                "if plan.schedule.survey_length and",
                "if isinstance(plan.method, Surveyed) and",
            ),
        ),
        (
            "tests/engines/on_flower/test_surveyed.py::"
            "test_second_moments_under_replace_are_refused_whatever_method_asks_for_them[client]",
        ),
    ),
    Mutant(
        "a fork between the count of a federation and its key releases it a second time",
        (
            (
                "engines/flower/presence.py",
                'key = derive(new_key(), "count", digest)',
                'key, process = derive(new_key(), "count", digest), __import__("os").getpid()',
            ),
        ),
        (
            "tests/engines/on_flower/test_presence.py::"
            "test_a_fork_behind_the_last_round_does_not_release_the_count_a_second_time",
        ),
    ),
    Mutant(
        "the count of a federation whose run is gone decides for the next one",
        (("engines/flower/cohorts.py", 'if not (folder / "run/run.json").exists() and', "if False and"),),
        (
            "tests/engines/on_flower/test_checkpoint.py::"
            "test_the_verdict_of_a_federation_whose_run_is_gone_decides_nothing",
        ),
    ),
    Mutant(
        "clients of a federation whose header is lost are called twice",
        (("engines/flower/server.py", 'form=f"{unit} {rule.digest()}"', "form=None"),),
        ("tests/engines/on_flower/test_checkpoint.py::test_a_lost_header_lets_no_client_be_called_twice",),
    ),
    Mutant(
        "a report of clients speaks of rows",
        (("engines/flower/server.py", 'record="client", ', ""),),
        ("tests/engines/on_flower/test_checkpoint.py::test_a_report_of_clients_promises_nothing_for_their_rows",),
    ),
    Mutant(
        "sums of a federation left on disk by an error behind the last release",
        (
            (
                "engines/flower/server.py",
                "                    if run.complete:\n",
                "                    if False:\n",
            ),
        ),
        (
            "tests/engines/on_flower/test_checkpoint.py::test_no_sum_is_left_on_disk_by_an_error_behind_the_last_release",
        ),
    ),
    Mutant(
        "a fork that releases the count of a federation again",
        (
            (
                "engines/flower/server.py",
                "        if self.process != os.getpid():\n",
                "        self.process = os.getpid()\n        if False:\n",
            ),
        ),
        (
            "tests/engines/on_flower/test_presence.py::"
            "test_a_fork_behind_the_last_round_does_not_release_the_count_a_second_time",
        ),
    ),
    Mutant(
        "one node's unreadable reply ends the run",
        (("engines/flower/transport.py", "            return [None]\n", "            raise\n"),),
        ("tests/engines/on_flower/test_replies.py::test_a_reply_that_cannot_be_read_is_that_of_one_node",),
    ),
    Mutant(
        "a federation goes on with the answers of another",
        (
            (
                "engines/flower/cohorts.py",
                "hashlib.sha256(self.run_id.encode() + asked.digest)",
                "hashlib.sha256(asked.digest)",
            ),
        ),
        ("tests/engines/on_flower/test_checkpoint.py::test_answers_of_another_run_of_the_same_plan_are_refused",),
    ),
    Mutant(
        "a federation that nobody answered is a success when it is resumed",
        (
            (
                "engines/flower/cohorts.py",
                'write_sealed(place, {"format": FORMAT, "run": self.run_id, "nobody answered": found})',
                "return found and bool(self._rounds())",
            ),
        ),
        ("tests/engines/on_flower/test_presence.py::test_a_federation_that_nobody_answered_stays_one",),
    ),
)
