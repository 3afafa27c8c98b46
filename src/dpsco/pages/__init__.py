"""Pages people can look at. Needs ``dpsco[report]``."""

from dpsco.pages.run_page import write_page

__all__ = ["write_page"]
