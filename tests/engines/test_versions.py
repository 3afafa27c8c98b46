"""Engines refuse versions of their packages that do not keep what the documentation promises."""

from __future__ import annotations

import pytest

import dpsco
from dpsco.engines.dask.connect import installed


def test_a_dask_that_listens_on_all_addresses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("dpsco.engines.dask.connect.version", lambda name: "2024.5.0")
    with pytest.raises(dpsco.ExtraMissing, match=r"2024\.9 or newer; 2024\.5\.0 listens on all addresses"):
        installed()
