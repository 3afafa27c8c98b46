"""Seeded privacy bugs: each a substitution in the source, and the tests that must notice it.

A snippet must occur exactly once in its file, or the mutant itself fails: the list cannot rot in silence.
"""

from __future__ import annotations

from tests.mutation.counted_once_mutants import COUNTED_ONCE
from tests.mutation.diagonal_mutants import DIAGONAL
from tests.mutation.federation_mutants import FEDERATION
from tests.mutation.ingestion_mutants import INGESTION
from tests.mutation.mutant import Mutant
from tests.mutation.network_mutants import NETWORKS
from tests.mutation.objective_mutants import OBJECTIVE
from tests.mutation.one_row_mutants import ONE_ROW
from tests.mutation.report_mutants import REPORT
from tests.mutation.state_mutants import STATE
from tests.mutation.surveyed_objective_mutants import SURVEYED_OBJECTIVE

__all__ = ["CONTROL", "MUTANTS", "NAMED", "Mutant"]


CLIP_NOTHING_LATER = (
    "clipping/per_example.py",
    "clip_scale(lengths, query.clip, rows.shape[1])",
    "clip_scale(lengths, np.inf, rows.shape[1])",
)
PER_EXAMPLE = "tests/clipping/test_per_example.py::test_the_sum_is_that_of_clipped_weighted_differences"
EXACT_SIGMA = "tests/release/test_calibration.py::test_sigma_is_never_below_what_exact_arithmetic_asks_for"
FLOAT_NOISE = "tests/release/test_float_noise.py"
SURVEYED = "tests/run/test_surveyed.py"

