"""Arguments of an audit, its command and its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.audit import oracles_under_test as oracles
from tests.audit.plans import plan

import dpsco
from dpsco.audit import audit
from dpsco.cli import main

HERE = Path(__file__).parent


def test_arguments_that_cannot_be_audited_are_refused_by_name() -> None:
    method = dpsco.AcceleratedSRGD(rounds=4, beta=1.0, clip=1.0)
    silent = dpsco.Plan(plan().problem, 96, dpsco.Budget(np.inf, 1e-6), method)
    for call, says in (
        (lambda: audit(oracles.gradient), "plan"),
        (lambda: audit(silent), "epsilon"),
        (lambda: audit(plan()), "CustomLoss"),
        (lambda: audit(dpsco.PrivateLinearSVC()), "data"),
        (lambda: audit(plan(), alpha=0.7), "alpha"),
        (lambda: audit(oracles.gradient, plan=plan(), data=([[1.0]], [1.0, 2.0])), "shapes"),
    ):
        with pytest.raises(dpsco.DpscoError, match=says):
            call()


def test_the_command_exits_with_the_verdict_and_writes_a_page_that_explains_it(tmp_path, capsys) -> None:
    file = f"{HERE / 'oracles_under_test.py'}"
    common = ["--dimension", "16", "--rows", "96", "--rounds", "4"]
    page = tmp_path / "audit.html"
    assert main(["audit", f"{file}:gradient", *common]) == 0
    assert "Verdict: passed" in capsys.readouterr().out
    assert main(["audit", f"{file}:ClipsApart", *common, "--html", str(page), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["passed"]
    text = page.read_text()
    assert "clipped separately" in text
    assert "<style>" in text
    assert "http" not in text


def test_the_command_audits_plans_and_files_of_rows(tmp_path, capsys) -> None:
    assert main(["plan", "--rows", "500", "--dimension", "40", "--epsilon", "4", "--delta", "1e-6", "--json"]) == 0
    (tmp_path / "plan.json").write_text(capsys.readouterr().out)
    assert main(["audit", str(tmp_path / "plan.json")]) == 0
    rng = np.random.default_rng(0)
    lines = "".join(
        ",".join(f"{v:.3f}" for v in row) + f",{int(row[0] > 0)}\n" for row in rng.standard_normal((99, 20))
    )
    (tmp_path / "rows.csv").write_text(",".join(f"c{j}" for j in range(20)) + ",y\n" + lines)
    capsys.readouterr()
    target = f"{HERE / 'oracles_under_test.py'}:Right"
    columns = ",".join(f"c{j}" for j in range(20))
    rows = ["--data", str(tmp_path / "rows.csv"), "--label", "y", "--features", columns]
    assert main(["audit", target, *rows]) == 0
    assert "NOT PRIVATE" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["nothing.json", "nothing.py:x", "no.such.module:x", "dpsco:nothing"])
def test_a_target_that_is_not_there_is_named(target: str, capsys) -> None:
    assert main(["audit", target]) == 2
    assert "nothing" in capsys.readouterr().err or "no.such" in target


def test_the_page_about_audits_runs() -> None:
    text = (HERE.parents[1] / "docs" / "audit.md").read_text(encoding="utf-8")
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], {"__name__": "page"})  # noqa: S102
