"""Small populations on which every quantity of the paper's statements is known exactly, and Algorithm 1 on them.

A population is uniform on m examples d = (a, s), ||a|| <= 1, with the convex loss

    f(x, d) = H(<a, x> - s),    H'(u) = clip(M u, -L, L)          L-Lipschitz and M-smooth

on a ball of radius R around 0. The loss is quadratic near its bend and linear far from it, so both extremes of smooth
convex losses are in the family. F and its gradient are sums over m terms; x* comes from a long deterministic descent.
This code is independent of the methods, oracles and planner of the library.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsco.query import Array

__all__ = ["Z_STEPS", "Population", "Trajectory", "project", "random_population", "run"]

Z_STEPS = {"listed": (1.0, 1.0), "halved": (0.5, 0.5), "proof": (0.5, 1.0)}
"""Factors on (eta_t/beta) nabla_t and on b_t in the z-step: as listed, as halved in this library, as in the proof."""


def project(x: Array, radius: float) -> Array:
    """Return the nearest point of the ball."""
    norm = float(np.linalg.norm(x))
    return x if norm <= radius else x * (radius / norm)


@dataclass(frozen=True, eq=False)
class Population:
    """The uniform distribution on the rows of (a, s)."""

    a: Array
    s: Array
    L: float
    M: float
    radius: float

    def slopes(self, x: Array) -> Array:
        """Return H' of every example at x."""
        return np.clip(self.M * (self.a @ x - self.s), -self.L, self.L)

    def gradients(self, x: Array) -> Array:
        """Return grad f(x, d), one row per example."""
        return self.slopes(x)[:, None] * self.a

    def gradient(self, x: Array) -> Array:
        """Return grad F(x)."""
        return np.mean(self.gradients(x), axis=0)

    def value(self, x: Array) -> float:
        """Return F(x)."""
        u = np.abs(self.a @ x - self.s)
        bend = self.L / self.M
        return float(np.mean(np.where(u <= bend, self.M * u**2 / 2, self.L * u - self.L * bend / 2)))

    def minimiser(self) -> Array:
        """Return x*, by 4,000 steps of Nesterov's method with restarts."""
        x = y = np.zeros(self.a.shape[1])
        momentum = 1.0
        for _ in range(4000):
            after = project(y - self.gradient(y) / self.M, self.radius)
            if float((y - after) @ (after - x)) > 0:
                momentum = 1.0
            new = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            y = after + (momentum - 1) / new * (after - x)
            if float(np.linalg.norm(after - x)) < 1e-15 and momentum > 1.0:
                break
            x, momentum = after, new
        return x


def random_population(rng: np.random.Generator) -> Population:
    """Return a population of random size, dimension and constants; about half have x* on the boundary."""
    p, m = int(rng.integers(1, 6)), int(rng.integers(2, 40))
    a = rng.normal(size=(m, p)) * np.arange(1, p + 1) ** -0.5
    a /= np.maximum(1.0, np.linalg.norm(a, axis=1))[:, None]
    L, radius = 10.0 ** rng.uniform(-1, 1), 10.0 ** rng.uniform(-1, 1)
    M = L / radius * 10.0 ** rng.uniform(-1, 1)
    centre = rng.normal(size=p)
    centre *= radius * rng.uniform(0.2, 2.0) / np.linalg.norm(centre)
    return Population(a, a @ centre + rng.normal(size=m) * L / M * rng.uniform(0, 1), L, M, radius)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """All quantities of a run of Algorithm 1; entry t of each list belongs to round t."""

    x: list[Array]
    y: list[Array]
    z: list[Array]
    nabla: list[Array]
    gradient: list[Array]
    """grad F(x_t)."""
    largest: list[float]
    """Largest ||Delta_t(d)|| over the population."""


def run(
    population: Population,
    rng: np.random.Generator,
    *,
    rounds: int,
    batch_size: int,
    beta: float,
    noise: Array,
    z_step: str = "halved",
    recursive: bool = True,
) -> Trajectory:
    """Run lines 2-8 with b_t = ``noise[t]``; ``recursive=False`` uses independent batch gradients."""
    step, share = Z_STEPS[z_step]
    x = y = z = x_before = np.zeros(population.a.shape[1])
    total = np.zeros_like(x)
    path = Trajectory([], [y], [z], [], [], [])
    for t in range(rounds):
        eta, before = t + 1.0, float(t)
        now = population.gradients(x)
        differences = eta * now - before * population.gradients(x_before)
        batch = rng.integers(0, len(now), size=batch_size)
        total = total + differences[batch].mean(axis=0)
        nabla = total / eta if recursive else now[batch].mean(axis=0)
        path.x.append(x)
        path.nabla.append(nabla)
        path.gradient.append(now.mean(axis=0))
        path.largest.append(float(np.linalg.norm(differences, axis=1).max()))
        z = project(z - step * eta / beta * nabla + share * noise[t], population.radius)
        y = project(x - nabla / beta + noise[t] / eta, population.radius)
        tau = 2.0 / (t + 3.0)
        x_before, x = x, (1 - tau) * y + tau * z
        path.y.append(y)
        path.z.append(z)
    return path
