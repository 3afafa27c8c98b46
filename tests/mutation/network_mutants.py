"""Seeded bugs of networks: rows that reach others, or a message, through a model of PyTorch or a loss of JAX."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["NETWORKS"]

ODD = "tests/rows/test_one_odd_row.py"
MATRICES = (
    "tests/clipping/torch/test_finite_matrices.py::"
    "test_a_row_whose_matrix_is_not_finite_prints_nothing_and_counts_as_zero"
)

NETWORKS = (
    Mutant(
        "norms and sums in JAX follow the caller's precision of products",
        (("clipping/jax/program.py", ', jax.default_matmul_precision("highest")', ""),),
        (
            "tests/clipping/jax/test_isolation.py::"
            "test_the_caller_s_precision_of_products_is_not_that_of_norms_and_sums[F16_F16_F16]",
        ),
    ),
    Mutant(
        "a JAX round in whole numbers where the loss would take them",
        (
            (
                "clipping/jax/blocks.py",
                "((floats, floats), (floats, whole), (whole, floats), (whole, whole))",
                "((whole, floats), (whole, whole), (floats, floats), (floats, whole))",
            ),
        ),
        (f"{ODD}::test_a_missing_cell_in_the_first_chunk_does_not_cast_the_rows_of_a_jax_round",),
    ),
    Mutant(
        "labels of a torch run in the type of their chunk",
        (
            (
                "clipping/torch/oracle.py",
                "y = torch.tensor(_plain(labels)).to(self._device, structure.labels)",
                "y = torch.tensor(_plain(labels)).to(self._device)",
            ),
        ),
        (f"{ODD}::test_one_nan_label_does_not_stop_a_torch_run",),
    ),
    Mutant(
        "labels beyond a model's outputs are spent as zero rows",
        (
            (
                "clipping/torch/oracle.py",
                "return None if structure.classes is None else ClassLabels(structure.classes)",
                "return None",
            ),
        ),
        (f"{ODD}::test_labels_beyond_a_torch_models_outputs_are_refused_before_a_row_is_spent",),
    ),
    Mutant(
        "places that a model has changed count as checked",
        (("clipping/torch/batching_rules.py", "if own != memory}", "}"),),
        ("tests/clipping/torch/test_batching_rules.py::test_a_row_moves_the_sum_by_one_clip_at_most",),
    ),
    Mutant(
        "a loop over a block of rows ends with its slowest row",
        (("clipping/jax/known_primitives.py", '"regularized_incomplete_beta", ', ""),),
        ("tests/clipping/jax/test_isolation.py::test_a_primitive_that_mixes_rows_under_vmap_gets_one_row",),
    ),
    Mutant(
        "a matrix of a row that is not finite reaches LAPACK, which prints a line",
        (("clipping/torch/recorded.py", "                check_matrices(given, options)", "                pass"),),
        (f"{MATRICES}[svdvals-False]",),
    ),
    Mutant(
        "the same where the model computes one row at a time",
        (("clipping/torch/set_memory.py", "            check_matrices(args, kwargs)", "            pass"),),
        (f"{MATRICES}[svdvals-True]",),
    ),
    Mutant(
        "the same in JAX",
        (("clipping/jax/factors.py", "    program = with_finite_matrices(program)\n", ""),),
        (f"{MATRICES.replace('torch', 'jax')}[scan]",),
    ),
    Mutant(
        "losses in JAX clipped to twice the clip",
        (("clipping/jax/clipped_sum.py", "jnp.where(over, clip / ", "jnp.where(over, 2 * clip / "),),
        ("tests/replay/test_every_oracle.py::test_the_bound_is_nearly_reached[jax]",),
    ),
    Mutant(
        "models in PyTorch clipped to twice the clip",
        (
            (
                "clipping/torch/clipped_sum.py",
                "clip_scale(norms.cpu().numpy(), clip, len(terms))",
                "clip_scale(norms.cpu().numpy(), 2 * clip, len(terms))",
            ),
        ),
        ("tests/replay/test_every_oracle.py::test_the_bound_is_nearly_reached[torch]",),
    ),
)
