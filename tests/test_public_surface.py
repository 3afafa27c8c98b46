"""The public surface, by example: other people's code depends on these names."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest

import dpsco
from dpsco.cli import main
from dpsco.datasets import reference_problem


def test_the_surface_works_as_its_users_write_it() -> None:
    n = 20_000
    data = reference_problem(n, fresh=10)
    budget = dpsco.Budget(epsilon=1.0, delta=1e-6)
    assert budget.mu == pytest.approx(0.236704, abs=1e-6)
    problem = dpsco.Problem(loss=dpsco.Logistic(), domain=dpsco.L2Ball(radius=10.0), dimension=50, feature_norm=1.0)
    assert (problem.lipschitz, problem.smoothness) == (1.0, 0.25)
    surveyed_plan = dpsco.plan(problem, n=n, budget=budget, survey="auto")
    assert isinstance(surveyed_plan.method, dpsco.Surveyed)
    assert surveyed_plan.rounds == 14
    assert dpsco.plan(problem, n=n, budget=budget, rounds=8, survey="auto").rounds == 8
    assert "Known after" in surveyed_plan.explain()
    assert dpsco.Plan.from_json(surveyed_plan.to_json()) == surveyed_plan
    surveyed = dpsco.train(surveyed_plan, dpsco.stream(data.features, data.labels))
    assert surveyed.report.rounds <= 14
    assert surveyed.geometry is not None
    assert len(surveyed.geometry.sizes) == 50
    assert surveyed.health is not None
    plan = dpsco.plan(problem, n=n, budget=budget, survey="none")
    assert plan.rounds * plan.batch_size <= n
    assert plan.method.beta > 0
    assert plan.clip > 0
    assert plan.method.z_step in ("listed", "halved")
    assert isinstance(plan.method.mechanism, str)
    assert plan.predicted_excess is not None
    assert plan.predicted_excess > 0
    assert "rounds" in plan.explain()
    assert dpsco.Plan.from_json(plan.to_json()) == plan
    by_hand = dpsco.Plan(
        problem=problem,
        n=n,
        budget=budget,
        method=dpsco.AcceleratedSRGD(rounds=16, beta=0.05, clip=1.0, z_step="listed", mechanism="sqrt"),
    )
    result = dpsco.train(by_hand, dpsco.stream(data.features, data.labels))
    assert result.model.coef.shape == (50,)
    assert result.report.epsilon == 1.0
    assert result.report.mu == budget.mu
    assert len(result.trace) == 16
    assert '"epsilon"' in result.report.to_json()
    m = dpsco.mechanism("sqrt", horizon=64)
    assert m.sensitivity == pytest.approx(math.sqrt(m.max_error))
    assert m.mean_error < m.max_error
    np.testing.assert_allclose(m.decoder() @ m.strategy(), np.tri(64), atol=1e-12)


@pytest.mark.parametrize("name", dpsco.METHODS)
def test_every_method_is_planned_by_its_name_and_survives_json(name) -> None:
    loss = dpsco.Squared() if name == "sufficient-statistics" else dpsco.Logistic()
    problem = dpsco.Problem(loss=loss, domain=dpsco.L2Ball(radius=10.0), dimension=5)
    plan = dpsco.plan(problem, n=2_000, budget=dpsco.Budget(epsilon=1.0, delta=1e-5), method=name)
    assert type(plan.method) is dpsco.METHODS[name] is getattr(dpsco, type(plan.method).__name__)
    assert plan.rounds == plan.schedule.rounds >= 1
    assert all(getattr(plan.method, field) is not None for field in plan.method.tunable)
    assert name in plan.explain()
    assert dpsco.Plan.from_json(plan.to_json()) == plan


def test_options_that_a_method_does_not_have_are_refused_by_name() -> None:
    problem = dpsco.Problem(loss=dpsco.Logistic(), domain=dpsco.L2Ball(radius=10.0), dimension=5)
    given = {"n": 2_000, "budget": dpsco.Budget(epsilon=1.0, delta=1e-5)}
    assert dpsco.plan(problem, **given, method="dp-ftrl", rounds=20, mechanism="tree").rounds == 20
    for option in ({"rounds": 8}, {"mechanism": "tree"}, {"memory": 1e9}, {"rule": "response"}):
        with pytest.raises(dpsco.InvalidArgument, match=next(iter(option))):
            dpsco.plan(problem, **given, method="phased-sgd", **option)
    with pytest.raises(TypeError):
        dpsco.train(dpsco.plan(problem, **given), dpsco.stream(np.zeros((9, 5)), np.zeros(9)), algorithm="dp-sgd")


def test_the_estimator_works_as_its_users_write_it() -> None:
    data = reference_problem(20_000, fresh=10)
    clf = dpsco.PrivateLogisticRegression(epsilon=1.0, delta=1e-6, feature_norm=1.0, radius=20.0, classes=[0, 1])
    clf.fit(data.features, data.labels)
    assert set(clf.predict(data.features)) <= {0, 1}
    assert clf.privacy_.epsilon == 1.0
    assert clf.plan_.rounds >= 1


def test_every_name_in_all_exists() -> None:
    for name in dpsco.__all__:
        assert getattr(dpsco, name) is not None


def test_every_public_name_has_a_home_and_type_checkers_see_the_same() -> None:
    source = Path(dpsco.__file__).read_text(encoding="utf-8")
    seen = {
        alias.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpsco.")
        for alias in node.names
    }
    homes = {name: f"dpsco.{home}" for home, names in dpsco._HOMES.items() for name in names}
    assert {"__version__": "dpsco.version", **homes} == seen
    assert set(seen) == set(dpsco.__all__)


def test_dir_lists_the_public_names_and_nothing_private() -> None:
    names = dir(dpsco)
    assert set(names) == {*dpsco.__all__, "jax", "torch"}
    assert [name for name in names if name.startswith("_")] == ["__version__"]


def test_the_version_is_the_same_in_python_on_the_command_line_and_in_the_citation(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dpsco {dpsco.__version__}\n"
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {dpsco.__version__}\n" in citation
