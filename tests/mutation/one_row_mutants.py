"""Seeded bugs of one kind: a row, a cell, a container or a process decides about something other than itself."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["ONE_ROW"]

ODD = "tests/rows/test_one_odd_row.py"
DECLARED = "tests/rows/test_declared_types.py"
DECIDES = "tests/rows/test_types_one_cell_decides.py"
DAMAGE = "tests/rows/test_damage_or_cell.py"
IDS = "tests/rows/test_ids.py"
LINES = "tests/rows/test_lines_of_csv.py"

ONE_ROW = (
    Mutant(
        "the caller's error mode lets a row end a run",
        (("run/stage.py", 'with np.errstate(all="ignore"), beside', "with np.errstate(), beside"),),
        ("tests/methods/test_breaks.py::test_no_row_ends_a_run_under_the_caller_s_error_mode[phased-sgd]",),
    ),
    Mutant(
        "only NumPy's booleans in text are numbers",
        (("rows/cells.py", "BOOLEANS.get(cell.strip().lower(), cell)", "BOOLEANS.get(cell.strip(), cell)"),),
        (f"{DECIDES}::test_booleans_and_signs_in_text",),
    ),
    Mutant(
        "a number with a plus is text",
        (("rows/cells.py", "text[1:] if _SIGNED.match(text) else text", "text"),),
        (f"{DECIDES}::test_ids_with_a_sign_are_the_ids_that_a_reader_makes_numbers_of",),
    ),
    Mutant(
        "levels beyond 2^53 by their digits",
        (("rows/cells.py", "return str(int(value)) if value.is_integer() else repr(value)", "return text"),),
        (f"{DECIDES}::test_whole_numbers_beyond_2_to_53_in_categories",),
    ),
    Mutant(
        "an intercept's column that a clip cuts",
        (("methods/objective_perturbation.py", "min(1.0, _INTERCEPT * F)", "_INTERCEPT * F"),),
        ("tests/methods/test_objective_perturbation.py::test_the_planned_clip_clips_no_row_of_several_classes",),
    ),
    Mutant(
        "a blank line of a CSV file is no row",
        (("rows/readers/csv_parse.py", "ignore_empty_lines=False", "ignore_empty_lines=True"),),
        (f"{DECLARED}::test_a_blank_line_is_a_row_and_moves_no_other",),
    ),
    Mutant(
        "a line of blanks is no row",
        (("rows/readers/csv_parse.py", "        self._places.append(row.number - 1 - self._first)\n", ""),),
        (f"{LINES}::test_a_line_of_blanks_far_behind_costs_its_own_row",),
    ),
    Mutant(
        "the rows behind a line that Arrow refuses are dropped",
        (("rows/readers/csv_parse.py", 'return "error"', 'return "skip"'),),
        (f"{LINES}::test_a_line_of_blanks_far_behind_costs_its_own_row",),
    ),
    Mutant(
        "a block that ends between CR and LF",
        (
            (
                "rows/readers/csv_quotes.py",
                'whole = len(block) - block.endswith(b"\\r")',
                "whole = len(block)",
            ),
        ),
        ("tests/rows/test_csv_blocks.py::test_a_block_that_ends_between_cr_and_lf_ends_the_cell_before_it",),
    ),
    Mutant(
        "a cell with a plus that is not UTF-8 stops the run",
        (
            (
                "rows/readers/arrow_columns.py",
                "        column = pc.if_else(numeric, column, pa.scalar(None, column.type))\n",
                '        column = pc.if_else(numeric, pc.utf8_ltrim(column, "+"), pa.scalar(None, column.type))\n',
            ),
        ),
        (f"{LINES}::test_one_cell_that_is_not_utf8_stops_no_column_of_numbers",),
    ),
    Mutant(
        "ids of JSON lines as labels",
        (("rows/readers/json_lines.py", "dict.fromkeys(ids, id_text)", "dict.fromkeys(ids, label_text)"),),
        (f"{IDS}::test_different_ids_are_different_people_in_files",),
    ),
    Mutant(
        "ids of tables as canonical numbers",
        (("rows/readers/arrow_columns.py", "_as_text(batch.column(name)), id_text)", "_as_text(batch.column(name)))"),),
        (f"{IDS}::test_different_ids_are_different_people_in_files",),
    ),
    Mutant(
        "ids in text as canonical numbers",
        (("rows/cells.py", "text[1:] if _SIGNED.match(text) else text", "canonical_text(text)"),),
        (f"{IDS}::test_ids_that_are_written_differently_are_different_people_in_memory",),
    ),
    Mutant(
        "a day with a time of day is damage",
        (
            (
                "rows/readers/arrow.py",
                "if pa.types.is_date64(column.type):\n        return",
                "if False:\n        return",
            ),
        ),
        (f"{DAMAGE}::test_a_day_with_a_time_of_day_is_its_day",),
    ),
    Mutant(
        "an infinite target counts",
        (("rows/row_norm.py", "np.where(np.isfinite(targets), np.clip", "np.where(~np.isnan(targets), np.clip"),),
        (f"{DAMAGE}::test_a_target_that_is_not_finite_is_a_zero_row",),
    ),
    Mutant(
        "a message about complex labels quotes them",
        (
            (
                "estimators/validation.py",
                "        _refuse_complex(y)\n",
                "        column_or_1d(y)\n",
            ),
        ),
        ("tests/estimators/test_odd_labels.py::test_no_check_of_labels_quotes_a_cell_or_a_count",),
    ),
    Mutant(
        "a blank line of a libsvm file is no row",
        (
            (
                "rows/readers/libsvm.py",
                'lines = [line if line.strip() else b"nan" for line in _lines(block)]',
                "lines = [line for line in _lines(block) if line.strip()]",
            ),
        ),
        (f"{DECLARED}::test_a_blank_line_is_a_row_and_moves_no_other",),
    ),
    Mutant(
        "labels that are numpy scalars are no labels",
        (
            (
                "rows/cells.py",
                "        return _plain(cell.item() if isinstance(cell, np.generic) else cell)\n",
                "        return _plain(None if isinstance(cell, np.generic) else cell)\n",
            ),
        ),
        (f"{ODD}::test_one_odd_label_leaves_every_other_row_its_own",),
    ),
    Mutant(
        "an item of many rows counts as many rows",
        (
            (
                "rows/gate.py",
                "        return self.chunk([row for row, _ in known], [label for _, label in known])",
                "        known = [one for x, y in known for one in (zip(x, y) if np.ndim(y) else [(x, y)])]\n"
                "        return self.chunk([row for row, _ in known], [label for _, label in known])",
            ),
        ),
        (f"{ODD}::test_an_item_that_holds_many_rows_counts_as_one_zero_row",),
    ),
    Mutant(
        "the type of a table picks the kernel",
        (
            (
                "clipping/kernel_inputs.py",
                "    if given != _FLOAT32:\n        return _FLOAT64\n",
                "    if given == _FLOAT64:\n        return _FLOAT64\n",
            ),
        ),
        (f"{ODD}::test_a_missing_cell_in_a_table_of_bytes_moves_the_compiled_sum_by_no_more_than_its_row",),
    ),
    Mutant(
        "rows without an id count",
        (("rows/contribution_cap.py", "if text else self.limit for text", "if text else 0 for text"),),
        (f"{ODD}::test_rows_without_an_id_never_count_and_raise_nothing",),
    ),
    Mutant(
        "a number beyond float64 stops the run",
        (
            (
                "rows/cells.py",
                "    except Exception:  # beyond float64, no text, or",
                "    except ValueError:  # beyond float64, no text, or",
            ),
        ),
        (
            f"{ODD}::test_one_odd_cell_never_raises_and_costs_its_row",
            f"{ODD}::test_a_target_beyond_float64_is_a_zero_row",
        ),
    ),
    Mutant(
        "a message about complex numbers quotes them",
        (
            (
                "estimators/validation.py",
                'raise DataError(f"Complex data not supported: X holds complex numbers. {_REMEDY}")',
                'raise DataError(f"Complex data not supported: {X}. {_REMEDY}")',
            ),
        ),
        (f"{ODD}::test_messages_quote_no_row",),
    ),
    Mutant(
        "an id of an unknown kind is compared",
        (
            (
                "rows/cells.py",
                'return repr(cell) if isinstance(cell, int) and not isinstance(cell, bool) else ""',
                'return repr(cell) if cell is not None else ""',
            ),
        ),
        (f"{ODD}::test_rows_without_an_id_never_count_and_raise_nothing",),
    ),
    Mutant(
        "a message says how many rows there are",
        (
            (
                "rows/gate.py",
                'raise DataError("Expected one label per row of X; their numbers differ.")',
                'raise DataError(f"Expected one label per row of X: {rows} rows, {len(labels)} labels.")',
            ),
        ),
        (f"{ODD}::test_messages_quote_no_row",),
    ),
    Mutant(
        "one byte that is not UTF-8 stops a CSV run",
        (("rows/readers/csv_parse.py", "check_utf8=False", "check_utf8=True"),),
        (f"{ODD}::test_one_byte_that_is_not_utf8_costs_its_own_cell",),
    ),
    Mutant(
        "the first row of a CSV file printed as its header",
        (("rows/readers/csv.py", "self.has_schema = self._stated is not None", "self.has_schema = True"),),
        (f"{ODD}::test_a_csv_without_a_header_does_not_print_its_first_row",),
    ),
    Mutant(
        "the first row of a second CSV file printed as its header",
        (("rows/readers/csv.py", "names := self._header(path), show=False)", "names := self._header(path))"),),
        (f"{ODD}::test_a_csv_without_a_header_does_not_print_its_first_row",),
    ),
    Mutant(
        "booleans are ids",
        (("rows/column_types.py", 'odd = "fc" if levels is not None else "fcb"', 'odd = "fc"'),),
        (f"{IDS}::test_booleans_are_no_ids_because_one_other_id_would_rename_them",),
    ),
    Mutant(
        "ids above 2^53 through float64",
        (("rows/cells.py", "return repr(cell) if isinstance(cell, int)", "return repr(float(cell)) if cell"),),
        (f"{ODD}::test_ids_above_2_to_53_are_different_people",),
    ),
    Mutant(
        "7 and 7.0 are two people",
        (
            (
                "rows/cells.py",
                "            return str(int(cell)) if cell.is_integer() and",
                "            return repr(cell) if cell.is_integer() and",
            ),
        ),
        (f"{ODD}::test_the_forms_of_one_number_are_one_person",),
    ),
    Mutant(
        "an audit that saw nothing passes",
        (("audit/replay.py", "tested=not idle", "tested=True"),),
        ("tests/audit/test_audit.py::test_an_audit_that_observed_nothing_is_not_tested_and_not_passed",),
    ),
    Mutant(
        "a gradient function is tried only where a row failed",
        (
            (
                "clipping/per_example.py",
                "except BaseException:  # an error that depends on a row is an output, SystemExit too",
                "except MemoryError:",
            ),
        ),
        (
            "tests/clipping/test_per_example.py::"
            "test_a_row_on_which_the_function_fails_is_a_zero_row_even_if_synthetic_rows_of_zeros_fail_too",
        ),
    ),
    Mutant(
        "the first line of a text file in messages",
        (
            (
                "cli/data_options.py",
                "if source.has_schema or all(math.isnan(number(name)) for name in source.names):",
                "if True:",
            ),
        ),
        ("tests/cli/test_raw_files.py::test_a_first_row_that_holds_the_name_of_the_label_is_not_printed_as_names",),
    ),
    Mutant(
        "the layout of an array chooses the kernel",
        (
            (
                "rows/gate.py",
                "(len(self._data), declared.width), np.dtype(declared.dtype)",
                '(len(self._data), declared.width), np.dtype("float64")',
            ),
        ),
        ("tests/estimators/test_neighbours.py::test_the_layout_of_an_array_changes_no_bit_of_a_sum",),
    ),
    Mutant(
        "each piece of pushed rows declares its own type",
        (("estimators/raw_input.py", "(None, None) if first else self._form", "(None, None)"),),
        (
            "tests/estimators/test_partial_fit.py::"
            "test_the_first_rows_declare_the_type_of_all_so_no_odd_cell_changes_another_row",
        ),
    ),
    Mutant(
        "a row of a later push stops the run",
        (("estimators/base.py", "strict = self._strict and first", "strict = self._strict"),),
        ("tests/estimators/test_partial_fit.py::test_no_row_behind_the_first_call_decides_whether_the_run_goes_on",),
    ),
    Mutant(
        "canaries under replace that leave second moments as they are",
        (("audit/canaries.py", "if _by_features(plan) and rows.shape[1] >= 2 * len(rows):", "if False:"),),
        ("tests/audit/test_second_moments.py::test_canaries_move_second_moments_almost_as_far_as_declared",),
    ),
    Mutant(
        "a gradient function that warns of a row",
        (("clipping/no_warnings.py", 'warnings.simplefilter("ignore")', "pass"),),
        (
            "tests/clipping/test_per_example.py::"
            "test_warnings_of_python_code_inside_the_function_are_silent_on_rows_of_the_data",
            "tests/engines/on_flower/test_client.py::test_what_a_gradient_function_warns_of_on_its_rows_is_not_shown",
        ),
    ),
)
