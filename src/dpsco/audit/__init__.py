"""Audits: whether what reaches ``release``, and what leaves it, keeps the guarantee that was declared.

    from dpsco.audit import audit
    print(audit(oracle, plan=plan))               # your own oracle or gradient function
    print(audit(plan))                            # a plan with the library's oracle
    print(audit(estimator, data=(X, y)))          # a scikit-learn estimator, not yet fitted

Four kinds of evidence, each with its confidence: the contract of oracles (contract.py), neighbouring data sets replayed
through ``release`` (replay.py), the law of the noise (transcript.py) and canaries in a run (canaries.py). An audit
finds bugs; it does not prove the guarantee: the argument is in docs/privacy.md.
"""

from dpsco.audit.audit import audit
from dpsco.audit.audit_report import AuditReport, Check

__all__ = ["AuditReport", "Check", "audit"]
