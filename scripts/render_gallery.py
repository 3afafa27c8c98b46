"""Execute the pages of docs/gallery and write what they print below each block of code.

python scripts/render_gallery.py [NAME ...]
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?P<between>\n+)(?P<shown>```text\n.*?```)?", re.DOTALL)


def render(page: Path) -> None:
    """Run the blocks of one page in order, in a folder of their own, and write their output into the page."""
    names: dict[str, object] = {"__name__": page.stem}

    def run(found: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(found["code"], page.name, "exec"), names)  # noqa: S102 - our own pages
        lines = "\n".join(line.rstrip() for line in printed.getvalue().rstrip().splitlines())
        shown = f"```text\n{lines}\n```" if found["shown"] else ""
        return f"```python\n{found['code']}```{found['between']}{shown}"

    page.write_text(BLOCK.sub(run, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    pages = [GALLERY / f"{name}.md" for name in sys.argv[1:]] or sorted(GALLERY.glob("*.md"))
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            render(page)
        print(page.stem)
