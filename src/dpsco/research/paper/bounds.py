"""The paper's utility bounds as functions, with every constant it prints.

eta_t = t + 1 and eta_{0:t} = (t+1)(t+2)/2. R stands for ||C||: the diameter of the domain where two points of it are
compared, which for a ball is twice its radius (the paper writes R for both). Q bounds how far one row's weighted
difference lies from its mean, b_t is the noise on the prefix sum over B beta.
"""

from __future__ import annotations

import math

import numpy as np

from dpsco.query import Array

__all__ = ["excess_population", "excess_population_simplified", "independent_gradients"]


def excess_population(
    *, rounds: int, batch_size: int, beta: float, Q: float, gradient: float, noise: float, diameter: float, gamma: float
) -> float:
    """Theorem excess-population: holds with probability 1 - gamma, for beta >= M.

        1/eta_{0:T} sum_t eta_{0:t} ( 2 Q s_t (G + Q s_t/(sqrt(B) eta_t)) / (sqrt(B) eta_t beta)
            + 3 Q s_t b / (sqrt(B) eta_t^2) + Q R s_t / (sqrt(B) eta_{0:t}) + 3 beta b R / eta_{0:t}
            + beta b^2 / eta_t^2 ) + beta R^2 / eta_{0:T},        s_t = sqrt(3 (t+1) ln(6T/gamma))

    ``gradient`` bounds ||grad F(x_t)||, ``noise`` bounds ||b_t||.
    """
    eta, sums, last = _weights(rounds)
    s = np.sqrt(3 * eta * math.log(6 * rounds / gamma))
    root = math.sqrt(batch_size)
    terms = (
        2 * Q * s * (gradient + Q * s / (root * eta)) / (root * eta * beta)
        + 3 * Q * s * noise / (root * eta**2)
        + Q * diameter * s / (root * sums)
        + 3 * beta * noise * diameter / sums
        + beta * noise**2 / eta**2
    )
    return float(np.sum(sums * terms) / last + beta * diameter**2 / last)


def excess_population_simplified(
    *, rounds: int, beta: float, S: float, lipschitz: float, noise: float, diameter: float, printed: bool = False
) -> float:
    """Return the simplified form, without its constants and logarithms: a size, not a bound.

        (S L + S^2) sqrt(T)/beta + S R/sqrt(T) + (S + L) b + beta b R/T + beta R^2/T^2,    S^2 the variance of Delta_t

    ``printed=True`` gives the paper's, in which the sum over T rounds was lost: every term but the last over T.
    """
    T = float(rounds)
    sampling = (S * lipschitz + S**2) * math.sqrt(T) / beta + S * diameter / math.sqrt(T)
    summed = sampling + (S + lipschitz) * noise + beta * noise * diameter / T
    return (summed / T if printed else summed) + beta * diameter**2 / T**2


def independent_gradients(
    *, rounds: int, batch_size: int, beta: float, lipschitz: float, noise: float, diameter: float
) -> float:
    """Return the theorem on independent batch gradients, in expectation, for beta >= M.

        1/eta_{0:T} sum_t eta_{0:t} (8 L^2/(sqrt(B) beta) + 5 L b/eta_t + 3 beta b R/eta_{0:t} + beta b^2/eta_t^2)
            + beta R^2/eta_{0:T}

    The paper prints 3 beta b R without the division by eta_{0:t}; its proof, and the theorem above, have it.
    """
    eta, sums, last = _weights(rounds)
    terms = (
        8 * lipschitz**2 / (math.sqrt(batch_size) * beta)
        + 5 * lipschitz * noise / eta
        + 3 * beta * noise * diameter / sums
        + beta * noise**2 / eta**2
    )
    return float(np.sum(sums * terms) / last + beta * diameter**2 / last)


def _weights(rounds: int) -> tuple[Array, Array, float]:
    """eta_t and eta_{0:t} for t < T, and eta_{0:T}."""
    eta = np.arange(1.0, rounds + 1)
    return eta, eta * (eta + 1) / 2, (rounds + 1) * (rounds + 2) / 2
