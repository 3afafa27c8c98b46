"""The page of a run: its subject, its summary, its coefficients."""

from __future__ import annotations

import re
import warnings
from datetime import UTC, datetime

import numpy as np
import pytest

import dpsco
from dpsco.cli import main
from dpsco.datasets import people
from dpsco.pages import Subject, write_run_page
from dpsco.pages.coefficients import Coefficients, coefficients_of
from dpsco.run.parameter_table import parameter_table

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

RNG = np.random.default_rng(3)
ROWS = RNG.uniform(-1, 1, size=(40_000, 3))
LABELS = (ROWS @ [2.0, -1.0, 0.0] + RNG.logistic(size=len(ROWS)) > 0).astype(int)
PUBLIC = {"epsilon": 8.0, "delta": 1e-6, "feature_norm": 3**0.5}


@pytest.fixture(scope="module")
def surveyed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpsco.PrivacyLeakWarning)
        model = dpsco.PrivateLogisticRegression(**PUBLIC, classes=[0, 1], survey="intervals", rounds=12, random_state=0)
        return model.fit(ROWS, LABELS)


def test_the_page_states_data_date_label_and_features(tmp_path) -> None:
    table = people(n=3_000)
    model = dpsco.PrivateLogisticRegression(
        epsilon=1.0, delta=1e-5, classes=table.classes, columns=dpsco.PublicColumns(**table.declared)
    ).fit(table.columns, table.labels)
    before = datetime.now(UTC).date().isoformat()
    text = model.report_page(tmp_path / "a.html", data="<Customers>", label="bought").read_text()
    for words in ("&lt;Customers&gt;", "bought: no or yes", "city=Lyon", "income is missing", before[:4]):
        assert words in text
    stated = model.report_page(tmp_path / "b.html", date="in spring").read_text()
    assert "in spring" in stated
    assert before not in stated


def test_the_summary_needs_no_mathematics_and_the_page_no_markup(surveyed, tmp_path) -> None:
    result = surveyed._result
    private = dpsco.train(result.plan, dpsco.stream(ROWS, LABELS))
    page = write_run_page(private, tmp_path / "page.html").read_text()
    assert "`" not in page
    assert "clipped difference" not in page
    summary = page.split("Details for specialists")[0]
    assert "<b>Private</b>" in summary
    for word in ("clip", "gradient", "sigma", "mechanism", "Gaussian", "adjacency", "e-06"):
        assert word not in re.sub(r"<style>.*?</style>", "", summary, flags=re.DOTALL).split("(epsilon")[0]


def test_the_plot_shows_the_intervals_of_the_estimator(surveyed, tmp_path) -> None:
    shown = surveyed._coefficients()
    np.testing.assert_allclose(shown.intervals[0], surveyed.confidence_intervals(0.95)[:-1], rtol=1e-12)
    np.testing.assert_allclose(shown.errors[0], surveyed.standard_errors()[:-1], rtol=1e-12)
    np.testing.assert_allclose(shown.values, surveyed.coef_, rtol=1e-9)
    page = surveyed.report_page(tmp_path / "page.html").read_text()
    assert page.count('class="bar"') == 3
    assert f"± {shown.errors[0, 0]:.2g}" in page
    lines = shown.section(["a", "b", "c"], ())["panels"][0]["lines"]
    assert [line["name"] for line in lines] == ["a", "b", "c"]  # the clearest first
    for line in lines:
        assert float(line["bar"][0]) < float(line["at"]) < float(line["bar"][1])


def test_without_intervals_the_page_has_coefficients_and_says_why(tmp_path) -> None:
    model = dpsco.PrivateLogisticRegression(**PUBLIC, classes=[0, 1], survey="none").fit(ROWS[:2_000], LABELS[:2_000])
    page = model.report_page(tmp_path / "page.html").read_text()
    assert 'class="bar"' not in page
    assert page.count("<circle") == 3
    assert "have no standard errors here" in page


