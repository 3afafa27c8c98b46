"""The twenty marks of proof: what each claims, and the tests that carry it (the beginnings of their node ids)."""

from __future__ import annotations

MARKS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: (
        "B C = prefix sums for every mechanism, T up to 4096, to 1e-12",
        ("release/mechanisms/test_algebra.py::test_the_matrices_factor", "marks/test_figures.py::test_factorisations"),
    ),
    2: ("sensitivity = largest column norm, by brute force", ("marks/test_figures.py::test_sensitivities",)),
    3: (
        "max errors match the table or beat it; streaming = matrix to 1e-12",
        (
            "release/mechanisms/test_trees.py::test_max_errors",
            "release/mechanisms/test_optimal.py::test_the_table_is_beaten",
            "release/mechanisms/test_algebra.py::test_streaming_applies_the_decoder",
            "marks/test_figures.py::test_table_and_streaming",
        ),
    ),
    4: (
        "variances and lag covariances within 6 standard errors; chi-square of 1e7 draws within 0.2 %",
        (
            "release/test_release.py::test_variance_of_every_round",
            "release/test_noise.py::test_pooled_chi_square",
            "release/mechanisms/test_noise_law.py",
        ),
    ),
    5: (
        "distribution of 1e6 draws; Poisson tails of 1e8 draws",
        ("release/test_noise.py::test_a_million_draws", "release/test_noise.py::test_tails_of_1e8"),
    ),
    6: (
        "no output off the grid in 4e6 releases; what grid or support cannot honour is refused",
        ("release/test_release.py::test_precision_attack", "release/test_calibration.py"),
    ),
    7: (
        "noise is a function of (key, step): processes, pieces, threads; no global state; 256-bit keys",
        (
            "release/test_noise.py::test_a_row_is_the_same",
            "release/test_noise.py::test_numpys_global_state",
            "release/test_noise.py::test_keys_are_256",
            "release/test_release_secrets.py::test_a_seeded_run_says",
            "marks/test_draws.py",
        ),
    ),
    8: (
        "step T, another batch, query or plan raise; the same returns what was stored; resume bit for bit",
        (
            "release/test_release.py::test_a_round_past",
            "release/test_release.py::test_a_repeated_round",
            "release/test_release.py::test_another_sum",
            "release/test_release.py::test_another_query",
            "release/test_ledger_files.py::test_a_run_stopped_after_any_round",
            "release/test_ledger_files.py::test_another_plan_start",
            "marks/test_ledger.py",
        ),
    ),
    9: (
        "clip never exceeds C: 1e6 adversarial rows in exact arithmetic",
        ("clipping/test_bound.py", "clipping/test_compiled_exact.py", "marks/test_clip.py"),
    ),
    10: (
        "neighbours differ at release by at most the declared difference, in every adjacency",
        (
            "replay/test_record_replay.py",
            "release/test_calibration.py::test_sums_beyond_the_exact_range",
            "release/test_calibration.py::test_the_grid_is_a_power_of_two",
            "marks/test_figures.py::test_neighbours",
        ),
    ),
    11: (
        "closed-form GLM clip = per-example differentiation, 1e-12, dense and CSR, every loss",
        (
            "clipping/test_linear.py::test_closed_form",
            "clipping/test_sparse.py::test_sparse_rows_answer",
            "marks/test_closed_form.py",
        ),
    ),
    12: (
        "record and replay over methods, estimators, adapters and commands; control flow and messages alike",
        (
            "estimators/test_neighbours.py",
            "methods/test_neighbours.py",
            "engines/on_flower/test_neighbours.py",
            "clipping/jax/test_neighbours.py",
            "clipping/torch/test_bound.py::test_record_and_replay",
            "replay/test_every_path.py",
            "replay/test_every_estimator.py",
            "replay/test_every_oracle.py",
            "replay/test_every_federation.py",
            "replay/test_every_cluster.py",
        ),
    ),
    13: ("mutation suite kills at least 20 of 20", ("mutation/test_mutants.py",)),
    14: (
        "accounting against 60 digits on 10,000 points; never above a PLD accountant",
        (
            "accounting/test_gaussian.py::test_accounting_matches_60_digits_on_10000",
            "accounting/test_gaussian.py::test_epsilon_is_never_above",
        ),
    ),
    15: (
        "without noise equals a transcription of Algorithm 1 to 1e-12; quadratics within 2 beta R^2 / T^2",
        ("methods/test_algorithm_1.py", "marks/test_algorithm.py"),
    ),
    16: (
        "log-likelihood ratio of transcripts on the worst pair is N(mu^2/2, mu^2): 6 standard errors of 1e5 runs",
        ("release/test_release.py::test_white_box_audit", "marks/test_figures.py::test_log_likelihood"),
    ),
    17: (
        "200 of 200 canary audits at or below the claim; sigma/2 and sigma/1.1 caught in at least 95 %",
        ("audit/test_power.py",),
    ),
    18: (
        "check_estimator: no unexpected failure",
        ("estimators/test_contract.py", "marks/test_figures.py::test_an_estimator_contract"),
    ),
    19: (
        "flipped bytes, missing, extra or foreign fields are refused; no pickle; fuzzed readers: dpsco errors only",
        (
            "release/test_ledger_damage.py::test_every_flipped_byte",
            "release/test_ledger_damage.py::test_missing_extra",
            "release/test_ledger_files.py::test_no_file_is_read",
            "rows/test_model_file.py::test_any_flipped_byte",
            "fuzz/test_readers.py",
        ),
    ),
    20: (
        "kill -9 at any moment, then resume: same model bit for bit",
        (
            "release/test_ledger_crashes.py::test_kill_9",
            "release/test_ledger_crashes.py::test_a_crash_at_every",
            "cli/test_kill.py",
            "faults/test_signals.py",
            "faults/test_killed_federation.py",
        ),
    ),
}


def marks_of(nodeid: str) -> list[int]:
    """Marks that a test carries."""
    place = nodeid.removeprefix("tests/")
    return [number for number, (_, starts) in MARKS.items() if place.startswith(starts)]
