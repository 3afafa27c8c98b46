"""Rows, read once."""

from dpsco.data.stream import Stream, stream

__all__ = ["Stream", "stream"]
