"""Every block of Python and every command on the pages runs, in order, as a reader would type it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from dpsco.cli import main

ROOT = Path(__file__).parents[1]


def a_table(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    age, hours = rng.random(3_000), rng.random(3_000)
    income = (rng.random(3_000) < age * hours).astype(int)
    pq.write_table(pa.table({"age": age, "hours": hours, "income": income}), path)


@pytest.mark.parametrize(
    "page",
    [
        "README",
        "docs/index",
        "docs/estimators",
        "docs/scaling",
        "docs/files",
        "docs/any-loss",
        "docs/federated",
        "docs/methods",
    ],
)
def test_the_page_runs(page: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    if page == "README":
        a_table(tmp_path / "people.parquet")
        a_table(tmp_path / "new.parquet")
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
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