MUTANTS = (
    Mutant(
        "the paper's printed sigma",
        (
            (
                "release/calibration.py",
                "sigma = _SAFE * mechanism.sensitivity * difference / budget.mu_per_record",
                "sigma = difference * math.sqrt(math.log2(mechanism.horizon) * math.log(2.5 / budget.delta))"
                " / budget.epsilon",
            ),
        ),
        (EXACT_SIGMA,),
    ),
    Mutant(
        "a tree one level short",
        (
            (
                "release/mechanisms/tree.py",
                "math.sqrt(self.horizon.bit_length())",
                "math.sqrt(self.horizon.bit_length() - 1)",
            ),
        ),
        (EXACT_SIGMA,),
    ),
    Mutant(
        "the two gradients clipped separately",
        (
            (
                "clipping/per_example.py",
                "total += weight * gradient",
                "total += weight * gradient * min(1.0, query.clip / (abs(weight) * np.linalg.norm(gradient) + 1e-300))",
            ),
            CLIP_NOTHING_LATER,
        ),
        (PER_EXAMPLE,),
    ),
    Mutant(
        "clip before weighting",
        (
            (
                "clipping/per_example.py",
                "total += weight * gradient",
                "total += weight * gradient * min(1.0, query.clip / (np.linalg.norm(gradient) + 1e-300))",
            ),
            CLIP_NOTHING_LATER,
        ),
        (PER_EXAMPLE,),
    ),
    Mutant(
        "no clip",
        (("clipping/bound.py", "over = norms > target", "over = norms > np.inf"),),
        ("tests/clipping/test_bound.py::test_no_gradient_of_the_users_exceeds_the_clip_in_exact_arithmetic",),
    ),
    Mutant(
        "clip without its margin for rounding",
        (("clipping/bound.py", "target = clip * (1.0 - (width + 32) * _UNIT_ROUNDOFF)", "target = clip"),),
        ("tests/clipping/test_bound.py::test_no_row_exceeds_the_clip_in_exact_arithmetic",),
    ),
    Mutant(
        "mean before noise",
        (
            (
                "clipping/per_example.py",
                "        return answer\n",
                "        return Clipped(answer.total / max(1, answer.rows), answer.rows)\n",
            ),
        ),
        (PER_EXAMPLE,),
    ),
    Mutant(
        "a row counted by its neighbours: norms taken over the block",
        (
            (
                "clipping/linear.py",
                "norms = row_norms(c) * block.lengths\n",
                "norms = row_norms(c) * np.mean(block.lengths)\n",
            ),
        ),
        ("tests/clipping/test_linear.py::test_closed_form_equals_per_example_differentiation",),
    ),
    Mutant(
        "rows without a valid label count",
        (("clipping/linear_blocks.py", "(lengths <= LARGEST_NORM) & loss.valid(labels)", "lengths <= LARGEST_NORM"),),
        ("tests/clipping/test_linear.py::test_rows_that_are_not_finite_or_have_no_valid_label_count_as_zero_rows",),
    ),
    Mutant(
        "noise reused in every round",
        (("release/releaser.py", "self._source().rows(first, ", "self._source().rows(0, "),),
        ("tests/release/test_release.py::test_white_box_audit_of_the_whole_transcript_finds_exactly_mu[sqrt]",),
    ),
    Mutant(
        "horizon off by one",
        (
            (
                "release/releaser.py",
                "if not 0 <= step < self._mechanism.horizon:",
                "if not 0 <= step <= self._mechanism.horizon:",
            ),
            ("release/mechanisms/protocol.py", "if not 0 <= step < self.horizon:", "if not 0 <= step <= self.horizon:"),
        ),
        ("tests/release/test_release.py::test_a_round_past_the_horizon_is_refused",),
    ),
    Mutant(
        "replace-one with C",
        (("accounting/budget.py", '"replace": 2.0', '"replace": 1.0'),),
        ("tests/accounting/test_budget.py::test_replace_moves_a_sum_twice_as_far",),
    ),
    Mutant(
        "the grid removed",
        (("query.py", "    np.rint(steps, out=steps)\n", ""),),
        ("tests/release/test_release.py::test_precision_attack_finds_no_output_off_the_grid_for_either_neighbour",),
    ),
    Mutant(
        "floating-point slack not paid for",
        (("release/calibration.py", "budget.clips_apart * clip + slack", "budget.clips_apart * clip"),),
        (EXACT_SIGMA,),
    ),
    Mutant(
        "eta_{t-1} dropped",
        (
            (
                "methods/accelerated_srgd.py",
                "-eta(t - 1)",
                "-1.0",
            ),
        ),
        (
            "tests/methods/test_algorithm_1.py::test_round_0_asks_for_one_gradient_and_later_rounds_for_the_weighted_difference",
        ),
    ),
    Mutant(
        "several records at the price of one",
        (("accounting/budget.py", "return self.mu / self.records", "return self.mu"),),
        ("tests/accounting/test_budget.py::test_a_group_pays_for_each_of_its_records",),
    ),
    Mutant(
        "the paper's conversion of epsilon to mu",
        (
            (
                "accounting/budget.py",
                "return _mu_of(self.epsilon, self.gaussian_delta)",
                "return self.epsilon / math.sqrt(2 * math.log(2.5 / self.delta))",
            ),
        ),
        ("tests/accounting/test_budget.py::test_mu_is_that_of_the_exact_curve",),
    ),
    Mutant(
        "delta without what float64 noise loses",
        (("accounting/budget.py", "return self.delta * (1.0 - FLOAT_SHARE)", "return self.delta"),),
        (f"{FLOAT_NOISE}::test_gaussian_noise_and_what_float64_loses_together_stay_within_delta",),
    ),
    Mutant(
        "a group pays for its float noise once",
        (
            (
                "release/calibration.py",
                "GDP_COST * found.loss / budget.mu_per_record)",
                "GDP_COST * found.loss / budget.mu)",
            ),
        ),
        (f"{FLOAT_NOISE}::test_every_record_of_a_group_pays_for_the_float_noise",),
    ),
    Mutant(
        "a person counts one row too often",
        (("rows/contribution_cap.py", "rank + before[codes] < self.limit", "rank + before[codes] <= self.limit"),),
        ("tests/rows/test_columns.py::test_the_cap_counts_the_first_rows_of_each_unit_over_all_calls",),
    ),
    Mutant(
        "no clip in the compiled kernels",
        (
            (
                "clipping/kernels/slopes.py",
                "most = ask.target / length",
                "most = np.inf",
            ),
        ),
        ("tests/clipping/test_compiled_exact.py::test_the_factor_itself_is_a_bound[float64]",),
    ),
    Mutant(
        "sparse products that the sum they meet rounds up or down",
        (("clipping/kernels/sparse_rows.py", "factor = odd(factor)", "factor = abs(factor) * np.sign(factor)"),),
        ("tests/clipping/test_sparse.py::test_a_sum_is_bit_for_bit_the_sum_of_what_each_row_adds_alone",),
    ),
    Mutant(
        "no dither on fine grids",
        (("release/float_noise.py", "        width *= 2.0\n", "        break\n"),),
        (f"{FLOAT_NOISE}::test_a_fine_grid_without_a_dither_would_reveal_more_than_mu_and_with_it_a_thousandth",),
    ),
    Mutant(
        "a survey without its noise",
        (
            (
                "release/calibration.py",
                "    pays, window = _smooth_alone(budget, sigma, grid, dimension, 1)\n",
                "    sigma = 1e-6 * sigma\n    pays, window = _smooth_alone(budget, 1e6 * sigma, grid, dimension, 1)\n",
            ),
        ),
        (f"{SURVEYED}::test_both_stages_have_noise_for_the_whole_budget[zero-out]",),
    ),
    Mutant(
        "a survey without its clip",
        (
            (
                "clipping/survey.py",
                "scale, _ = clip_scale(lengths, 1.0, width)",
                "scale, _ = clip_scale(lengths, np.inf, width)",
            ),
        ),
        ("tests/clipping/test_survey.py::test_unit_rows_are_no_longer_than_1_in_exact_arithmetic[1.0]",),
    ),
    Mutant(
        "a compiled survey without its clip",
        (
            (
                "clipping/kernels/moments.py",
                "scale = (1.0 - margin) / max(feature_norm * (1.0 - margin), length)",
                "scale = 1.0 / feature_norm",
            ),
        ),
        ("tests/clipping/test_compiled_survey.py::test_one_row_keeps_the_bound[7-float64]",),
    ),
    Mutant(
        "the norm of a row of 4 to 8 KB without three quarters of its columns",
        (
            (
                "clipping/kernels/dense_rows.py",
                "for k in (0, TILE, 2 * TILE):\n        scores[k] =",
                "for k in (0, TILE):\n        scores[k] =",
            ),
        ),
        ("tests/clipping/test_compiled_exact.py::test_the_factor_itself_is_a_bound",),
    ),
    Mutant(
        "rounds behind a survey clipped by a norm that is too short",
        (("clipping/kernels/mapped_rows.py", "math.copysign(min(whole, most), c[i])", "math.copysign(whole, c[i])"),),
        ("tests/clipping/test_folded.py::test_no_rows_contribution_is_longer_than_the_clip_in_the_metric[70-float64]",),
    ),
    Mutant(
        "rounds behind a survey in float32 without room for rounded products",
        (
            ("clipping/leading_directions.py", "return inside + outside + single +", "return 0.0 *"),
            ("clipping/leading_directions.py", "return 2.0**14 * roundoff", "return 1e-30"),
        ),
        (
            "tests/clipping/test_folded.py::"
            "test_the_clip_holds_in_float32_where_large_gains_meet_what_rounding_leaves[60-300.0]",
        ),
    ),
    Mutant(
        "a block of rows filled again while it is used",
        (
            (
                "rows/mixed_blocks.py",
                "np.asarray(_Lent(memory, free))[: total - done]",
                "_again(memory, free)[: total - done]",
            ),
            (
                "rows/mixed_blocks.py",
                "class _Lent:",
                "def _again(memory, free):\n    free.append(memory)\n    return memory\n\n\nclass _Lent:",
            ),
        ),
        ("tests/rows/test_table_rows.py::test_a_block_is_filled_again_only_if_nothing_refers_to_it",),
    ),
    Mutant(
        "a map in factors that are not orthonormal, folded",
        (("clipping/low_rank_map.py", "if not off <= p * 2.0**-46:", "if not finite:"),),
        ("tests/clipping/test_folded.py::test_what_is_not_proven_takes_mapped_rows",),
    ),
    Mutant(
        "surveyed rows used twice",
        (
            (
                "run/run.py",
                "(0 if behind is None else behind.schedule.rows)",
                "0",
            ),
        ),
        (f"{SURVEYED}::test_survey_and_rounds_see_disjoint_rows",),
    ),
    Mutant(
        "a replace-one survey with the bound of zero-out",
        (("release/calibration.py", 'apart if budget.adjacency == "replace" else clip', "clip"),),
        (f"{SURVEYED}::test_both_stages_have_noise_for_the_whole_budget[replace]",),
    ),
    *STATE,
    *REPORT,
    *OBJECTIVE,
    *SURVEYED_OBJECTIVE,
    Mutant(
        "a low-rank survey whose sketch may be longer than its bound",
        (("clipping/sketch.py", "clip_scale(lengths, TAU * longest, b.shape[1])", "clip_scale(lengths, np.inf, 1)"),),
        ("tests/clipping/test_low_rank.py::test_no_row_has_a_longer_sketch_than_stated[True]",),
    ),
    *COUNTED_ONCE,
    *DIAGONAL,
    *FEDERATION,
    *INGESTION,
    *NETWORKS,
    *ONE_ROW,
)

NAMED = (
    "the paper's printed sigma",
    "a tree one level short",
    "the two gradients clipped separately",
    "clip before weighting",
    "no clip",
    "mean before noise",
    "noise reused in every round",
    "the key reused by another plan",
    "horizon off by one",
    "eta_{t-1} dropped",
    "replace-one with C",
    "the fingerprint check removed",
    "the same batch released for another query under one key",
    "the key left in a saved model",
    "the grid removed",
    "a survey without its noise",
    "a survey without its clip",
    "surveyed rows used twice",
)
"""Bugs that must stay on the list, whatever else is on it."""

CONTROL = tuple(dict.fromkeys(test for mutant in MUTANTS for test in mutant.tests))
"""Every test named above: on the source as it is, all of them pass."""
