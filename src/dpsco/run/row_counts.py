"""How many rows a run with checkpoints read: on disk before its key is erased, for whoever asks for the run again."""

from __future__ import annotations

from typing import NamedTuple

from dpsco.errors import CheckpointError
from dpsco.json_files import read_sealed, write_sealed
from dpsco.release.ledger import Ledger

__all__ = ["RowCounts"]

_FILE = "rows.json"


class RowCounts(NamedTuple):
    """Public numbers; None where a number is not public or not known."""

    read: int | None
    available: int | None

    def keep(self, ledger: Ledger) -> None:
        """Write the numbers into the folder of a run that is complete."""
        if ledger.folder is not None:
            write_sealed(ledger.folder / _FILE, {"run": ledger.run_id, **self._asdict()})

    @classmethod
    def kept(cls, ledger: Ledger) -> RowCounts:
        """Return the numbers of a run that was complete before.

        Raises
        ------
        CheckpointError
            If the file is damaged or of another run.
        """
        if ledger.folder is None or not (ledger.folder / _FILE).exists():
            return cls(None, None)
        fields = read_sealed(ledger.folder / _FILE, "checkpoint", {"run", *cls._fields})
        if fields.pop("run") != ledger.run_id:
            raise CheckpointError(f"The file {_FILE!r} is of another run. Restore it from a copy.")
        found = cls(**fields)
        if any(number is not None and (type(number) is not int or number < 0) for number in found):
            raise CheckpointError(f"The file {_FILE!r} holds fields of the wrong type. Restore it from a copy.")
        return found
