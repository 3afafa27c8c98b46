"""The search behind a survey finds what trying every candidate by itself finds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpsco.planning.clip_cost import clip_cost, clip_costs, label_spread
from dpsco.planning.response_curves import response_curves
from dpsco.planning.response_planner import excess
from dpsco.planning.rounds_search import Candidates, search
from dpsco.planning.spectrum_priors import Populations

RUNS = ((4, "listed"), (4, "halved"), (7, "listed"), (11, "halved"), (15, "listed"))
SHARES = np.array([1.6, 1.2, 0.85, 0.7])
OTHER = np.array([0.0, 0.0, 1e-3, 8e-3])


def candidates(seed: int, *, classes: bool) -> Candidates:
    rng = np.random.default_rng(seed)
    ridges, hypotheses, groups = int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 12))
    sizes = np.sort(rng.random((ridges, 1, 1, groups)) ** 3 + 1e-4, axis=-1)
    factors = rng.uniform(0.05, 0.25, (hypotheses, 1, 1)) * np.array([0.7, 1.0, 1.3])[None, :, None]
    rows, mu = 10.0 ** rng.uniform(3, 6), 10.0 ** rng.uniform(-1, 1)
    batches = np.array([float(rows // T) for T, _ in RUNS])
    weights = rng.random(hypotheses) + 0.1
    if classes:
        chances = [rng.uniform(0.02, 0.98, 31) for _ in range(hypotheses)]
        spreads = [label_spread(np.stack([q, 1 - q], axis=1), np.full(31, 1 / 31)) for q in chances]
        costs = np.array([[clip_costs(one, tail) for one in spreads] for tail in rng.uniform(0.02, 0.6, ridges)])
    else:
        costs = OTHER[:, None] * rng.random(hypotheses)
    return Candidates(
        curvature=factors * sizes,
        distance=10 * rng.random((ridges, hypotheses, 1, groups)) * np.array([1.2, 1.0, 0.9])[:, None],
        count=rng.integers(1, 7, groups).astype(float),
        disagreement=1.0,
        weights=weights / np.sum(weights),
        tables=np.array([response_curves(*run) for run in RUNS]),
        batches=batches,
        late=0.01 * np.log2([T + 1.0 for T, _ in RUNS]),
        betas=np.geomspace(0.5, 6.0, 7)[:, None] * (0.15 * np.max(sizes, axis=(1, 2, 3))),
        reach=rng.uniform(1, 3, ridges) * math.sqrt(groups) / (batches[:, None] * mu),
        shares=SHARES,
        costs=costs,
    )


def merit_and_parts(given: Candidates, ridge: int, run: int, clip: int, beta: int) -> tuple[float, list[float]]:
    """One candidate by the formulas of ``response_planner.excess`` and ``clip_cost``, hypothesis by hypothesis."""
    merit, expected = float(given.late[run]), np.zeros(3)
    for h, weight in enumerate(given.weights):
        shape = given.curvature[ridge, h].shape
        population = Populations(
            given.curvature[ridge, h],
            np.broadcast_to(given.count, shape),
            np.broadcast_to(given.distance[ridge, h], shape),
            given.disagreement,
        )
        (found,) = excess(
            population,
            response_curves(*RUNS[run]),
            given.betas[beta : beta + 1, ridge],
            batch_size=int(given.batches[run]),
            clips=[(float(given.reach[run, ridge] * given.shares[clip]), 0.0)],
            noise_share=1.0,
        )
        cost = np.full(3, given.costs[clip, h]) if given.costs.ndim == 2 else None
        if cost is None:
            cost = clip_cost(given.costs[ridge, h], float(given.shares[clip]), found.motion[0])
        merit += weight * float(np.mean(np.log(found.total[0] + cost)))
        expected += weight * np.array([found.optimisation[0, 1] + cost[1], found.noise[0, 1], found.sampling[0, 1]])
    return merit, expected.tolist()


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_the_search_finds_the_best_of_all_candidates(seed: int, classes: bool) -> None:
    given = candidates(seed, classes=classes)
    counts = (len(given.curvature), len(RUNS), len(SHARES), len(given.betas))
    tried = {at: merit_and_parts(given, *at) for at in itertools.product(*(range(k) for k in counts))}
    best = search(given)
    merit, parts = tried[best.ridge, best.run, best.clip, best.beta]
    assert best.merit == pytest.approx(merit, abs=1e-10)
    assert best.merit <= min(each for each, _ in tried.values()) + 1e-10
    assert best.parts == pytest.approx(parts, rel=1e-9)


def test_numbers_that_are_none_are_found_so_that_the_plan_is_refused() -> None:
    """A plan whose prediction is not a number becomes the plain plan: it must not be hidden behind another."""
    given = candidates(0, classes=True)
    given.distance[...] = math.nan
    with np.errstate(all="ignore"):
        assert math.isnan(search(given).merit)
