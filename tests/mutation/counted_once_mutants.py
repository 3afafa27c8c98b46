"""Seeded bugs by which a row counts twice, shares a pass with others, or takes other rows with it."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["COUNTED_ONCE"]

COUNTED_ONCE = (
    Mutant(
        "a gradient function may write into the iterate",
        (("clipping/per_example.py", "point.copy()", "point"),),
        (
            "tests/clipping/test_per_example.py::"
            "test_a_gradient_function_that_works_in_place_writes_into_no_other_row_and_no_iterate",
        ),
    ),
    Mutant(
        "files may be written again in another order while they are read",
        (("rows/readers/stamps.py", "stamp(path) != self._known[path]", "stamp(path) is None"),),
        ("tests/rows/test_changed_files.py::test_a_file_that_changes_between_two_blocks_is_refused_by_name",),
    ),
    Mutant(
        "a shard is read again from a file that changed",
        (("engines/dask/tasks.py", " or any(before != stamp(path) for before in known)", ""),),
        ("tests/engines/on_dask/test_tasks.py::test_a_file_that_was_written_again_in_another_order_is_refused",),
    ),
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
            ("estimators/base.py", "            run.begin_push(len(targets))  # before the charge", "            #"),
            ("estimators/base.py", "            self._run.begin_push(len(targets))\n", "            pass\n"),
            (
                "run/run.py",
                "        if not within:\n            self.begin_push",
                "        if True:\n            self.begin_push",
            ),
        ),
        ("tests/estimators/test_partial_fit.py::test_threads_count_the_rows_of_a_unit_once",),
    ),
    Mutant(
        "a compiled slope that reads beyond its arrays",
        (("clipping/kernels/custom.py", "njit(copy, boundscheck=True)", "njit(copy)"),),
        ("tests/clipping/test_slopes_of_the_user.py::test_an_index_beyond_an_array_makes_a_zero_row[plain]",),
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
        (("clipping/torch/value_reads.py", "name in _READS or not _TAGS.isdisjoint(operator.tags)", "False"),),
        ("tests/clipping/torch/test_isolation.py::test_a_model_that_reads_values_of_its_rows_sees_one_row_at_a_time",),
    ),
    Mutant(
        "a list of values of rows is made unseen",
        (("clipping/torch/value_reads.py", '        "tolist",\n', ""),),
        ("tests/clipping/torch/test_isolation.py::test_a_model_that_reads_values_of_its_rows_sees_one_row_at_a_time",),
    ),
    Mutant(
        "operators that add a row's place to its indices run under vmap",
        (
            ("clipping/torch/recorded.py", "if together and not self.apart:", "if together:"),
            ("clipping/torch/structure.py", "if passes.apart:\n            return", "if False:\n            return"),
        ),
        ("tests/clipping/torch/test_recorded.py::test_the_sum_is_that_of_rows_that_are_alone",),
    ),
    Mutant(
        "an operator of the caller's own runs under vmap",
        (
            ("clipping/torch/recorded.py", 'if func.namespace not in ("aten", "prims"):', "if False:"),
            ("clipping/torch/batching_rules.py", "or (not whole and name in SAFE_FLOATS)", "or not whole"),
        ),
        ("tests/clipping/torch/test_recorded.py::test_a_neighbour_moves_the_sum_by_two_clips_at_most",),
    ),
    Mutant(
        "one module for all rows of a model that cannot be recorded",
        (
            (
                "clipping/torch/passes.py",
                "    return copy.deepcopy(weights.untouched, known), own",
                "    module = weights.module\n"
                "    for name, value in own.items():\n"
                "        module.get_parameter(name).data = value.data\n"
                "    return module, dict(module.named_parameters())",
            ),
        ),
        ("tests/clipping/torch/test_recorded.py::test_a_neighbour_moves_the_sum_by_two_clips_at_most",),
    ),
    Mutant(
        "the code of a model runs on a block of rows",
        (
            ("clipping/torch/passes.py", "for k in range(len(labels)):", "for k in (0,):"),
            ("clipping/torch/passes.py", "module(rows[k : k + 1].clone())", "module(rows.clone())"),
            ("clipping/torch/passes.py", "labels[k : k + 1].clone()", "labels.clone()"),
            (
                "clipping/torch/passes.py",
                "name: torch.stack(parts) for",
                "name: torch.stack([parts[0] / len(labels)] * len(labels)) for",
            ),
        ),
        ("tests/clipping/torch/test_isolation.py::test_a_model_sees_no_row_of_the_data_and_never_more_than_one",),
    ),
    Mutant(
        "a row whose place is counted from the end counts again",
        (("clipping/torch/loader.py", "index += len(rows)", "index += 0"),),
        ("tests/clipping/torch/test_loaders.py::test_a_place_that_a_sampler_draws_again_is_left_out",),
    ),
    Mutant(
        "rows that a sampler draws again count again",
        (("clipping/torch/loader.py", "if name not in seen]", "]"),),
        ("tests/clipping/torch/test_loaders.py::test_a_place_that_a_sampler_draws_again_is_left_out",),
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
        "a written buffer goes unnoticed",
        (("clipping/torch/recorded.py", "if self.written - self.own - self.rows:", "if False:"),),
        ("tests/clipping/torch/test_recorded.py::test_a_hook_that_writes_into_a_buffer_is_refused",),
    ),
    Mutant(
        "a quote that was not escaped joins rows",
        (("rows/readers/csv_quotes.py", "if found.end() < len(text) and b", "if False and b"),),
        ("tests/rows/test_lines_of_csv.py::test_a_quote_that_was_not_escaped_joins_no_rows",),
    ),
)
