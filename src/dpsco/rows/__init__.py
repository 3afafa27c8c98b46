"""Rows, read once."""

from dpsco.rows.stream import Stream, stream

__all__ = ["Stream", "stream"]
