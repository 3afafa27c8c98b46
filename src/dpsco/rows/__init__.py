"""Rows, read once: reader -> public columns -> gate -> cap -> shuffle -> batches."""

from dpsco.rows.stream import Stream, stream

__all__ = ["Stream", "stream"]
