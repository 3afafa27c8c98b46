"""Execute the pages of docs/gallery and write what they print below each block of code.

python scripts/render_gallery.py [NAME ...]
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import textwrap
from pathlib import Path

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
BLOCK = re.compile(r"```(?P<kind>python|sh)\n(?P<code>.*?)```(?P<between>\n+)(?P<shown>```text\n.*?```)?", re.DOTALL)
WIDTH = 88


def fitted(line: str) -> list[str]:
    """Return a line in pieces that fit the page: prose is wrapped, a line of a table is cut."""
    if len(line) <= WIDTH:
        return [line]
    if "   " in line.lstrip():
        return [f"{line[: WIDTH - 4].rstrip()} ..."]
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ")


def run_commands(block: str) -> None:
    """Run each ``dpsco ...`` line of a block in this process."""
    from dpsco.cli import main

    for line in block.strip().replace("\\\n", " ").splitlines():
        if main(shlex.split(line)[1:]) != 0:
            raise SystemExit(f"failed: {line}")


def render(page: Path) -> None:
    """Run the blocks of one page in order, in a folder of their own, and write their output into the page."""
    names: dict[str, object] = {"__name__": page.stem}

    def run(found: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if found["kind"] == "sh":
                run_commands(found["code"])
            else:
                exec(compile(found["code"], page.name, "exec"), names)  # noqa: S102 - our own pages
        lines = "\n".join(part for line in printed.getvalue().rstrip().splitlines() for part in fitted(line.rstrip()))
        shown = f"```text\n{lines}\n```" if found["shown"] else ""
        return f"```{found['kind']}\n{found['code']}```{found['between']}{shown}"

    page.write_text(BLOCK.sub(run, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    pages = [GALLERY / f"{name}.md" for name in sys.argv[1:]] or sorted(GALLERY.glob("*.md"))
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            render(page)
        print(page.stem)
