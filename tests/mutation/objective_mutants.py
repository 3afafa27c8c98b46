"""Seeded bugs of methods for rows at rest: objective perturbation (noise, solver, rows, accounting), Newton steps."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

__all__ = ["OBJECTIVE"]

NEWTON = "tests/methods/test_dp_newton.py"
METHOD, ACCOUNTING = "tests/methods/test_objective_perturbation.py", "tests/accounting/test_objective.py"

OBJECTIVE = (
    Mutant(
        "rows shortened by a factor without digits",
        (("run/row_passes.py", "factor[~(factor >= _TINY)] = 0.0", "pass"),),
        (f"{METHOD}::test_no_row_is_longer_than_the_norm_that_was_declared",),
    ),
    Mutant(
        "no noise in the objective",
        (
            (
                "methods/objective_perturbation.py",
                "tilt = sigma * rows.normals(query.step, p) if sigma else np.zeros(p)",
                "tilt = np.zeros(p)",
            ),
        ),
        (f"{METHOD}::test_the_noise_in_the_objective_is_what_was_promised",),
    ),
    Mutant(
        "the solver stops where it is",
        (
            (
                "methods/minimise.py",
                "            if _norm(g) + error(x) <= tolerance:\n                return x\n",
                "            if True:\n                return x\n",
            ),
        ),
        (f"{METHOD}::test_gradient_steps_find_what_newton_steps_find",),
    ),
    Mutant(
        "plain steps that end too early",
        (("methods/minimise.py", "2.0 * convexity * farthest / tolerance", "convexity * farthest"),),
        (f"{METHOD}::test_a_solver_that_never_certifies_still_comes_within_tau",),
    ),
    Mutant(
        "rows in a secret number",
        (
            (
                "methods/objective_perturbation.py",
                '        if budget.adjacency == "add-remove":\n            raise InvalidArgument(\n',
                '        if budget.adjacency == "any":\n            raise InvalidArgument(\n',
            ),
        ),
        (f"{METHOD}::test_a_secret_number_of_rows_is_refused_because_rounding_grows_with_it",),
    ),
    Mutant(
        "too little noise for the solver's error",
        (("release/calibration.py", "sigma = _SAFE * difference / mu\n", "sigma = difference / (2 * mu)\n"),),
        (f"{METHOD}::test_the_certificate_tells_the_truth",),
    ),
    Mutant(
        "slopes in the objective not clamped",
        (("run/row_passes.py", "row_norms(c) * lengths, self._clip,", "row_norms(c) * lengths, np.inf,"),),
        (f"{METHOD}::test_one_row_moves_gradient_and_determinant_by_no_more_than_was_accounted_for",),
    ),
    Mutant(
        "the curvature of a row not accounted for",
        (("accounting/objective.py", "alpha = math.log1p(smoothness / ridge)\n", "alpha = 0.0\n"),),
        (f"{ACCOUNTING}::test_in_one_dimension_no_pair_of_neighbours_is_further_apart",),
    ),
    Mutant(
        "a replaced row counted once",
        (
            (
                "accounting/objective.py",
                "((others**2, 2.0), (2 * others, 1.0), (1, 0.0)) if replace",
                "((others, 1.0), (1, 0.0)) if replace",
            ),
        ),
        (f"{ACCOUNTING}::test_in_one_dimension_no_pair_of_neighbours_is_further_apart",),
    ),
    Mutant(
        "Newton steps paid for once",
        (("methods/dp_newton.py", "z = math.sqrt(T) / budget.mu_per_record", "z = 1.0 / budget.mu_per_record"),),
        (f"{NEWTON}::test_t_releases_of_the_same_rows_cost_sqrt_t",),
    ),
    Mutant(
        "slopes of a Newton step not clamped",
        (
            (
                "clipping/survey.py",
                "scale, _ = clip_scale(norms, moment.slope, moment.outputs)",
                "scale, _ = clip_scale(norms, moment.slope if point is None else np.inf, moment.outputs)",
            ),
        ),
        (f"{NEWTON}::test_no_row_at_any_point_contributes_more_than_the_bound",),
    ),
    Mutant(
        "the gradient left out of a Newton step's bound",
        (
            (
                "clipping/survey.py",
                "        clip = square * math.sqrt(1 + kappa**2 + 3 * theta**2)\n        return clip, 2 * clip\n",
                "        return square, 2 * square\n",
            ),
        ),
        (f"{NEWTON}::test_no_row_at_any_point_contributes_more_than_the_bound",),
    ),
)
