"""What is true of a run stays true of it: facts that each call on a checkpoint stated, joined.

A run may begin on a cluster, in a federation or with an oracle of the caller's, and be given back by a plain call. What
the first asked its readers to trust belongs in every later report.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dpsco.accounting.budget import Budget
from dpsco.errors import CheckpointError, DpscoError
from dpsco.json_files import read_sealed, write_sealed
from dpsco.release.ledger import Ledger
from dpsco.run.facts import Facts

__all__ = ["joined"]

_FILE = "facts.json"
_UNSTATED = {"record": "row", "unit": None, "budget": None}
"""What a call promises that states nothing."""
_FIELDS = {
    "run",
    "trusted",
    "inferred",
    "started",
    "record",
    "unit",
    "budget",
    "max_rows_per_unit",
    "unit_column",
    "form",
}


def joined(facts: Facts, ledger: Ledger) -> Facts:
    """Return the facts of this call and of all calls before it on the run, and keep them in its folder.

    Parameters
    ----------
    facts : Facts
        What this call states.
    ledger : Ledger
        That of the run. A run in memory has no folder, and no call before this one.

    Raises
    ------
    CheckpointError
        If the file is damaged or gone, or this call counts the rows of a person by another cap, makes rows of the data
        in another way, or states another record, unit or budget than those before it.

    Guarantee: assumptions and exceptions are never fewer than those of an earlier call, also of one that was refused.
    Who is protected, and by how much, was settled by the first call.
    """
    folder, complete = ledger.folder, ledger.complete
    if folder is None:
        return facts
    # A folder in which an attempt ended before its first release is free for a new run, of which its file says nothing.
    before = read_sealed(folder / _FILE, "checkpoint", _FIELDS) if (folder / _FILE).exists() else None
    if before is not None and before["run"] == ledger.run_id:
        facts = _with(_formed(_capped(facts, before, complete=complete), before, complete=complete), before)
    elif complete or ledger.fingerprint(0) is not None:  # it is written before the first release
        raise CheckpointError(
            f"The file {_FILE!r} of this run is gone, and with it what its readers were asked to trust. Restore it "
            "from a copy."
        )
    write_sealed(folder / _FILE, {"run": ledger.run_id, **_stated(facts)})
    return facts


def _assumed(facts: Facts) -> list[str]:
    return [text for text in facts.assumptions() if not text.startswith("NOT COVERED")]


def _stated(facts: Facts) -> dict[str, Any]:
    whole = facts.budget if facts.budget is not None and math.isfinite(facts.budget.epsilon) else None
    budget = None if whole is None else [whole.epsilon, whole.delta, whole.adjacency, whole.records]
    return {
        "trusted": _assumed(facts),
        "inferred": list(facts.inferred),
        "started": facts.started,
        "record": facts.record,
        "unit": facts.unit,
        "budget": budget,
        "max_rows_per_unit": facts.max_rows_per_unit,
        "unit_column": facts.unit_column,
        "form": facts.form,
    }


def _capped(facts: Facts, before: dict[str, Any], *, complete: bool) -> Facts:
    """Return the facts with the cap of the run, which every call must keep. A complete run may be asked for without."""
    cap, column = before["max_rows_per_unit"], before["unit_column"]
    stated = (facts.max_rows_per_unit, facts.unit_column)
    if stated != (cap, column) and not (complete and stated == (None, None)):
        raise CheckpointError(
            f"This run began with max_rows_per_unit={cap} in the column {column!r}, and this call has "
            f"{facts.max_rows_per_unit} in {facts.unit_column!r}. Rows of one person would count by two rules. Resume "
            "with the same column and the same cap."
        )
    return dataclasses.replace(facts, max_rows_per_unit=cap, unit_column=column)


def _formed(facts: Facts, before: dict[str, Any], *, complete: bool) -> Facts:
    """Return the facts with the form of the run's rows. A complete run may be asked for without stating one."""
    if facts.form != before["form"] and not (complete and facts.form is None):
        raise CheckpointError(
            "This run began with other columns, labels, feature norm or order, or with another assignment of clients: "
            "its parameters would be read as something else, or clients called twice. Resume with the arguments that "
            "began it, or name another folder."
        )
    return dataclasses.replace(facts, form=before["form"])


def _with(facts: Facts, before: dict[str, Any]) -> Facts:
    stated = _stated(facts)
    for name, unstated in _UNSTATED.items():
        if stated[name] not in (before[name], unstated):
            raise CheckpointError(
                f"This run began with {name}={before[name]!r}, and this call states {stated[name]!r}. What a run "
                "promises does not change while it goes on. Leave it out, or state what began it."
            )
    try:
        known, inferred = _assumed(facts), facts.inferred
        return dataclasses.replace(
            facts,
            trusted=(*facts.trusted, *(text for text in before["trusted"] if text not in known)),
            inferred=(*inferred, *(text for text in before["inferred"] if text not in inferred)),
            started=facts.started or bool(before["started"]),
            record=before["record"],
            unit=before["unit"],
            budget=None if before["budget"] is None else Budget(*before["budget"]),
        )
    except (TypeError, ValueError, DpscoError):
        raise CheckpointError(f"The file {_FILE!r} holds fields of the wrong type. Restore it from a copy.") from None
