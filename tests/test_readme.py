"""Every Python block of the README runs, in order, as a reader would type it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_code_on_the_page_runs(page: str, tmp_path, monkeypatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "readme"})  # noqa: S102
