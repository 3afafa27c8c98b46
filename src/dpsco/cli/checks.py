"""What a command needs at its end, checked before it reads a row: a failure after training costs the budget."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from dpsco.errors import ExtraMissing, InvalidArgument
from dpsco.json_files import check_writable

__all__ = ["check_apart", "check_outputs", "check_page"]


def check_outputs(**files: Path | None) -> None:
    """Raise ``InvalidArgument`` unless every file can be written. Names are those of options, with underscores."""
    for name, path in files.items():
        if path is not None:
            check_writable(path, f"--{name.replace('_', '-')} {path}")


def check_apart(written: Mapping[str, Path | None], read: Mapping[str, str | Path | None]) -> None:
    """Raise ``InvalidArgument`` if a file would be written over one that the command reads or writes.

    Parameters
    ----------
    written, read
        Files by what the user calls them, such as ``--out``; None is no file.
    """
    seen = {Path(path).resolve(): name for name, path in read.items() if path is not None}
    for name, path in written.items():
        if path is None:
            continue
        if (other := seen.get(path.resolve())) is not None:
            raise InvalidArgument(
                f"{name} {path} is the file of {other} too, which would be lost. Choose another name."
            )
        seen[path.resolve()] = name


def check_page(path: Path | None, option: str) -> None:
    """Raise unless the HTML page ``path`` can be made and written; None is no page."""
    if path is None:
        return
    if find_spec("jinja2") is None or find_spec("matplotlib") is None:
        raise ExtraMissing(f"{option} writes a page, which needs jinja2 and matplotlib: install dpsco[report].")
    check_writable(path, f"{option} {path}")
