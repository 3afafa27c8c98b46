"""Self-contained HTML pages: one renderer, one stylesheet, one set of plots. Needs ``dpsco[report]``.

Pages render what they are given: a result, or plain dictionaries. They compute nothing about privacy.
"""

from dpsco.pages.audit_page import write_audit_page
from dpsco.pages.comparison_page import write_comparison_page
from dpsco.pages.run_page import write_run_page
from dpsco.pages.subject import Subject

__all__ = ["Subject", "write_audit_page", "write_comparison_page", "write_run_page"]
