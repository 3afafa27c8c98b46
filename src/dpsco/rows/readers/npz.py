"""``.npz`` archives: members read row by row from the archive, compressed or not, never loaded whole."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpsco.errors import DataError
from dpsco.rows.readers.source import MatrixSource, damaged
from dpsco.rows.readers.stamps import Stamps

__all__ = ["NpzSource"]

BLOCK_BYTES = 1 << 20

_LARGEST = 2**62
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    NotImplementedError,
    OverflowError,
    KeyError,
    struct.error,
)

_CUT = "is damaged or cut short: it cannot be read as .npz. Copy it again from its source."


class NpzSource(MatrixSource):
    """The members ``X`` (rows, width) and ``label`` (rows,) of one archive; ``label=None`` needs ``X`` alone.

    Pickled members are refused. Guarantee: the archive's checksums are verified by the time the last row is handed out.
    """

    def __init__(self, path: Path, label: str | None = "y") -> None:
        self._path, self._label, self._stamps = path, label, Stamps([path])
        shape = self._header("X")
        if len(shape) != 2 or (label is not None and self._header(label) != shape[:1]):
            raise DataError(f"Expected 'X' of shape (rows, features) and {label!r} of shape (rows,) in {path.name!r}.")
        self._rows, self.width = shape
        self.single = self._type("X") == np.float32

    def count(self) -> int:
        """Return the number of rows."""
        return self._rows

    def read(self, width: int) -> Iterator[tuple[Any, Any]]:
        """Yield the rows, chunk by chunk."""
        rows = max(1, BLOCK_BYTES // (8 * width))
        features = self._blocks("X", rows)
        if self._label is None:
            yield from ((block, None) for block in features)
        else:
            yield from zip(features, self._blocks(self._label, rows), strict=True)

    def _header(self, name: str) -> tuple[int, ...]:
        with self._open() as archive:
            if f"{name}.npy" not in archive.namelist():
                members = ", ".join(repr(member.removesuffix(".npy")) for member in archive.namelist())
                raise DataError(f"The file {self._path.name!r} has no member {name!r}. It has: {members}.")
            with self._member(archive, name) as file:
                return self._start(file, name)[0]

    def _type(self, name: str) -> np.dtype[Any]:
        with self._open() as archive, self._member(archive, name) as file:
            return self._start(file, name)[1]

    def _blocks(self, name: str, rows: int) -> Iterator[Any]:
        with self._open() as archive, self._member(archive, name) as file:
            (total, *width), dtype = self._start(file, name)
            row_bytes = dtype.itemsize * (width[0] if width else 1)
            for start in range(0, total, rows):
                size = min(rows, total - start)
                try:
                    data = file.read(size * row_bytes)
                except _DAMAGE:
                    damaged(self._path, _CUT)
                if len(data) != size * row_bytes:
                    damaged(self._path, _CUT)
                self._stamps.check(self._path)
                yield np.frombuffer(data, dtype=dtype).reshape(size, *width)

    def _start(self, file: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and type of a member; the file stands at its first row afterwards."""
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except Exception:  # NumPy evaluates a damaged header and passes on whatever its tokenizer raises
            damaged(self._path, _CUT)
        if any(not 0 <= size < _LARGEST for size in shape) or dtype.itemsize == 0:
            damaged(self._path, _CUT)
        if dtype.kind not in "fiubU":
            raise DataError(f"The member {name!r} of {self._path.name!r} holds objects, not numbers or text.")
        if fortran and len(shape) > 1:
            raise DataError(
                f"The member {name!r} of {self._path.name!r} is stored by columns. Save np.ascontiguousarray(X)."
            )
        return shape, dtype

    def _open(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self._path)
        except (*_DAMAGE, ValueError):
            damaged(self._path, _CUT)

    def _member(self, archive: zipfile.ZipFile, name: str) -> Any:
        try:
            return archive.open(f"{name}.npy")
        except (*_DAMAGE, ValueError, RuntimeError):  # RuntimeError: encrypted
            damaged(self._path, _CUT)
