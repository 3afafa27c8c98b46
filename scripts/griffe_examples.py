"""For the API reference: turn examples in docstrings (``>>>``) into code blocks."""

from __future__ import annotations

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Fence every block of lines from a ``>>>`` to the next empty line."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    lines, inside = [], False
    for line in text.splitlines():
        if not inside and line.startswith(">>>"):
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)
