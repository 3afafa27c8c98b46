"""Every block of Python and every command on the pages runs, in order, as a reader would type it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from tests.optional_packages import skip_without

from dpsco.cli import main

ROOT = Path(__file__).parents[1]


def a_table(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    age, hours = rng.random(3_000), rng.random(3_000)
    income = (rng.random(3_000) < age * hours).astype(int)
    pq.write_table(pa.table({"age": age, "hours": hours, "income": income}), path)


BLOCK = re.compile(r"```(python|sh)\n(.*?)```", re.DOTALL)
PARQUET = "import matplotlib, pyarrow"  # for commands on tables that write a page
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
RUN = [str(page.relative_to(ROOT).with_suffix("")) for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


def test_every_link_and_picture_of_a_page_leads_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_code_on_a_page_fits_88_columns() -> None:
    fences = re.compile(r"^ *```\w*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)  # vectors of the wire format are not code
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        text = re.sub(r"```text \S+\n.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for block in fences.findall(text):
            for line in block.splitlines():
                assert len(line) <= 88, f"{page.name}: {line}"


@pytest.mark.parametrize("page", RUN)
def test_the_page_runs(page: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    for language, block in blocks:
        skip_without(block if language == "python" else PARQUET if ".parquet" in block else "")
    if page == "README":
        a_table(tmp_path / "people.parquet")
        a_table(tmp_path / "new.parquet")
        a_table(tmp_path / "public_sample.parquet")
    names: dict[str, object] = {"__name__": page}
    for language, block in blocks:
        if language == "python":
            exec(compile(block, page, "exec"), names)  # noqa: S102
            continue
        for line in block.strip().replace("\\\n", " ").splitlines():
            program, *arguments = shlex.split(line)
            assert program == "dpsco"
            assert main(arguments) == 0, line
    capsys.readouterr()
