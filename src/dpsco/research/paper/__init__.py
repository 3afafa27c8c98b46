"""Every numbered statement of the paper, with a function that evaluates both of its sides."""

from __future__ import annotations

from dpsco.research.paper import privacy, sensitivity, utility
from dpsco.research.paper.statement import VERDICTS, Finding, Statement

__all__ = ["STATEMENTS", "VERDICTS", "Finding", "Statement"]

STATEMENTS = (
    Statement(
        "alg:nSGD",
        "Algorithm",
        "Accelerated-DP-SRGD",
        "x, y, z by Nesterov's coupling of two steps on the recursive gradient nabla_t = sum_{i<=t} Delta_i / eta_t",
        utility.algorithm_1,
    ),
    Statement(
        "thm:excesspop-simplified",
        "Theorem",
        "Excess population risk, simplified",
        "O~((S L + S^2)/(beta sqrt T) + S R/T^1.5 + (S + L) b/T + beta b R/T^2 + beta R^2/T^2)",
        utility.simplified,
    ),
    Statement(
        "thm:mainthm-simplified",
        "Theorem",
        "Main result, simplified",
        "LR polylog (1/sqrt n + sqrt p/(epsilon n)) in one epoch, T = n^(1/4) or sqrt n",
        privacy.main_simplified,
    ),
    Statement(
        "sec:unaccelerated",
        "Sketch",
        "The unaccelerated variant needs B = O(1)",
        "Var(nabla_t) = t B/n, whatever the batch size",
        sensitivity.unaccelerated,
    ),
    Statement(
        "thm:excesspop",
        "Theorem",
        "Excess population risk",
        "F(y_T) - F* at most five sums over the rounds plus beta ||C||^2/eta_{0:T}, with probability 1 - gamma",
        utility.excess_population,
    ),
    Statement(
        "lem:potDrop",
        "Lemma",
        "Potential drop",
        "Phi_t = eta_{0:t-1}(F(y_t) - F*) + 2 beta ||z_t - x*||^2 grows by terms in ||q_t|| and ||b_t|| only",
        utility.potential_drop,
    ),
    Statement(
        "lem:struct1",
        "Lemma",
        "Structural lemma",
        "eta_{0:t}(F(y_{t+1}) - F(x_t)) + eta_t<nabla_t, z_t - z_{t+1}> - 2 beta ||z_{t+1} - z_t||^2 <= noise terms",
        utility.structural,
    ),
    Statement(
        "lem:recstruct1",
        "Lemma",
        "Gradient-norm recursion",
        "||grad F(x_t)|| <= c_1 sqrt(M) (sampling + noise + 2 sqrt(beta) R/(t+1))",
        sensitivity.gradient_recursion,
    ),
    Statement(
        "lem:tighter-sens",
        "Lemma",
        "Sensitivity, minimiser inside",
        "||Delta_t(d)|| <= c_DP L for all t and d",
        sensitivity.tighter_sensitivity,
    ),
    Statement(
        "lem:btm",
        "Lemma",
        "Binary tree mechanism",
        "prefix sums with error at most 4 C log^1.5(T) sqrt(p ln(2T/delta))/mu, mu-GDP",
        privacy.tree_lemma,
    ),
    Statement(
        "cor:dp-guarantee",
        "Corollary",
        "Noise for Theorem 1",
        "sigma = c_DP L sqrt(log T ln(2.5/delta))/(epsilon B beta) is (epsilon, delta)-DP",
        privacy.dp_guarantee,
    ),
    Statement(
        "thm:mainthm-1",
        "Theorem",
        "Theorem 1, minimiser inside",
        "LR polylog (1/sqrt n + sqrt p/(epsilon n)) with T = c_DP n^(1/4)",
        privacy.main_theorem_1,
    ),
    Statement(
        "lem:sens",
        "Lemma",
        "Sensitivity, general case",
        "beta >= 2MT: ||Delta_t(d)|| <= 2 (M b + 2MR + L) <= 2 M b + (2 c_M + 1) L",
        sensitivity.general_sensitivity,
    ),
    Statement(
        "cor:clipnormbound",
        "Corollary",
        "Clip norm of the general case",
        "for p below a bound, ||Delta_t(d)|| <= (8 c_M + 4) L with probability 1 - delta/2",
        privacy.clip_norm_bound,
    ),
    Statement(
        "cor:dp-guarantee-2",
        "Corollary",
        "Noise for Theorem 2",
        "sigma = (16 sqrt 2 c_M + 8 sqrt 2) L sqrt(log T ln(2.5/delta))/(epsilon B beta) is (epsilon, delta)-DP",
        privacy.dp_guarantee_2,
    ),
    Statement(
        "thm:mainthm-2",
        "Theorem",
        "Theorem 2, general case",
        "LR (1/sqrt n + sqrt p/(epsilon n) polylog) with B <= sqrt n, T = n/B",
        privacy.main_theorem_2,
    ),
    Statement(
        "sec:independent",
        "Theorem",
        "Independent gradients",
        "E F(y_T) - F* at most a sum of 8 L^2/(sqrt B beta) and noise terms, plus beta R^2/eta_{0:T}",
        utility.independent_gradients,
    ),
)
"""In the paper's order."""
