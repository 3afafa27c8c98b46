"""Seeded bugs of diagonal maps and of surveys of sparse rows: a clip, a norm or a bound that does not hold."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["DIAGONAL"]

MAP = "tests/clipping/test_diagonal_map.py"
LONGER = f"{MAP}::test_no_rows_contribution_is_longer_than_the_clip_in_the_metric[0.5-float64]"
ODD_ROW = f"{MAP}::test_an_odd_row_changes_its_own_contribution_only"
SUMS = f"{MAP}::test_sums_are_those_of_mapped_rows[0.5-float64-int32]"
SURVEY = f"{MAP}::test_no_sparse_row_moves_the_survey_by_more_than_its_bound"
WIDE = "tests/run/test_wide_survey.py"
TINY = "test_the_clip_holds_where_the_square_of_a_norm_is_subnormal_and_slopes_are_huge"
SCALED = "clipping/kernels/scaled_rows.py"

DIAGONAL = (
    Mutant(
        "a scaled row clipped by its norm before it is scaled",
        ((SCALED, "n = (a * a * r) * (1.0", "n = (a * a * q) * (1.0"),),
        (LONGER,),
    ),
    Mutant(
        "a scaled row clipped without its constant",
        ((SCALED, "(hi - lo + 16) * doubt) + square", "(hi - lo + 16) * doubt)"),),
        (LONGER,),
    ),
    Mutant(
        "float32 squares of a scaled row that are taken to be exact",
        ((SCALED, "(a * a * r) * (1.0 + (hi - lo + 16) * doubt)", "(a * a * r)"),),
        (LONGER.replace("float64", "float32"),),
    ),
    Mutant(
        "a scaled row on the careful path clipped before it is scaled",
        ((SCALED, "mapped += b * b", "mapped += a * a"),),
        (LONGER,),
    ),
    Mutant(
        "scaled rows not shortened to the feature norm",
        ((SCALED, "a = 1.0 / max(feature_norm, math.sqrt(q))", "a = 1.0 / feature_norm"),),
        (SUMS,),
    ),
    Mutant(
        "a scaled row whose columns come twice on the fast path",
        ((SCALED, "if ordered or increasing(indices, lo, hi, width):", "if True:"),),
        (f"{ODD_ROW}[one place twice-True-int32]",),
    ),
    Mutant(
        "sums of scaled rows on a grid that is too coarse",
        (("clipping/scaled.py", "/ factor)[1] - 50)", "/ factor)[1] - 24)"),),
        (LONGER,),
    ),
    Mutant(
        "the constant's scale forgotten in the sum",
        (("clipping/scaled.py", "        factor[-1] *= row_map.constant\n", "        pass\n"),),
        (SUMS,),
    ),
    Mutant(
        "sparse rows of a survey that are not shortened",
        (("clipping/stored_values.py", "value[used] * scale[row]", "value[used]"),),
        (f"{SURVEY}[logistic]",),
    ),
    Mutant(
        "values of one place of a sparse row counted apart in a survey",
        (("clipping/stored_values.py", "    if np.all(place[1:] > place[:-1]):\n", "    if True:\n"),),
        (f"{SURVEY}[logistic]",),
    ),
    Mutant(
        "a sparse row without a valid label in a survey",
        (("clipping/sparse_survey.py", "unusable = unusable | ~loss.valid(y)", "unusable = unusable.copy()"),),
        (f"{MAP}::test_the_survey_of_sparse_rows_is_that_of_the_same_rows_made_dense[logistic-False]",),
    ),
    Mutant(
        "a survey of sparse rows by id that is rounded as a whole",
        (("clipping/sparse_survey.py", "query.grid if query.rowwise else 0.0", "0.0"),),
        (f"{MAP}::test_a_row_of_a_survey_by_id_has_the_same_bits_in_any_place",),
    ),
    Mutant(
        "an unusable sparse row that keeps its values",
        (("clipping/diagonal_map.py", "        data[ends[1:][unusable] - 1] = np.nan\n", "        pass\n"),),
        (f"{ODD_ROW}[nan-False-int32]",),
    ),
    Mutant(
        "a norm below 1e-154 by its square, in scaled rows",
        (
            (
                SCALED,
                "math.hypot(ratio * math.sqrt(mapped), math.sqrt(numbers[2]))",
                "math.sqrt((ratio * ratio) * mapped)",
            ),
        ),
        (f"{MAP}::{TINY}[1e-160]", f"{MAP}::{TINY}[3e-162]"),
    ),
    Mutant(
        "a norm below 1e-154 by its square, in mapped rows",
        (("clipping/kernels/mapped_rows.py", "if first.square == 0.0 and s * length >= SMALLEST_NORM:", "if False:"),),
        (f"tests/clipping/test_folded.py::{TINY}[3e-162]",),
    ),
)
