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


def fitted(text: str) -> str:
    """Return output with lines that fit the page: paragraphs are wrapped again, lines of tables are cut."""
    lines: list[str] = []
    for line in text.rstrip().splitlines():
        if lines and len(lines[-1]) > WIDTH and re.match(r"  \S", line) and not _of_table(lines[-1]):
            lines[-1] += line[1:].rstrip()  # goes on with a paragraph
        else:
            lines.append(line.rstrip())
    shown: list[str] = []
    for line in lines:
        if len(line) > WIDTH and _of_table(line):
            shown.append(f"{line[: WIDTH - 4].rstrip()} ...")
        else:
            shown += textwrap.wrap(line, WIDTH, subsequent_indent="  ") if len(line) > WIDTH else [line]
    return "\n".join(shown)


def _of_table(line: str) -> bool:
    return "  " in line.strip()


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
        lines = fitted(printed.getvalue())
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
