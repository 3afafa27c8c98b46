"""Seeded bugs of reading: a cell, a stored zero or a step before the estimator decides about other rows."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["INGESTION"]

LINE_ENDS = "tests/rows/test_line_ends_of_csv.py"
ZONES = "tests/rows/test_dates_with_zones.py"
DECIDES = "tests/rows/test_types_one_cell_decides.py"
TYPES = "tests/rows/test_column_types.py"
CLASSES = "tests/rows/test_classes_of_cells.py"

INGESTION = (
    Mutant(
        "a step in place decides whether rows keep their norm",
        (
            ("rows/encoded_rows.py", "own.flags.writeable = False", "own.flags.writeable = True"),
            ("rows/encoded_rows.py", "any(part.flags.writeable for part in _parts(rows))", "False"),
        ),
        ("tests/estimators/test_origin_of_rows.py::test_a_step_in_place_fails_whatever_the_cells_hold",),
    ),
    Mutant(
        "rows keep their norm when their parts are replaced",
        (("rows/encoded_rows.py", "columns if same and rows.shape == shape", "columns if rows.shape == shape"),),
        ("tests/estimators/test_origin_of_rows.py::test_rows_whose_parts_were_replaced_carry_no_norm",),
    ),
    Mutant(
        "zeros that a block stores for the rows beside it",
        (("rows/csr.py", 'zeros=form == "coo")', "zeros=True)"),),
        ("tests/rows/test_sparse_formats.py::test_what_is_stored_of_a_row_depends_on_that_row_alone",),
    ),
    Mutant(
        "a class named by a digit of another script is a number",
        (("estimators/public_facts.py", "number if label_text(number) == text else None", "number"),),
        ("tests/estimators/test_odd_labels.py::test_the_type_of_labels_does_not_decide_which_class_they_are",),
    ),
    Mutant(
        "a time with a zone has the day that it shows",
        (("rows/named_columns.py", "cell.tzinfo is None else _day_in_utc(cell)", "True else None"),),
        (f"{ZONES}::test_a_time_that_its_clock_never_showed_has_one_day_in_every_container",),
    ),
    Mutant(
        "the zone of the first cell decides on the days of an Arrow column",
        (
            (
                "rows/readers/arrow_columns.py",
                "return _times(whole.cast(pa.int64()), kind.unit)",
                'return _times(arrow("pyarrow.compute").local_timestamp(whole).cast(pa.int64()), kind.unit)',
            ),
        ),
        (f"{ZONES}::test_the_zone_of_one_row_moves_no_other_date",),
    ),
    Mutant(
        "a text with an offset has the day that it shows",
        (("rows/column_kinds.py", "- _EPOCH + later)", "- _EPOCH)"),),
        (f"{ZONES}::test_the_zone_of_one_row_moves_no_other_date",),
    ),
    Mutant(
        "values of one place of a sparse matrix are added in the type that one row gives them",
        (("rows/csr.py", 'given if declared else column_numbers(given, "X")', "given"),),
        ("tests/rows/test_sparse_formats.py::test_values_of_one_place_add_up_alike_whatever_type_one_row_gives_them",),
    ),
    Mutant(
        "decimals are multiplied by a power of ten that one row decides on",
        (
            (
                "rows/readers/arrow_columns.py",
                "if pa.types.is_decimal(column.type):  # the digits",
                "if False:  # the digits",
            ),
        ),
        (f"{DECIDES}::test_the_digits_of_one_decimal_change_no_other_number_of_a_file",),
    ),
    Mutant(
        "labels of a file that one row made into times",
        (("rows/file_stream.py", "        source.refuse_times(form.words)\n        for name", "        for name"),),
        (f"{DECIDES}::test_a_column_of_times_of_a_file_is_refused_where_text_was_declared",),
    ),
    Mutant(
        "one index for the levels of all chunks",
        (("rows/readers/arrow_columns.py", "return list(column.chunks) or", "return [column.combine_chunks()] or"),),
        (f"{DECIDES}::test_one_level_more_than_an_index_of_arrow_counts_stops_no_call",),
    ),
    Mutant(
        "a boolean takes the id of the number that it is equal to",
        (("rows/containers.py", "return whole if category == whole else category", "return category"),),
        (f"{DECIDES}::test_an_odd_cell_that_is_equal_to_others_does_not_rename_them_in_a_category",),
    ),
    Mutant(
        "a carriage return in a cell makes a row",
        (("rows/readers/csv_quotes.py", "letters[lone[np.searchsorted(quotes, lone) % 2 == 0]] = blank[0]", "pass"),),
        (f"{LINE_ENDS}::test_files_of_writers_that_leave_a_carriage_return_unquoted",),
    ),
    Mutant(
        "a carriage return in a cell of a file with odd quotes makes a row",
        (("rows/readers/csv_quotes.py", "letters[other[~inside]] = self._blank[0]", "pass"),),
        (f"{LINE_ENDS}::test_random_text_is_read_as_letter_by_letter",),
    ),
    Mutant(
        "a file whose header ends in CR is read by what its first row begins with",
        (("rows/readers/csv.py", "        _check_line_end(path)\n", ""),),
        (f"{LINE_ENDS}::test_a_header_that_ends_in_a_carriage_return_alone_is_refused",),
    ),
    Mutant(
        "blocks of a file with odd quotes end in the middle of rows",
        (("rows/readers/csv_quotes.py", "cut = int(ends[-1]) + 1 if len(ends) else 0", "cut = len(text)"),),
        (f"{LINE_ENDS}::test_random_text_is_read_as_letter_by_letter",),
    ),
    Mutant(
        "an Arrow stream that was cut between two batches is complete",
        (("rows/readers/arrow.py", "if self._missing:", "if False:"),),
        ("tests/rows/test_readers.py::test_an_arrow_stream_that_was_cut_between_two_batches_is_refused",),
    ),
    Mutant(
        "an even number of quotes counts as clean",
        (("rows/readers/csv_quotes.py", "clean = not len(quotes) or _clean(", "clean = True or _clean("),),
        (f"{LINE_ENDS}::test_two_quotes_on_a_line_that_were_not_escaped_join_no_rows",),
    ),
    Mutant(
        "a quote that is never closed joins the rows behind it",
        (("rows/readers/csv_quotes.py", "if found is not None and not found[2]:", "if False:"),),
        (f"{LINE_ENDS}::test_a_quote_that_is_never_closed_stops_the_run",),
    ),
    Mutant(
        "times that a reader of pandas made of text are missing",
        (("rows/column_types.py", 'and (form != "dates" or dates)', ""),),
        (f"{DECIDES}::test_times_that_a_reader_of_pandas_made_are_refused_where_numbers_or_text_were_declared",),
    ),
    Mutant(
        "the first of True and 1 decides whether ids in categories are refused",
        (("rows/column_types.py", 'odd = "fc" if levels is not None else "fcb"', 'odd = "fcb"'),),
        ("tests/rows/test_ids.py::test_the_first_of_true_and_1_does_not_decide_on_the_ids_of_a_category",),
    ),
    Mutant(
        "one text among targets makes text of all",
        (("estimators/validation.py", "    y = plain_column(y)\n", "    y = np.asarray(y)\n"),),
        ("tests/estimators/test_neighbours.py::test_one_target_of_a_list_does_not_decide_on_the_type_of_all",),
    ),
    Mutant(
        "one row of a list decides on the type of all where nobody stated the width",
        (("rows/stream.py", "width = _same_width(self._data)", "self._data = np.asarray(self._data)"),),
        (
            "tests/rows/test_declared_types.py::"
            "test_one_row_of_a_list_whose_width_nobody_stated_does_not_decide_on_the_type_of_all",
        ),
    ),
    Mutant(
        "a type of polars that no list knows is read",
        (
            (
                "rows/column_types.py",
                '_POLARS.get(kind.base_type().__name__, "records")',
                '_POLARS.get(kind.base_type().__name__, "cells")',
            ),
        ),
        (f"{TYPES}::test_types_of_polars",),
    ),
    Mutant(
        "a type of Arrow that no list knows is read",
        (("rows/column_types.py", 'return "times" if types.is_temporal(kind) else "records"', 'return "cells"'),),
        (f"{TYPES}::test_types_of_arrow",),
    ),
    Mutant(
        "a type of pandas that no list knows is read",
        (("rows/column_types.py", 'if isinstance(kind, dtype)), "values of another package")', 'if False), "cells")'),),
        (f"{TYPES}::test_types_of_pandas",),
    ),
    Mutant(
        "a structured array is read",
        (("rows/column_types.py", '.startswith("ml_dtypes") else "records"', '.startswith("ml_dtypes") else "cells"'),),
        (f"{TYPES}::test_types_of_numpy",),
    ),
    Mutant(
        "tables of packages that no list knows are read by the array that NumPy makes of them",
        (("rows/protocols.py", "any(hasattr(kind, name) for name in _TABLE)", "False"),),
        (f"{TYPES}::test_every_kind_of_container_is_known_by_its_type_or_refused",),
    ),
    Mutant(
        "dates that polars made into numbers beside a NaN are missing",
        (("rows/named_columns.py", 'if family(column) == "polars column" and column.dtype.is_float():', "if False:"),),
        (f"{DECIDES}::test_dates_that_polars_makes_into_numbers_beside_a_nan_are_refused",),
    ),
    Mutant(
        "the text that a class writes for its numbers",
        (("rows/cells.py", "issubclass(kind, plain)), cell)", "kind is plain), cell)"),),
        (f"{CLASSES}::test_members_of_an_enum_are_labels_and_ids_by_their_number_alone",),
    ),
    Mutant(
        "the class of a cell is asked of the cell",
        (("rows/lists.py", "issubclass(type(item), (tuple, list))", "isinstance(item, (tuple, list))"),),
        (f"{CLASSES}::test_an_object_without_a_class_is_one_zero_row",),
    ),
    Mutant(
        "targets of float32 unless one is missing",
        (
            (
                "rows/readers/arrow_columns.py",
                "_chunks(decoded(column))], dtype=np.float64)",
                "_chunks(decoded(column))])",
            ),
        ),
        (f"{CLASSES}::test_a_missing_target_of_float32_leaves_the_targets_of_other_rows",),
    ),
    Mutant(
        "NumPy makes numbers of the cells of a deque and warns of a masked one",
        (("rows/lists.py", 'if family(row) != "list":', "if not isinstance(row, (list, tuple)):"),),
        (f"{CLASSES}::test_a_masked_cell_of_a_sequence_warns_of_nothing",),
    ),
)
