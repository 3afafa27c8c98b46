"""The page of an audit: what was asked, what was measured, with what confidence, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpsco.pages.renderer import write_html

__all__ = ["write_audit_page"]

EXPLAINED = {
    "clip": "The noise is calibrated for rows that move a sum by at most the clip. The noise "
    "does not cover a longer one. The audit sent odd rows of many kinds to the oracle, one at a time, with queries of "
    "early and late rounds.",
    "one row at a time": "The guarantee covers the change of one row. If the contribution of a row depends on other "
    "rows, on earlier queries or on chance, a change of one row changes more than its own contribution. The audit sent "
    "rows alone, together, in another order, and again.",
    "every row is taken": "If one row can stop a run or cause a warning, the stop reveals something about that row, "
    "without any noise. The audit sent each kind of odd row once; each had to be accepted silently.",
    "neighbours": "The audit recorded a whole run, changed one row, and repeated the run with the recorded releases: "
    "only the row can make a difference. It compared the sums to which noise is added, and everything that a run "
    "shows.",
    "noise": "The audit compared released values with their inputs over many runs. The noise must be as large as the "
    "guarantee needs, centred, and independent between rounds except for the planned correlations.",
    "canaries": "Coin tosses decided which rows took part. An adversary who knows everything else guessed the coins "
    "from the released values. A guarantee of epsilon limits how often such guesses can be right, so the share of "
    "right guesses gives a lower bound on the true epsilon.",
}


def write_audit_page(report: Mapping[str, Any], path: str | Path) -> Path:
    """Write the page of an audit.

    Parameters
    ----------
    report
        The content of the audit's JSON report: ``subject``, ``guarantee``, ``passed``, ``verdict``, ``synthetic`` and
        ``checks``.
    path
        The file to write.

    Returns
    -------
    Path
        ``path``.
    """
    return write_html(path, "audit.html.jinja", report=report, explained=EXPLAINED)
