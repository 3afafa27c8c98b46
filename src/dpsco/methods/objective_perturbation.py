"""Objective perturbation (Chaudhuri et al. 2011; Kifer, Smith, Thakurta 2012): noise in the objective, one release.

    b       ~ N(0, sigma^2 I), secret
    theta*  = argmin sum_i f(theta, d_i) + ridge/2 |theta - x_0|^2 + wall/2 (|theta| - R)_+^2 + <b, theta>
    theta   = a point within tau of theta*, certified (minimise.py)
    output  Proj(theta + N(0, s^2 I)),     2 tau / s = L / (32 sigma)

Guarantee: (epsilon, delta)-DP by accounting/objective.py, for convex losses of linear models and for points that are
within tau of the exact minimiser. The first is checked before a row is read, the second by the solver's certificate,
and the small noise s pays for tau. Rounding counts in tau: scores, slopes, sums of rows and the float64 normals of b.
There are at most n rows, a public number, so the bound on rounding is public, and 16 times smaller than the tolerance
within 2 R. The solver's path within 5 R therefore keeps e <= tolerance / 4 (minimise.py): no rows make it fail.
The wall is public, convex and has a Lipschitz gradient; it keeps |theta| below 2 R, so that rounding stays small.
Rows are (a, c) with c = min(1, F/2) where the problem has an intercept: its coefficient is measured in units of c, and
no row is longer than with the problem's constant of 1, so a clip at the problem's L clips no row. Longer rows than
feature_norm F are shortened to it, slopes are clamped at clip/|a|. That keeps the loss of a scalar linear model convex;
the squared loss on a ball is then quadratic inside it.

The ridge
    With curvatures h_j ~ 1/j of trace M / 2, an optimum at distance D in a random direction and gradients that disagree
    by L^2 / (4 M), the sum's minimiser has the expected excess

        1/2 sum_j h_j (D^2/p ridge^2 + sigma(ridge)^2 + n h_j L^2 / (4 M)) / (n h_j + ridge)^2.

    The ridge minimises it over a grid; D = min(radius / 2, 2.5 L / M). All numbers are public.
Cost: about ten passes, p^2 operations per row in each; p^2 numbers. Rows are kept in memory up to a gigabyte, then read
again (arrays, files); rows that can be read once are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsco.accounting.budget import Budget
from dpsco.accounting.composition import Composition
from dpsco.accounting.objective import RESIDUAL, alpha_of, noise_for, vertices
from dpsco.errors import InvalidArgument, one_of
from dpsco.methods.convex import ConvexMethod
from dpsco.methods.method import Method, RowAccess, value_of
from dpsco.methods.minimise import certified_minimum
from dpsco.methods.phases import PhasedState
from dpsco.methods.schedule import Schedule
from dpsco.problem import Huber, MulticlassHinge, Problem, Softmax, Squared
from dpsco.query import Array, Batch, Clipped, Portion, Query, Released
from dpsco.release.calibration import calibrate_residual
from dpsco.release.float_noise import COUPLING
from dpsco.release.mechanisms import Independent

__all__ = ["PASSES", "RIDGES", "Objective", "ObjectivePerturbation", "objective_of", "rough_noise"]

PASSES = 10
"""Public number of passes that a run counts. The solver's own number depends on the rows and is not told."""

WIDEST = 4096
"""Most parameters: the solver keeps the square of it."""

BLOCK = 1024
"""Rows that one matrix product sums."""

CONSTANTS = ("tight", "paper")
_INTERCEPT = 0.5
_ROUNDOFF = 2.0**-53
_ROOM = 16.0
"""Tolerance over the rounding error at n rows within 2 R."""
_FINEST = 2.0**-40
"""tau in units of R sqrt(p), at least: float64 holds a release on the grid that goes with it."""
_FLATTEST = 2.0**-40
"""Least ridge in units of the largest curvature: sums of up to 4096 x 4096 Hessians stay positive definite."""
RIDGES = np.geomspace(2.0**-5, 2.0**20, 101)
"""Ridges that are tried, in units of ``Objective.spread``."""
_FAR = 12.0


