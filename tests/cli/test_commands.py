"""Every command: help, --json, and errors that name options."""

from __future__ import annotations

import pytest

from dpsco.cli import COMMANDS, main


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
