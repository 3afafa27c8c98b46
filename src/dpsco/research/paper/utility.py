"""Utility: Algorithm 1, the structural lemma, the potential drop, and the excess-population theorems.

Three facts that the proofs do not use, or use incorrectly (docs/paper/index.md has the argument):

* y_{t+1} minimises a beta-strongly convex function over C, so the comparison with v in the structural lemma has
  a spare term -beta/2 ||y_{t+1} - v||^2, and the noise adds at most beta ||b_t||^2 / (2 eta_t tau_t): neither
  L ||b_t|| / tau_t nor beta ||b_t|| ||C|| is needed, and nabla_t may have any size;
* a z-step of eta_t/(2 beta) goes with the potential eta_{0:t-1} (F(y_t) - F*) + beta ||z_t - x*||^2 (and
  eta_t^2 <= 2 eta_{0:t}), not with the 2 beta of the paper;
* x_t lies in C and projections do not expand, so ||y_{t+1} - x_t|| <= ||nabla_t||/beta + ||b_t||/eta_t: the factors
  3 (and the 2 that is printed) in front of ||q_t|| can be 1.
"""

from __future__ import annotations

import math

import numpy as np

from dpsco.query import Array
from dpsco.research.paper import bounds
from dpsco.research.paper.instances import Z_STEPS, Population, Trajectory, project, random_population, run
from dpsco.research.paper.statement import Finding

__all__ = ["algorithm_1", "excess_population", "independent_gradients", "potential_drop", "simplified", "structural"]

ROUNDING = 1e-9
"""Relative slack for floating point when two sides are compared."""


