"""Pages people can look at. Needs ``dpsco[report]``."""

from dpsco.reporting.page import write_page

__all__ = ["write_page"]
