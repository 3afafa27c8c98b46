"""The survey's sum: what it is, and that no row exceeds its bound in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import dpsco
from dpsco.clipping.survey import SurveyOracle, joint_bounds, pack, survey_size, unit_rows, unpack
from dpsco.methods.surveyed import moment_of
from dpsco.query import Batch, Query

PROBLEMS = {
    "logistic": dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 4, feature_norm=2.0, intercept=True),
    "no intercept": dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 4, feature_norm=0.3),
    "softmax": dpsco.Problem(dpsco.Softmax(3), dpsco.L2Ball(5.0), 4, intercept=True),
    "squared": dpsco.Problem(dpsco.Squared(label_bound=3.0), dpsco.L2Ball(5.0), 4, intercept=True),
    "hinge": dpsco.Problem(dpsco.SmoothedHinge(0.5), dpsco.L2Ball(5.0), 4),
}
ODD = [
    [3.0, -1.0, 2.0, 0.5],
    [1e149, -1e149, 0.0, 1.0],
    [1e308, 1e308, -1e308, 1.0],
    [np.nan, 0.0, 0.0, 1.0],
    [np.inf, 0.0, 0.0, 1.0],
    [5e-324, 1e-310, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0],
    [1.0, 0.0, 0.0, 0.0],
    [1 / 3, 2 / 3, 2 / 3, 1e-200],
]


def query(problem: dpsco.Problem, kind: str = "full", grid: float = 0.0) -> Query:
    moment = moment_of(problem, kind)
    omega = moment.gradient * math.hypot(1.0, moment.constant) / moment.slope
    clip = joint_bounds(moment)[0]
    return Query(0, (np.zeros(problem.parameters),), (omega,), clip=clip, size=8, grid=grid, moment=moment)


def answer(problem: dpsco.Problem, features, labels, kind: str = "full", grid: float = 0.0):
    batch = Batch(0, [(np.asarray(features, dtype=np.float64), np.asarray(labels, dtype=np.float64))])
    return SurveyOracle(problem.loss, problem.intercept).answer(query(problem, kind, grid), batch)


def exact_square(values) -> Fraction:
    return sum((Fraction(float(value)) ** 2 for value in values), Fraction(0))


def test_packing_keeps_inner_products():
    rng = np.random.default_rng(0)
    a, b = (x + x.T for x in rng.standard_normal((2, 5, 5)))
    assert pack(a) @ pack(b) == pytest.approx(np.sum(a * b))
    np.testing.assert_allclose(unpack(pack(a), 5), a)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_sum_is_moment_gradient_and_health(name):
    problem = PROBLEMS[name]
    rng = np.random.default_rng(1)
    features, labels = rng.standard_normal((300, 4)), rng.integers(0, 2, 300)
    total = answer(problem, features, labels).total
    moment = moment_of(problem, "full")
    scaled = features / problem.feature_norm
    scaled /= np.maximum(1.0, np.linalg.norm(scaled, axis=1))[:, None]
    rows = np.hstack([scaled, np.full((300, 1), 0.5)]) if problem.intercept else scaled
    p = rows.shape[1]
    assert len(total) == survey_size(moment, problem.parameters)
    np.testing.assert_allclose(unpack(total[: p * (p + 1) // 2], p), rows.T @ rows, rtol=1e-10, atol=1e-10)
    scores = np.zeros((300, problem.loss.outputs)) if problem.loss.outputs > 1 else np.zeros(300)
    slopes = problem.loss.slope(scores, labels.astype(float)).reshape(300, -1)
    omega = 0.5 * math.sqrt(1 + moment.constant**2) / moment.slope
    gradient = total[p * (p + 1) // 2 :][: problem.parameters]
    np.testing.assert_allclose(gradient, omega * (slopes.T @ rows).ravel(), rtol=1e-9, atol=1e-9)
    health = total[-2 - max(moment.classes, 1) :] / (0.1 * (1 + moment.constant**2))
    over = np.sum(np.linalg.norm(features, axis=1) > problem.feature_norm)
    assert health[:2] == pytest.approx([300, over])
    if moment.classes:
        assert health[2:4] == pytest.approx(np.bincount(labels, minlength=2))
    else:
        assert health[2] == pytest.approx(np.sum(np.minimum((slopes / moment.slope) ** 2, 1.0)))


def test_a_diagonal_survey_is_part_of_the_full_one():
    problem = PROBLEMS["logistic"]
    features, labels = np.random.default_rng(2).standard_normal((50, 4)), np.arange(50) % 2
    full, part = (answer(problem, features, labels, kind).total for kind in ("full", "diagonal"))
    moment = unpack(full[:15], 5)
    np.testing.assert_allclose(part[:5], np.diag(moment))
    np.testing.assert_allclose(part[5:9], math.sqrt(2.0) * moment[:4, 4])
    np.testing.assert_allclose(part[9:], full[15:])


@pytest.mark.parametrize("norm", [1.0, 1e-3, 1e3, 0.1, 3.7])
def test_unit_rows_are_no_longer_than_1_in_exact_arithmetic(norm):
    rng = np.random.default_rng(3)
    rows = np.vstack([ODD, rng.standard_normal((400, 4)) * norm, rng.standard_normal((50, 4)) * 1e-160])
    rows[20:200] *= norm / np.linalg.norm(rows[20:200], axis=1)[:, None]
    for row in unit_rows(rows, norm, 0.0)[0]:
        assert exact_square(row) <= 1


def exact_parts(problem: dpsco.Problem, features, label) -> tuple[list[Fraction], list[Fraction], list[Fraction]]:
    """Row a, slopes s and health of one row as the oracle sees them, as rationals."""
    moment = moment_of(problem, "full")
    rows, shortened, unusable = unit_rows(np.array([features], dtype=float), moment.feature_norm, moment.constant)
    if unusable[0] or not problem.loss.valid(np.array([label]))[0]:
        return (
            [Fraction(0)] * rows.shape[1],
            [Fraction(0)] * moment.outputs,
            [Fraction(0)] * (2 + max(moment.classes, 1)),
        )
    shape = (1, moment.outputs) if moment.outputs > 1 else (1,)
    slopes = problem.loss.slope(np.zeros(shape), np.array([float(label)])).ravel()
    scale = min(1.0, moment.slope / max(float(np.linalg.norm(slopes)), 1e-300)) * (1 - 1e-14)
    square = min(float(np.linalg.norm(slopes)) / moment.slope, 1.0) ** 2
    last = [float(label == k) for k in range(moment.classes)] or [square]
    health = [1.0, float(shortened[0]), *last]
    return [Fraction(v) for v in rows[0]], [Fraction(float(v) * scale) for v in slopes], [Fraction(v) for v in health]


def exact_distance_squared(problem: dpsco.Problem, one, other) -> Fraction:
    """||v(d) - v(d')||^2 by its definition: squares of differences, entry by entry."""
    moment = moment_of(problem, "full")
    square = 1 + Fraction(moment.constant) ** 2
    omega_squared = Fraction(moment.gradient) ** 2 * square / Fraction(moment.slope) ** 2
    (a, s, h), (b, r, g) = one, other
    p = range(len(a))
    total = sum(((a[i] * a[j] - b[i] * b[j]) ** 2 for i in p for j in p), Fraction(0))
    total += omega_squared * sum(
        ((a[i] * x - b[i] * y) ** 2 for i in p for x, y in zip(s, r, strict=True)), Fraction(0)
    )
    health = sum(((x - y) ** 2 for x, y in zip(h, g, strict=True)), Fraction(0))
    return total + (Fraction(moment.health) * square) ** 2 * health


@pytest.mark.parametrize("name", PROBLEMS)
def test_bounds_hold_in_exact_rational_arithmetic(name):
    problem = PROBLEMS[name]
    rng = np.random.default_rng(4)
    features = [*ODD, *(rng.standard_normal((12, 4)) * 10.0 ** rng.integers(-2, 3, (12, 1))).tolist()]
    features += [(-np.array(row)).tolist() for row in features[-6:]]
    rows = [exact_parts(problem, row, label) for row in features for label in (0, 1)]
    zero = exact_parts(problem, [np.nan] * 4, 0)
    clip, apart = (Fraction(bound) * (1 + Fraction(1, 10**12)) for bound in joint_bounds(moment_of(problem, "full")))
    worst = max(exact_distance_squared(problem, row, zero) for row in rows)
    assert worst <= clip**2
    assert worst >= Fraction(1, 4) * clip**2  # the bound is not idle
    assert max(exact_distance_squared(problem, one, other) for one in rows for other in rows) <= apart**2


def test_the_replace_bound_is_nearly_met():
    """Rows at the worst angle, with opposite slopes: t = kappa^2 rho^2 / 2."""
    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(5.0), 4)
    angle = math.acos(0.125)
    one = exact_parts(problem, [1.0, 0.0, 0.0, 0.0], 0)
    other = exact_parts(problem, [math.cos(angle), math.sin(angle), 0.0, 0.0], 1)
    apart = joint_bounds(moment_of(problem, "full"))[1]
    assert 0.99 * apart < math.sqrt(exact_distance_squared(problem, one, other)) <= apart


@pytest.mark.parametrize("features", ODD)
@pytest.mark.parametrize("label", [0.0, 1.0, 77.0, np.nan])
def test_one_row_moves_the_sum_by_no_more_than_its_bound(features, label):
    """Whole blocks in floating point, rounded to the grid, with one row zeroed."""
    problem = PROBLEMS["logistic"]
    rng = np.random.default_rng(5)
    rows, labels = rng.standard_normal((600, 4)), rng.integers(0, 2, 600).astype(float)
    plan = dpsco.Plan(problem, 6000, dpsco.Budget(1.0, 1e-6), dpsco.methods.Surveyed(rounds=4, rows=600))
    noise = plan.schedule.calibration.at(0)
    rows[300], labels[300] = features, label
    with_row = answer(problem, rows, labels, grid=noise.grid).total
    rows[300] = np.nan
    without = answer(problem, rows, labels, grid=noise.grid).total
    assert math.sqrt(exact_square(with_row - without)) <= noise.difference
    if np.isfinite(features).all() and label in (0.0, 1.0) and max(map(abs, features)) < 1e150:
        assert np.any(with_row != without)
    else:
        assert np.all(with_row == without)