@dataclass(frozen=True)
class Objective:
    """Sizes of the rows, as the method sees them. Public."""

    shape: str
    classes: int
    constant: float
    """The intercept's column; 0 without one."""
    lipschitz: float
    """L: bound on the norm of a row's (clamped) gradient."""
    smoothness: float
    """M: bound on the norm of a row's Hessian."""
    spread: float
    """What ``alpha_of`` takes: M, or the largest squared norm of a row for classes."""
    radius: float
    """R: the domain is within it, in the method's coordinates."""

    def wall(self, n: int, sigma: Any, parameters: int) -> Any:
        """Curvature beyond R: no n rows and no b of usual size can push the minimiser beyond 2 R."""
        return (n * self.lipschitz + sigma * (math.sqrt(parameters) + _FAR)) / self.radius

    def rounding(self, rows: int, reach: float, wall: Any, sigma: Any, width: int, parameters: int) -> Any:
        """Bound on the distance of the objective's computed gradient from the exact one, where |theta| <= reach."""
        scores = 2.0 * (width + 16) * self.smoothness * reach
        sums = (BLOCK + 128 + 8 * self.classes) * self.lipschitz
        noise = sigma * math.sqrt(parameters) * _FAR
        return _ROUNDOFF * (rows * (scores + sums) + 16.0 * (wall * reach + noise)) + 4 * COUPLING * noise

    def tolerance(self, n: int, ridge: Any, sigma: Any, width: int, parameters: int) -> Any:
        """Bound on the exact gradient at the solver's point, for one ridge and sigma or for arrays of them."""
        wall = self.wall(n, sigma, parameters)
        rounding = _ROOM * self.rounding(n, 2 * self.radius, wall, sigma, width, parameters)
        return np.maximum(rounding, _FINEST * ridge * self.radius * math.sqrt(parameters))


