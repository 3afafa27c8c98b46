"""Every command: help, --json, and errors that name options."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dpsco.cli import COMMANDS, main
from dpsco.cli.output import print_table

WIDE = {**os.environ, "COLUMNS": "400"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_prints_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main([command, "--help"])
    assert done.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_errors_of_the_library_name_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--rows", "1e5", "--dimension", "10", "--epsilon", "1", "--delta", "2"]) == 2
    assert "--delta 2" in capsys.readouterr().err
    assert main(["mechanisms", "--horizon", "2.5"]) == 2
    assert "--horizon" in capsys.readouterr().err


def test_a_command_whose_output_nobody_reads_does_not_report_success() -> None:
    plan = [sys.executable, "-m", "dpsco.cli", "plan", "--rows", "1e5", "--dimension", "5", "--epsilon", "1"]
    process = subprocess.Popen([*plan, "--delta", "1e-6"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert said == b""


def test_a_plan_loads_no_package_that_it_does_not_need() -> None:
    code = (
        "import sys; from dpsco.cli import main; main(sys.argv[1:])\n"
        "heavy = {'rich', 'scipy', 'sklearn', 'numba', 'pandas', 'pyarrow', 'dpsco.rows.public_columns', 'jinja2'}\n"
        "sys.exit(sorted(heavy & set(sys.modules)) or 0)"
    )
    plan = ["plan", "--rows", "1e5", "--dimension", "50", "--epsilon", "1", "--delta", "1e-6"]
    made = subprocess.run([sys.executable, "-c", code, *plan], capture_output=True, text=True, env=WIDE)
    assert made.returncode == 0, made.stderr
    assert "Snowball-SGD" in made.stdout


def test_tables_are_the_same_text_with_and_without_room(capsys) -> None:
    rows = [("a", "1"), ("longer", "22")]
    print_table(("name", "count"), rows, title="Title", width=80)
    wide = capsys.readouterr().out
    assert wide.splitlines() == ["Title", "name    count", "a           1", "longer     22", ""]
    print_table(("name", "count"), [*rows, ("x" * 30, "3")], width=20)
    folded = capsys.readouterr().out
    assert folded.replace("\n", "").replace(" ", "").count("x") == 30
    assert max(map(len, folded.splitlines())) <= 20
