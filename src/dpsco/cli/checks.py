"""What a command needs at its end, checked before it reads a row: a failure after training costs the budget."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from dpsco.errors import ExtraMissing
from dpsco.json_files import check_writable

__all__ = ["check_outputs", "check_page"]


def check_outputs(*, room: int = 1 << 16, **files: Path | None) -> None:
    """Raise ``InvalidArgument`` unless every file can be written, with ``room`` bytes to spare.

    Names are those of options, with underscores.
    """
    for name, path in files.items():
        if path is not None:
            check_writable(path, f"--{name.replace('_', '-')} {path}", room=room)


def check_page(path: Path | None, option: str) -> None:
    """Raise unless the HTML page ``path`` can be made and written; None is no page."""
    if path is None:
        return
    if find_spec("jinja2") is None or find_spec("matplotlib") is None:
        raise ExtraMissing(f"{option} writes a page, which needs jinja2 and matplotlib: install dpsco[report].")
    check_writable(path, f"{option} {path}")
