"""`dpsco demo` from a shell."""

from __future__ import annotations

import json
import re

import pytest

from dpsco.cli import main


def test_the_demo_reports_and_writes_a_page_with_nothing_from_elsewhere(tmp_path, capsys) -> None:
    assert main(["demo", "--rows", "20000", "--out", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["report"]["private"]
    assert said["report"]["epsilon"] == 1.0
    accuracy = {
        name: float(said["reached"][f"accuracy, {name}"]) for name in ("private", "non-private", "of a constant")
    }
    assert accuracy["of a constant"] + 0.1 < accuracy["private"] <= accuracy["non-private"] + 0.01
    page = (tmp_path / "index.html").read_text()
    assert page.count("<svg") >= 2
    assert "income" in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page)
    assert "Private" in page


def test_the_demo_speaks_to_people(tmp_path, capsys) -> None:
    assert main(["demo", "--rows", "5000", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for words in ("One pass", "PRIVATE", "accuracy, non-private", "index.html"):
        assert words in said


def test_a_wrong_argument_says_what_to_do_and_exits_with_2(tmp_path, capsys) -> None:
    assert main(["demo", "--epsilon", "-1", "--rows", "1000", "--out", str(tmp_path)]) == 2
    assert "epsilon" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["nonsense"])
