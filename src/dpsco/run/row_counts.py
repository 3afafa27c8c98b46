"""How many rows a run with checkpoints read: on disk before its key is erased, for whoever asks for the run again."""

from __future__ import annotations

from typing import NamedTuple

from dpsco.errors import CheckpointError
from dpsco.held_files import Held
from dpsco.json_files import read_sealed, write_sealed

__all__ = ["RowCounts"]

_FILE = "rows.json"


class RowCounts(NamedTuple):
    """Public numbers; None where a number is not public or not known."""

    read: int | None
    available: int | None

    def keep(self, folder: Held | None) -> None:
        """Write the numbers into the folder of a run that is complete."""
        if folder is not None:
            write_sealed(folder / _FILE, self._asdict())

    @classmethod
    def kept(cls, folder: Held | None) -> RowCounts:
        """Return the numbers of a run that was complete before.

        Raises
        ------
        CheckpointError
            If the file is damaged.
        """
        if folder is None or not (folder / _FILE).exists():
            return cls(None, None)
        found = cls(**read_sealed(folder / _FILE, "checkpoint", set(cls._fields)))
        if any(number is not None and (type(number) is not int or number < 0) for number in found):
            raise CheckpointError(f"The file {_FILE!r} holds fields of the wrong type. Restore it from a copy.")
        return found