def test_a_penalised_model_shows_its_own_coefficients() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpsco.PrivacyLeakWarning)
        model = dpsco.PrivateLogisticRegression(**PUBLIC, classes=[0, 1], penalty=0.1, random_state=0)
        shown = model.fit(ROWS, LABELS)._coefficients()
    np.testing.assert_array_equal(shown.values, model.coef_)
    assert "penalty" in shown.why


def test_classes_have_a_plot_each_and_many_features_are_cut() -> None:
    values = RNG.standard_normal((3, 100))
    section = Coefficients(values, np.zeros(3)).section([f"f{j}" for j in range(100)], ["x", "y", "z"])
    assert [panel["title"] for panel in section["panels"]] == ["Class x", "Class y", "Class z"]
    assert len(section["panels"][0]["lines"]) == 30
    assert "30 clearest of 100" in section["more"]
    places = [float(line["at"]) for panel in section["panels"] for line in panel["lines"]]
    assert min(places) >= 4
    assert max(places) <= 96
    flat = Coefficients(np.zeros((1, 2)), np.zeros(1)).section(["a", "b"], ())
    assert flat["zero"] == "50.00"


def test_wide_models_are_not_inferred_and_other_models_have_no_plot() -> None:
    wide = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=1_001)
    plan = dpsco.Plan(wide, 4, dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=2, beta=1.0, clip=1.0))
    result = dpsco.train(plan, dpsco.stream(np.zeros((4, 1_001)), [0, 1, 0, 1]))
    assert parameter_table(result) is None
    assert "1,000" in coefficients_of(result).why
    problem = dpsco.Problem(dpsco.CustomLoss(), dpsco.L2Ball(1.0), dimension=3, feature_norm=2.0)
    plan = dpsco.Plan(problem, 50, dpsco.Budget(1.0, 1e-6), dpsco.AcceleratedSRGD(rounds=2, beta=1.0, clip=1.0))
    oracle = dpsco.PerExample(lambda x, row, label: row)
    result = dpsco.train(plan, dpsco.stream(ROWS[:50], LABELS[:50]), oracle=oracle)
    assert coefficients_of(result) is None


def test_summary_of_a_raw_table_names_encoded_features() -> None:
    names = {"ranges": {"a": (-1, 1), "b": (-1, 1)}, "missing": ["a"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpsco.PrivacyLeakWarning)
        model = dpsco.PrivateLogisticRegression(
            epsilon=20.0, delta=1e-6, classes=[0, 1], survey="intervals", rounds=12, random_state=0,
            columns=dpsco.PublicColumns(**names),
        )  # fmt: skip
        model.fit({"a": ROWS[:, 0], "b": ROWS[:, 1]}, LABELS)
    assert model._feature_names() == ("a", "a is missing", "b")


def test_the_command_line_states_the_subject(tmp_path) -> None:
    rows = "\n".join(f"{a:.3f},{b:.3f},{y}" for a, b, y in zip(ROWS[:500, 0], ROWS[:500, 1], LABELS, strict=False))
    (tmp_path / "patients.csv").write_text("age,dose,ill\n" + rows + "\n")
    given = ["--label", "ill", "--classes", "0,1", "--range", "age=-1:1", "--range", "dose=-1:1", "--delta", "1e-4"]
    out = ["--epsilon", "1", "--out", str(tmp_path / "m.json"), "--html", str(tmp_path / "p.html"), "--json"]
    assert main(["fit", str(tmp_path / "patients.csv"), "--features", "age,dose", *given, *out]) == 0
    text = (tmp_path / "p.html").read_text()
    for words in ("Privacy report: patients.csv", "ill: 0 or 1", "age and dose"):
        assert words in text
    page = ["--html", str(tmp_path / "q.html"), "--data-name", "Trial 7", "--run-date", "May"]
    assert main(["report", str(tmp_path / "m.json"), *page]) == 0
    text = (tmp_path / "q.html").read_text()
    for words in ("Privacy report: Trial 7", ">May<", "ill: 0 or 1", "dose"):
        assert words in text


def test_names_count_only_if_there_is_one_per_feature() -> None:
    assert Subject(features=["a", "b"]).names(2) == ["a", "b"]
    assert Subject(features=["a", "b"]).names(3) == ["column 0", "column 1", "column 2"]