def objective_of(problem: Problem, clip: float) -> Objective:
    """Return the sizes of a problem's rows under ``clip``."""
    loss, F = problem.loss, problem.feature_norm
    constant = min(1.0, _INTERCEPT * F) if problem.intercept else 0.0
    norm = math.hypot(F, constant)
    radius = problem.radius * max(1.0, 1.0 / constant if constant else 1.0)
    classes = loss.classes if isinstance(loss, Softmax) else 2
    shape = (
        "classes" if isinstance(loss, Softmax) else "two signs" if isinstance(loss, (Huber, Squared)) else "one sign"
    )
    smoothness = loss.smoothness(norm)
    return Objective(
        shape,
        classes,
        constant,
        lipschitz=min(clip, loss.lipschitz(norm, radius)),
        smoothness=smoothness,
        spread=norm**2 if shape == "classes" else smoothness,
        radius=radius,
    )


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(ConvexMethod):
    """The certified minimiser of a randomly tilted sum of losses: many passes over rows at rest, one release.

    Parameters
    ----------
    clip : float
        Bound on one row's gradient.
    ridge : float, optional
        lam, on the sum of the losses; by formula unless given.
    constants : {"tight", "paper"}
        Accounting as proved in accounting/objective.py, or as published (not for "replace").
    """

    ridge: float | None = None
    constants: str = "tight"

    name: ClassVar[str] = "objective-perturbation"
    releases: ClassVar[str] = "last iterate"
    single_epoch: ClassVar[bool] = False
    tunable: ClassVar[tuple[str, ...]] = ("ridge",)
    reason: ClassVar[str] = (
        "Gaussian noise in a convex objective hides what one row does to its minimiser, and the release is within a "
        "certified distance of that minimiser, which further noise covers."
    )
    assumptions: ClassVar[tuple[str, ...]] = (
        *ConvexMethod.assumptions,
        "the solver's point is within a public distance of the exact minimiser: it checked this by the length of the "
        "gradient, rounding included, before the release",
        "the number of passes that the solver took is not watched: it depends on the rows",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("constants", self.constants, CONSTANTS)

    @classmethod
    def planned(cls, problem: Problem, n: int, budget: Budget, **given: Any) -> Method:
        """Return the method with ridge and clip by formula."""
        if isinstance(problem.loss, Squared) and budget.private:  # residuals beyond the label bound are worth clamping
            given = {"clip": min(problem.lipschitz, problem.loss.label_bound * problem.row_norm), **given}
        return super().planned(problem, n, budget, **given)

    def gradients_per_row(self, schedule: Schedule) -> int:
        """Return the number of passes that are counted."""
        return PASSES

    def guarantee_in_words(self, schedule: Schedule) -> str:
        """State the noise in the objective and on its minimiser."""
        settings = schedule.settings
        return (
            f"Each row's gradient is at most {self.objective(schedule.problem).lipschitz:.6g} long. Gaussian noise of "
            f"standard deviation {schedule.inner_sigma:.4g} per coordinate tilts the sum of the losses, and the "
            f"minimiser, certified within {settings['tau']:.2g}, is released with noise "
            f"{schedule.most_noise.sigma:.2g}. Privacy needs the loss to be convex and the minimiser to be exact up to "
            "that distance."
        )

    def objective(self, problem: Problem) -> Objective:
        """Sizes of the rows."""
        return objective_of(problem, self.clip)

    def schedule(self, problem: Problem, n: int, budget: Budget) -> Schedule:
        """Give all rows to one objective, with noise inside it and on its minimiser."""
        self._check_objective(problem, budget)
        self._check_convex(problem, budget)
        form, p = self.objective(problem), problem.parameters
        ridge = self._setting("ridge", _ridge(form, n, p, budget))["ridge"]
        sigma, alpha = self._noise(form, ridge, budget)
        wall = form.wall(n, sigma, p)
        if ridge < _FLATTEST * (n * form.smoothness + wall):
            raise InvalidArgument(
                f"Expected ridge={ridge:.6g} to be at least 2^-40 of the largest curvature, "
                f"{n * form.smoothness + wall:.6g}: float64 does not resolve the minimiser. Use a larger ridge."
            )
        width = problem.dimension + problem.intercept
        tolerance = float(form.tolerance(n, ridge, sigma, width, p))
        noise = calibrate_residual(
            budget,
            clip=form.lipschitz,
            error=tolerance / ridge,
            mu=RESIDUAL * form.lipschitz / sigma if sigma else math.inf,
            dimension=p,
            largest=3 * form.radius,
        )
        text = (
            f"objective perturbation: ridge {ridge:.6g}, noise {sigma:.6g} in the objective, {alpha:.3g} of epsilon "
            f"for curvature; exact up to {tolerance / ridge:.2g}, covered by noise {noise.sigma:.2g}"
        )
        return Schedule(
            problem=problem,
            n=n,
            budget=budget,
            settings={"ridge": ridge, "wall": wall, "tolerance": tolerance, "tau": tolerance / ridge},
            calibration=noise,
            mechanism=Independent(1),
            batch_size=n,
            portions=(Portion(0, n),),
            sampling="all rows in one objective, pass after pass",
            accounting=Composition(text, gaussian=False),
            inner_sigma=sigma,
        )

    def start(self, schedule: Schedule, x0: Array) -> PhasedState:
        """Set x_0 to the start."""
        return PhasedState(0, x0)

    def ask(self, schedule: Schedule, state: PhasedState) -> Query:
        """Return the minimiser near x_0."""
        return self._query(schedule, state.step, (state.x,))

    def answer(self, schedule: Schedule, query: Query, batch: Batch, rows: RowAccess) -> Clipped:
        """Return the certified minimiser: SENSITIVE until it is released."""
        problem, settings, sigma = schedule.problem, schedule.settings, schedule.inner_sigma
        form, p = self.objective(problem), problem.parameters
        passes = rows.passes(batch, query.size, form.lipschitz, form.constant, PASSES)
        centre = _scaled(query.points[0], problem, form, inwards=True)
        tilt = sigma * rows.normals(query.step, p) if sigma else np.zeros(p)
        ridge, wall, width = settings["ridge"], settings["wall"], problem.dimension + problem.intercept

        def derivatives(x: Array, damping: float | None) -> tuple[Array, Array | None]:
            g, hessian = passes.derivatives(x, damping)
            length = math.sqrt(float(x @ x))
            beyond = max(0.0, 1.0 - form.radius / length) if length else 0.0
            g = g + ridge * (x - centre) + tilt + (wall * beyond) * x
            if hessian is not None:
                hessian[np.diag_indices(p)] += ridge + wall * beyond
                if beyond:
                    hessian += (wall * form.radius / length**3) * np.outer(x, x)
            return g, hessian

        def error(x: Array) -> float:
            return form.rounding(passes.rows, math.sqrt(float(x @ x)), wall, sigma, width, p)

        found = certified_minimum(
            derivatives,
            centre,
            tolerance=settings["tolerance"],
            error=error,
            convexity=ridge,
            smoothness=query.size * form.smoothness + ridge + wall,
            farthest=3 * form.radius,
        )
        return Clipped(found, passes.rows)

    def tell(self, schedule: Schedule, state: PhasedState, released: Released) -> PhasedState:
        """Project the released minimiser."""
        problem = schedule.problem
        x = _scaled(value_of(state, released), problem, self.objective(problem), inwards=False)
        return PhasedState(state.step + 1, problem.domain.project(x))

    def _noise(self, form: Objective, ridge: float, budget: Budget) -> tuple[float, float]:
        """(sigma, alpha)."""
        if not budget.private:
            return 0.0, 0.0
        paper = self.constants == "paper"
        alpha = alpha_of(form.shape, ridge, form.spread, form.classes, paper=paper)
        noise = noise_for(
            budget.epsilon,
            budget.gaussian_delta,
            alpha=alpha,
            shape="two signs" if paper else form.shape,
            classes=form.classes,
            replace=budget.adjacency == "replace",
        )
        return form.lipschitz * noise, alpha

    def _check_objective(self, problem: Problem, budget: Budget) -> None:
        if budget.adjacency == "add-remove":
            raise InvalidArgument(
                f"method={self.name!r} needs a public bound on the number of rows: the rounding error of its solver "
                "grows with them. adjacency='add-remove' keeps their number secret. Plan with 'zero-out' or 'replace'."
            )
        if budget.records != 1:
            raise InvalidArgument(
                f"Expected records=1 for method={self.name!r}: its accounting knows neighbours that differ in one row. "
                "Use a method that needs clipping alone for several records at once."
            )
        if isinstance(problem.loss, MulticlassHinge):
            raise InvalidArgument(
                f"method={self.name!r} has a proof for softmax and for losses of one score, not for multiclass-hinge. "
                "Use Softmax, or a method that needs clipping alone."
            )
        if problem.parameters > WIDEST:
            raise InvalidArgument(
                f"Expected at most {WIDEST:,} parameters for method={self.name!r}, got {problem.parameters:,}: its "
                "solver keeps their square. Use a method that needs clipping alone."
            )
        if self.constants == "paper" and (isinstance(problem.loss, Softmax) or budget.adjacency == "replace"):
            raise InvalidArgument(
                "constants='paper' covers losses with one score per row, and rows that are zeroed, added or removed. "
                "Use constants='tight'."
            )


def _ridge(form: Objective, n: int, p: int, budget: Budget) -> float:
    """Return the formula of this module, rounded to four digits: plans are read by people."""
    L, M = form.lipschitz, form.smoothness
    shares = 1.0 / np.arange(1.0, p + 1.0)
    h = 0.5 * M * shares / np.sum(shares)
    square = min(form.radius / 2, 2.5 * L / M) ** 2 / p
    ridges = form.spread * RIDGES
    noise = L * rough_noise(form, ridges, budget)
    top = (square * ridges**2 + noise**2)[:, None] + n * h * L**2 / (4 * M)
    excess = 0.5 * np.sum(h * top / (n * h + ridges[:, None]) ** 2, axis=1)
    return float(f"{ridges[int(np.nanargmin(excess))]:.4g}")


def rough_noise(form: Objective, ridges: Array, budget: Budget) -> Array:
    """Return sigma / L to three digits for each ridge; inf where the ridge is too small."""
    if not budget.private:
        return np.zeros_like(ridges)
    left = np.array([budget.epsilon - alpha_of(form.shape, ridge, form.spread, form.classes) for ridge in ridges])
    usable = left > 0
    low, high = np.full(ridges.shape, -20.0), np.full(ridges.shape, 60.0)
    e = np.where(usable, left, 1.0)
    for _ in range(40):
        middle = (low + high) / 2
        delta = np.zeros_like(e)
        for count, length in vertices(form.shape, form.classes, budget.adjacency == "replace"):
            m = math.hypot(length, RESIDUAL) * np.exp(-middle)
            delta += count * (_tail(e / m - m / 2) - np.exp(np.minimum(e, 700.0)) * _tail(e / m + m / 2))
        enough = delta <= budget.delta
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(usable, np.exp(high), math.inf)


def _tail(x: Array) -> Array:
    """P(Z > x) for a standard normal Z."""
    return np.array([0.5 * math.erfc(value) for value in (x / math.sqrt(2.0)).tolist()])


def _scaled(x: Array, problem: Problem, form: Objective, *, inwards: bool) -> Array:
    """Parameters in units of the method's rows (``inwards``), or back: the intercept alone differs."""
    if not form.constant:
        return np.array(x, dtype=np.float64)
    parts: Any = np.array(x, dtype=np.float64).reshape(problem.loss.outputs, -1)
    parts[:, -1] *= 1.0 / form.constant if inwards else form.constant
    return np.asarray(parts.ravel())
