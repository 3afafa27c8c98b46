"""Fill a template of ``templates/`` and write it as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpsco.errors import ExtraMissing
from dpsco.json_files import write_atomic

__all__ = ["write_html"]


def write_html(path: str | Path, template: str, **values: Any) -> Path:
    """Render ``template`` with ``values`` and write it to ``path``.

    Parameters
    ----------
    path
        The file to write. Missing folders are created.
    template
        The name of a file in ``templates/``.
    **values
        The variables of the template. Texts are escaped.

    Returns
    -------
    Path
        ``path``.

    Raises
    ------
    ExtraMissing
        If jinja2 is not installed.

    Guarantee
    ---------
    The page needs no network and no other file. It is written completely or not at all.
    """
    try:
        import jinja2
    except ImportError:
        raise ExtraMissing("HTML pages need jinja2 and matplotlib: install dpsco[report].") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dpsco.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, environment.get_template(template).render(values).encode())
    return target
