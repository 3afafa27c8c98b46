"""One self-contained HTML page an audit: what was asked, what was measured, how sure that is, and what it means."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from dpsco.audit.audit_report import AuditReport
from dpsco.errors import ExtraMissing
from dpsco.json_files import write_atomic

__all__ = ["write_audit_page"]

EXPLAINED = {
    "clip": "The noise is made for rows that move a sum by at most the clip. A longer contribution stands out of the "
    "noise. Odd rows of many kinds were sent to the oracle one at a time, under queries of early and late rounds.",
    "one row at a time": "The promise covers the change of one row. If what a row contributes depends on other rows, "
    "on earlier questions or on chance, changing one row changes more than itself. The oracle was asked about several "
    "rows alone, together, in another order, and again.",
    "every row is taken": "If one row can stop a run or make it warn, whoever sees the run stop has learned something "
    "about that row, without any noise. Each kind of odd row was sent once and had to pass in silence.",
    "neighbours": "A whole run was recorded, one row was changed, and the run was repeated with the recorded releases "
    "played back, so that only the row can make a difference. What reached the point where noise is added was "
    "compared, and so was everything a run shows.",
    "noise": "What left was compared with what went in, over many runs. The noise must be as large as the promise "
    "needs, centred, and unrelated from round to round beyond the correlations that were planned and paid for.",
    "canaries": "Rows were put in or left out by tossing coins, and an adversary who knows everything else guessed the "
    "coins from what was released. A promise of epsilon limits how often such guesses can be right; the share of right "
    "guesses therefore shows a floor below which the true epsilon cannot be.",
}


def write_audit_page(report: AuditReport, path: str | Path) -> Path:
    """Write the page of ``report`` to ``path`` and return it."""
    try:
        import jinja2
    except ImportError:
        raise ExtraMissing("The page needs jinja2: install dpsco[report].") from None
    folder = files("dpsco.pages")
    # Both pages wear one style, kept in one place.
    style = re.search(
        r"<style>.*?</style>", folder.joinpath("run_page.html.jinja").read_text(encoding="utf-8"), re.DOTALL
    )
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string(folder.joinpath("audit_page.html.jinja").read_text(encoding="utf-8"))
    html = template.render(report=report, style=style.group() if style else "", explained=EXPLAINED)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, html.encode())
    return target
