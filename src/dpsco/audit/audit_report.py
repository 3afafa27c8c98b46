"""What an audit says: one ``Check`` for each kind of evidence, together an ``AuditReport``."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from dpsco.json_files import jsonable

__all__ = ["AuditReport", "Check"]

FORMAT = 1


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


@dataclass(frozen=True)
class AuditReport:
    """Every check of one subject."""

    subject: str
    promise: str
    checks: tuple[Check, ...]
    synthetic: bool
    """Whether every row in the audit was made up; if not, the figures are NOT PRIVATE."""

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def verdict(self) -> str:
        failed = [check.name for check in self.checks if not check.passed]
        if failed:
            return f"FAILED ({', '.join(failed)}): the promise does not hold as declared."
        return "passed: nothing was found that breaks the promise. An audit finds bugs; it proves no promise."

    def to_json(self) -> str:
        data = {**dataclasses.asdict(self), "format": FORMAT, "passed": self.passed, "verdict": self.verdict}
        return json.dumps(jsonable(data), indent=2, sort_keys=True)

    def __str__(self) -> str:
        lines = [f"Audit of {self.subject}", f"  promise: {self.promise}"]
        if not self.synthetic:
            lines.append("  NOT PRIVATE: rows of yours took part, and the figures below depend on them.")
        for check in self.checks:
            lines += ["", f"  {'ok  ' if check.passed else 'FAIL'}  {check.name}: {check.question}"]
            lines += [f"        measured    {check.measured}", f"        confidence  {check.confidence}"]
            lines += [f"        - {finding}" for finding in check.findings]
        return "\n".join([*lines, "", f"Verdict: {self.verdict}"])