def algorithm_1(seed: int) -> Finding:
    """Compare the library without noise and clipping with the listing, and the two forms of nabla_t in line 5."""
    import dpsco

    rng = np.random.default_rng(seed)
    worst = forms = 0.0
    runs = 20
    for index in range(runs):
        rows, p, T = int(rng.integers(8, 60)), int(rng.integers(1, 5)), int(rng.integers(1, 8))
        X = rng.normal(size=(rows, p))
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
        labels = (rng.random(rows) < 0.5).astype(np.float64)
        radius, beta = float(rng.uniform(0.3, 3)), float(rng.uniform(0.2, 1))
        z_step = ("listed", "halved")[index % 2]
        problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(radius), dimension=p, feature_norm=1.0)
        plan = dpsco.Plan(
            problem=problem,
            n=rows,
            budget=dpsco.Budget(epsilon=math.inf, delta=1e-6),
            method=dpsco.AcceleratedSRGD(rounds=T, beta=beta, clip=math.inf, z_step=z_step, mechanism="independent"),
        )
        result = dpsco.train(plan, dpsco.stream(X, labels))
        y, nablas = _listing(X, labels, T, rows // T, beta, radius, 1.0 if z_step == "listed" else 0.5)
        worst = max(worst, float(np.abs(result.model.coef.ravel() - y).max()))
        forms = max(forms, nablas)
    verdict = "holds" if max(worst, forms) < 1e-12 else "erratum"
    sentence = (
        f"The library without noise equals a transcription of the listing to {worst:.0e}, with both z-steps, and the "
        f"two forms of nabla_t in line 5 agree to {forms:.0e}. With noise, b_t = -N_t/(B beta) is inside nabla_t, "
        "once for both steps."
    )
    return Finding(verdict, sentence, runs, {"difference": worst, "two forms of nabla": forms})


def _listing(X: Array, labels: Array, T: int, B: int, beta: float, radius: float, step: float) -> tuple[Array, float]:
    """Return y_T of the listing on logistic rows, and the largest distance of the two forms of nabla_t."""

    def gradients(x: Array, rows: slice) -> Array:
        return np.asarray((1 / (1 + np.exp(-X[rows] @ x)) - labels[rows])[:, None] * X[rows])

    x = x_before = y = z = total = nabla = np.zeros(X.shape[1])
    apart = 0.0
    for t in range(T):
        rows = slice(t * B, (t + 1) * B)
        delta = ((t + 1) * gradients(x, rows) - t * gradients(x_before, rows)).sum(axis=0) / B
        total = total + delta
        nabla = delta / (t + 1) + t / (t + 1) * nabla
        apart = max(apart, float(np.abs(nabla - total / (t + 1)).max()))
        z = project(z - step * (t + 1) / beta * nabla, radius)
        y = project(x - nabla / beta, radius)
        tau = 2 / (t + 3)
        x_before, x = x, (1 - tau) * y + tau * z
    return y, apart


def structural(seed: int) -> Finding:
    """Check lemma struct1 on single steps, with nabla_t up to 100 L and noise up to the diameter."""
    rng = np.random.default_rng(seed)
    printed, sharper, broken, steps = -math.inf, -math.inf, 0, 4000
    for _ in range(steps):
        step = _Step(rng)
        left, sharper_left, needed, paper = step.sides()
        scale = abs(left) + abs(sharper_left) + paper + 1e-300
        printed = max(printed, (left - paper) / scale)
        sharper = max(sharper, (sharper_left - needed) / scale)
        broken += step.moves_further_than_the_proof_allows()
    held = printed <= ROUNDING and sharper <= ROUNDING
    sentence = (
        f"Holds on every step tried, also with ||nabla_t|| up to 100 L. The proof bounds ||y_(t+1) - x_t|| by L/beta + "
        f"||b_t||/eta_t. A recursive gradient longer than L violates that ({broken} of {steps} steps), and a101 uses a "
        "-beta/2 ||y - x||^2 that M/2 already used. The lemma is true for another reason: by strong convexity only "
        "beta ||b_t||^2/(2 eta_t tau_t) remains on the right, even with -beta for -2 beta on the left, which held on "
        "every step too."
    )
    figures = {"largest (left - right)": printed, "the same, sharper form": sharper}
    return Finding("holds" if held else "erratum", sentence, steps, figures)


class _Step:
    """One step from a random state: x_t, y_t, z_t tied by line 8, any nabla_t and any b_t."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.population = population = random_population(rng)
        p, self.radius = population.a.shape[1], population.radius
        self.beta = population.M * 10.0 ** rng.uniform(0, 1)
        self.t = t = int(rng.integers(0, 200))
        self.eta, self.sum = t + 1.0, (t + 1) * (t + 2) / 2
        self.tau = self.eta / self.sum
        y, self.z = (project(self.radius * np.asarray(rng.normal(size=p)), self.radius) for _ in range(2))
        self.x = (1 - self.tau) * y + self.tau * self.z
        self.gradient = population.gradient(self.x)
        self.nabla = self.gradient + rng.normal(size=p) * population.L * 10.0 ** rng.uniform(-3, 2)
        self.b = rng.normal(size=p) * self.radius * 10.0 ** rng.uniform(-4, 0.3)
        self.y_after = project(self.x - self.nabla / self.beta + self.b / self.eta, self.radius)
        share = float(rng.integers(0, 2)) / 2 + 0.5
        self.z_after = project(self.z - self.eta / (2 * self.beta) * self.nabla + share * self.b, self.radius)

    def sides(self) -> tuple[float, float, float, float]:
        """Return the left side without its q-term, the same with -beta, the sharper right side, the printed one."""
        F, q = self.population.value, self.nabla - self.gradient
        moved = self.z_after - self.z
        squared = self.beta * float(moved @ moved)
        left = self.sum * (F(self.y_after) - F(self.x)) - self.eta * float(self.nabla @ moved)
        left += self.sum * float(q @ (self.y_after - self.x))
        b = float(np.linalg.norm(self.b))
        noise = self.beta * b**2 / (self.eta * self.tau)
        paper = self.population.L * b / self.tau + noise + self.beta * b * 2 * self.radius
        return left - 2 * squared, left - squared, noise / 2, paper

    def moves_further_than_the_proof_allows(self) -> bool:
        allowed = self.population.L / self.beta + float(np.linalg.norm(self.b)) / self.eta
        return float(np.linalg.norm(self.y_after - self.x)) > allowed * (1 + ROUNDING)


def potential_drop(seed: int) -> Finding:
    """Check lemma potDrop along whole runs, with the realised ||q_t|| in place of its high-probability bound."""
    rng = np.random.default_rng(seed)
    printed = sharper = -math.inf
    rounds, runs = 0, 40
    for index in range(runs):
        z_step = ("halved", "proof")[index % 2]
        population, path, beta, noise = _random_run(rng, z_step)
        x_star = population.minimiser()
        for t in range(len(path.x)):
            drop, paper = _drop(population, path, t, beta, noise[t], x_star)
            ours = _sharper_drop(population, path, t, beta, noise[t], Z_STEPS[z_step][1])
            scale = abs(drop) + paper + 1e-300
            printed, sharper = max(printed, (drop - paper) / scale), max(sharper, (drop - ours) / scale)
            rounds += 1
    rise, right = _rise_without_noise(2.0), _rise_without_noise(1.0)
    sentence = (
        f"Fails without any noise: on a quadratic with exact gradients, where its right side is 0, Phi rises by up to "
        f"{rise:.4f} Phi_0 per round. a8 uses eta_t <nabla_t, .> for the 2 eta_t <nabla_t, .> of a7: the step "
        "eta_t/(2 beta) goes with beta ||z - x*||^2, not 2 beta (and then eta_t^2 <= 2 eta_(0:t), which t + 1 "
        "satisfies). With that potential no round rose, and the printed bound held in every random round. So did a "
        "sharper one: 1 for its factors 2 and 3, without the L ||b_t||/tau_t that the last display omits."
    )
    figures = {
        "rise of the printed potential, no noise": rise,
        "rise of the corrected one": right,
        "largest (left - right), corrected potential": printed,
        "the same, sharper form": sharper,
    }
    held = max(printed, sharper) <= ROUNDING and right <= ROUNDING
    return Finding("erratum" if rise > ROUNDING and held else "factor", sentence, rounds, figures)


def _random_run(rng: np.random.Generator, z_step: str) -> tuple[Population, Trajectory, float, Array]:
    population = random_population(rng)
    p, T = population.a.shape[1], int(rng.integers(1, 40))
    beta = population.M * 10.0 ** rng.uniform(0, 1)
    kind = rng.integers(0, 3)  # no noise, fresh every round, or the same vector throughout
    scale = population.radius * 10.0 ** rng.uniform(-3, -0.3)
    noise = np.zeros((T, p)) if kind == 0 else rng.normal(size=(T if kind == 1 else 1, p)) * scale * np.ones((T, 1))
    batch = int(rng.integers(1, 20))
    path = run(population, rng, rounds=T, batch_size=batch, beta=beta, noise=noise, z_step=z_step)
    return population, path, beta, noise


def _drop(
    population: Population, path: Trajectory, t: int, beta: float, b: Array, x_star: Array
) -> tuple[float, float]:
    """Return the change of the corrected potential in round t, and the printed bound with the realised ||q_t||."""
    F, eta, sums = population.value, t + 1.0, (t + 1) * (t + 2) / 2
    least, diameter = F(x_star), 2 * population.radius

    def potential(s: int) -> float:
        distance = path.z[s] - x_star
        return s * (s + 1) / 2 * (F(path.y[s]) - least) + beta * float(distance @ distance)

    q, noise = float(np.linalg.norm(path.nabla[t] - path.gradient[t])), float(np.linalg.norm(b))
    gradient = float(np.linalg.norm(path.gradient[t]))
    printed = 2 * q * (gradient + q) / beta + 3 * q * noise / eta + q * eta * diameter / sums
    printed += 3 * beta * noise * diameter / sums + beta * noise**2 / eta**2
    return potential(t + 1) - potential(t), sums * printed


def _sharper_drop(population: Population, path: Trajectory, t: int, beta: float, b: Array, share: float) -> float:
    """Return the sharper bound; ``share`` of b_t is in the z-step."""
    eta, sums, diameter = t + 1.0, (t + 1) * (t + 2) / 2, 2 * population.radius
    q, noise = float(np.linalg.norm(path.nabla[t] - path.gradient[t])), float(np.linalg.norm(b))
    nabla = float(np.linalg.norm(path.nabla[t]))
    estimate = sums * q * (nabla / beta + noise / eta) + eta * q * diameter
    return estimate + 2 * share * beta * noise * diameter + sums * beta * noise**2 / (2 * eta**2)


def _rise_without_noise(weight: float) -> float:
    """Return the largest relative rise per round of eta_{0:t-1} F(y_t) + weight ||z_t||^2 on h x^2/2, beta = 1."""
    worst = -math.inf
    for h in np.linspace(0.01, 1.0, 100):
        x = z = 1.0
        before = weight
        for t in range(60):
            z, y = z - (t + 1) / 2 * h * x, x - h * x
            tau = 2 / (t + 3)
            x = (1 - tau) * y + tau * z
            after = (t + 1) * (t + 2) / 2 * h / 2 * y**2 + weight * z**2
            worst, before = max(worst, float(after - before) / weight), after
    return worst


def excess_population(seed: int) -> Finding:
    """Check theorem excess-population on whole runs: F(y_T) - F* against the bound at gamma = 0.05."""
    rng = np.random.default_rng(seed)
    runs, worst, over = 150, 0.0, 0
    for _ in range(runs):
        population = random_population(rng)
        p, T, B = population.a.shape[1], int(rng.integers(1, 60)), int(rng.integers(1, 30))
        beta = population.M * 10.0 ** rng.uniform(0, 1)
        noise = rng.normal(size=(T, p)) * population.radius * 10.0 ** rng.uniform(-5, -1)
        path = run(population, rng, rounds=T, batch_size=B, beta=beta, noise=noise)
        right = bounds.excess_population(
            rounds=T,
            batch_size=B,
            beta=beta,
            Q=2 * max(path.largest),
            gradient=max(float(np.linalg.norm(g)) for g in path.gradient),
            noise=float(np.linalg.norm(noise, axis=1).max()),
            diameter=2 * population.radius,
            gamma=0.05,
        )
        excess = population.value(path.y[-1]) - population.value(population.minimiser())
        worst = max(worst, excess / right)
        over += excess > right
    azuma = 216 / (4 * math.exp(4))
    sentence = (
        f"Held in {runs - over} of {runs} runs (5 % may fail); the excess was at most {worst:.2g} of the bound, with "
        "||C|| read as the diameter. The proof divides by the wrong sum, Phi_T carries eta_(0:T-1) and not eta_(0:T), "
        "and starts from the wrong potential (lem:potDrop); with the right one Phi_0 = beta ||z_0 - x*||^2, and the "
        "printed form covers both. "
        "Its use of the vector Azuma inequality, 3 ln(6/gamma) for 2 ln(2 e^2/gamma), is sound for gamma <= "
        f"{azuma:.3f}."
    )
    verdict = "holds" if over <= runs // 10 and worst < 1 else "erratum"
    return Finding(verdict, sentence, runs, {"largest excess over bound": worst, "runs above the bound": float(over)})


def simplified(seed: int) -> Finding:
    """Compare the simplified form with the theorem it simplifies, and with runs whose excess exceeds it."""
    del seed  # one family, no randomness
    ratios = []
    horizons = (64, 256, 1024)
    for T in horizons:
        beta = radius = b = 1.0
        h = beta * b / (T * radius)
        excess = _constant_noise(T, h, beta, b, radius)
        sides = (
            bounds.excess_population_simplified(
                rounds=T, beta=beta, S=0.0, lipschitz=2 * h * radius, noise=b, diameter=2 * radius, printed=printed
            )
            for printed in (True, False)
        )
        ratios.append([excess / side for side in sides])
    growth = math.log(ratios[-1][0] / ratios[0][0]) / math.log(horizons[-1] / horizons[0])
    sentence = (
        "The sum over T rounds is missing: every term but the last is smaller by a factor T than Theorem "
        "excess-population gives (the proofs of both main theorems use the right powers). With one vector b of length "
        "R as the noise of all rounds and a curvature of beta/T, the excess over the printed form grows as "
        f"T^{growth:.2f} (from {ratios[0][0]:.3g} at T = {horizons[0]} to {ratios[-1][0]:.3g} at T = {horizons[-1]}), "
        f"beyond any constant and logarithm. Over the corrected form it stays at {ratios[-1][1]:.2f}."
    )
    figures = {
        "growth exponent over the printed form": growth,
        "largest over the corrected form": max(r[1] for r in ratios),
    }
    return Finding("erratum", sentence, len(horizons), figures)


def _constant_noise(T: int, h: float, beta: float, b: float, radius: float) -> float:
    """Return the excess of y_T on h/2 (x - R)^2 in [-R, R], from 0 with exact gradients and noise -b per round."""
    x = y = z = 0.0
    for t in range(T):
        gradient = h * (x - radius)
        z = min(max(z - (t + 1) / (2 * beta) * gradient - b / 2, -radius), radius)
        y = min(max(x - gradient / beta - b / (t + 1), -radius), radius)
        tau = 2 / (t + 3)
        x = (1 - tau) * y + tau * z
    return h / 2 * (y - radius) ** 2


def independent_gradients(seed: int) -> Finding:
    """Check the theorem on independent batch gradients, in expectation over 30 runs per instance."""
    rng = np.random.default_rng(seed)
    instances, repeats, worst = 25, 30, 0.0
    for _ in range(instances):
        population = random_population(rng)
        p, T, B = population.a.shape[1], int(rng.integers(1, 30)), int(rng.integers(1, 20))
        beta = population.M * 10.0 ** rng.uniform(0, 1)
        noise = rng.normal(size=(T, p)) * population.radius * 10.0 ** rng.uniform(-5, -1)
        least = population.value(population.minimiser())
        settings = {"rounds": T, "batch_size": B, "beta": beta, "noise": noise, "recursive": False}
        ends = [run(population, rng, **settings).y[-1] for _ in range(repeats)]
        excess = float(np.mean([population.value(y) for y in ends])) - least
        right = bounds.independent_gradients(
            rounds=T,
            batch_size=B,
            beta=beta,
            lipschitz=population.L,
            noise=float(np.linalg.norm(noise, axis=1).max()),
            diameter=2 * population.radius,
        )
        worst = max(worst, excess / right)
    sentence = (
        "Held on every instance, even with 3 beta ||b_t|| R divided by eta_(0:t) as in the proof (the printed form "
        f"lacks the division, which makes it weaker by up to eta_(0:T), not false): mean excess at most {worst:.2g} of "
        "the bound."
    )
    return Finding(
        "holds" if worst < 1 else "erratum", sentence, instances * repeats, {"largest excess over bound": worst}
    )
