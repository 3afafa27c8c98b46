"""An account for each test that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsco import Account, Budget


@pytest.fixture
def account(tmp_path: Path) -> Account:
    """An account of (3, 1e-6) in a folder of its own."""
    return Account.create(tmp_path / "people.json", limit=Budget(epsilon=3.0, delta=1e-6))
