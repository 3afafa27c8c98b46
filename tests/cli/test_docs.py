"""Every block of Python and every command on the pages about tables runs, in order, as a reader would type it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dpsco.cli import main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["estimators", "scaling", "files"])
def test_the_page_runs(page: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(python|sh)\n(.*?)```", text, re.DOTALL)
    assert blocks
    names: dict[str, object] = {"__name__": page}
    for language, block in blocks:
        if language == "python":
            exec(compile(block, page, "exec"), names)  # noqa: S102
            continue
        for line in block.strip().splitlines():
            program, *arguments = shlex.split(line)
            assert program == "dpsco"
            assert main(arguments) == 0, line
    capsys.readouterr()
