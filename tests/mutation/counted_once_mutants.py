"""Seeded bugs by which a row counts twice, shares a pass with others, or takes other rows with it."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["COUNTED_ONCE"]

COUNTED_ONCE = (
    Mutant(
        "memory that holds sums of an interrupted call is handed out as zeros",
        (("clipping/borrowed_zeros.py", "return _POOL[size].pop()", "return _POOL[size][-1]"),),
        (
            "tests/clipping/test_interrupts.py::test_a_survey_after_an_interrupted_one_has_its_own_sum",
            "tests/clipping/test_interrupts.py::test_memory_that_holds_sums_is_not_in_the_pool",
        ),
    ),
    Mutant(
        "two threads count the rows of a unit",
        (
            ("estimators/base.py", "        run.begin_push(len(targets))\n", ""),
            (
                "run/run.py",
                "        if not within:\n            self.begin_push",
                "        if True:\n            self.begin_push",
            ),
        ),
        ("tests/estimators/test_partial_fit.py::test_threads_count_the_rows_of_a_unit_once",),
    ),
    Mutant(
        "a row on which a compiled slope fails ends the run",
        (
            (
                "clipping/kernels/custom.py",
                "except Exception:  # an error that depends on a row is an output: NaN makes it a zero row\n"
                "                out[i] = math.nan\n",
                "finally:\n                pass\n",
            ),
        ),
        ("tests/clipping/test_compiled.py::test_a_row_on_which_a_users_slope_fails_is_a_zero_row",),
    ),
    Mutant(
        "a model that branches on values of its rows in batches",
        (("clipping/torch/value_reads.py", "name in _READS or not _TAGS.isdisjoint(func.tags)", "False"),),
        ("tests/clipping/torch/test_isolation.py::test_a_model_that_reads_values_of_its_rows_sees_one_row_at_a_time",),
    ),
    Mutant(
        "a list of values of rows is made unseen",
        (("clipping/torch/value_reads.py", '        "tolist",\n', ""),),
        ("tests/clipping/torch/test_isolation.py::test_a_model_that_reads_values_of_its_rows_sees_one_row_at_a_time",),
    ),
    Mutant(
        "a rehearsal without padding",
        (
            (
                "clipping/torch/checks.py",
                "    found += [(torch.zeros_like(others), labels), (_padded(others), labels)]\n",
                "",
            ),
        ),
        ("tests/clipping/torch/test_isolation.py::test_a_model_that_mixes_rows_by_their_padding_is_refused",),
    ),
    Mutant(
        "a ghost rule for a layer that sees rows in another order",
        (("clipping/torch/structure.py", "if not why and name in mixing:", "if False:"),),
        (
            "tests/clipping/torch/test_seen_rows.py::"
            "test_a_row_that_layers_see_elsewhere_or_beside_others_moves_the_sum_by_two_clips",
        ),
    ),
    Mutant(
        "a row whose place is counted from the end counts again",
        (("clipping/torch/loader.py", "return index + len(rows)", "return index"),),
        ("tests/clipping/torch/test_fit.py::test_a_place_that_a_sampler_draws_again_is_left_out",),
    ),
    Mutant(
        "rows that a sampler draws again count again",
        (("clipping/torch/loader.py", "if name not in seen]", "]"),),
        ("tests/clipping/torch/test_fit.py::test_a_place_that_a_sampler_draws_again_is_left_out",),
    ),
    Mutant(
        "a file that is there twice counts twice",
        (
            (
                "rows/file_stream.py",
                "if (first := known.setdefault(identity, path)) is not path:",
                "if (first := path) is not path:",
            ),
        ),
        ("tests/rows/test_readers.py::test_one_file_under_two_names_is_refused_since_its_rows_would_count_twice",),
    ),
    Mutant(
        "a rehearsal without rows of every size",
        (
            ("clipping/torch/checks.py", "for value in (math.inf, -math.inf, math.nan)]", "for value in ()]"),
            ("clipping/torch/checks.py", "for size in (1e3, 1e30)]", "for size in (1e3,)]"),
        ),
        (
            "tests/clipping/torch/test_isolation.py::"
            "test_a_model_that_mixes_rows_out_of_sight_of_the_first_or_of_small_ones_is_refused",
        ),
    ),
    Mutant(
        "a quote that was not escaped joins rows",
        (("rows/readers/csv.py", "return self._quotes.mended(block)", "return block"),),
        ("tests/rows/test_lines_of_csv.py::test_a_quote_that_was_not_escaped_joins_no_rows",),
    ),
)
