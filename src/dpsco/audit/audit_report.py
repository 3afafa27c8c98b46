"""What an audit says: one ``Check`` for each kind of evidence, together an ``AuditReport``."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from dpsco.json_files import jsonable

__all__ = ["AuditReport", "Check"]

FORMAT = 2
_MARKS = {"passed": "ok  ", "FAILED": "FAIL", "not tested": "----"}


@dataclass(frozen=True)
class Check:
    """One kind of evidence and what it found."""

    name: str
    question: str
    """What was asked, in plain words."""
    passed: bool
    measured: str
    """The figure."""
    confidence: str
    """How sure it is: the number of cases, or alpha and N."""
    findings: tuple[str, ...] = ()
    """What went wrong, worst first; or notes."""
    tested: bool = True
    """Whether there was enough to see: a check that observed nothing, or too little, has neither passed nor failed."""
    required: bool = True
    """Whether an audit without this check is incomplete."""

    @property
    def outcome(self) -> str:
        """One of "passed", "FAILED" and "not tested"."""
        return "not tested" if not self.tested else "passed" if self.passed else "FAILED"


@dataclass(frozen=True)
class AuditReport:
    """Every check of one subject."""

    subject: str
    guarantee: str
    checks: tuple[Check, ...]
    synthetic: bool
    """Whether every row in the audit was made up; if not, the figures are NOT PRIVATE."""

    @property
    def passed(self) -> bool:
        """Whether no check failed and every required one observed something."""
        return all(check.passed if check.tested else not check.required for check in self.checks)

    @property
    def verdict(self) -> str:
        """The outcome of all checks, in one sentence."""
        failed = [check.name for check in self.checks if check.outcome == "FAILED"]
        idle = ", ".join(check.name for check in self.checks if not check.tested)
        if failed:
            return f"FAILED ({', '.join(failed)}): the guarantee does not hold as declared."
        if not self.passed:
            return f"NOT TESTED ({idle}): too little reached the check, so it says nothing about the guarantee."
        rest = f" Not tested: {idle}." if idle else ""
        return f"passed: nothing was found that breaks the guarantee. An audit finds bugs; it proves nothing.{rest}"

    def to_json(self) -> str:
        """Return the report as JSON."""
        data = {**dataclasses.asdict(self), "format": FORMAT, "passed": self.passed, "verdict": self.verdict}
        data["checks"] = [{**dataclasses.asdict(check), "outcome": check.outcome} for check in self.checks]
        return json.dumps(jsonable(data), indent=2, sort_keys=True)

    def __str__(self) -> str:
        lines = [f"Audit of {self.subject}", f"  guarantee: {self.guarantee}"]
        if not self.synthetic:
            lines.append("  NOT PRIVATE: rows of yours took part, and the figures below depend on them.")
        for check in self.checks:
            lines += ["", f"  {_MARKS[check.outcome]}  {check.name}: {check.question}"]
            lines += [f"        measured    {check.measured}", f"        confidence  {check.confidence}"]
            lines += [f"        - {finding}" for finding in check.findings]
        return "\n".join([*lines, "", f"Verdict: {self.verdict}"])
