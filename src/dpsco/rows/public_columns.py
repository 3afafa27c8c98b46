"""Columns of a table as features: declared, never learned from the rows.

A number is clamped to its declared range and mapped to [0, 1] (or [-1, 1]); a category becomes one 0/1 feature for
each declared level, or for each of k buckets of a hash; a cell that is missing or of no declared level gets the middle
of the range (0 without one), or no level. So a row's features depend on that row and on public constants alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsco.errors import InvalidArgument, positive_integer
from dpsco.rows.cells import Coded, canonical_text

__all__ = ["Columns", "Hashed", "Levels", "Number"]

SPARSE_FROM = 32
"""Features for each column from which rows are kept sparse."""


@dataclass(frozen=True)
class Number:
    """A column of numbers; with ``low`` and ``high`` clamped to them and mapped to [0, 1], ``centered`` to [-1, 1]."""

    name: str
    low: float | None = None
    high: float | None = None
    centered: bool = False

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise InvalidArgument(f"Expected both ends of the range of {self.name!r}, or none.")
        if self.low is not None and self.high is not None:
            low, high = float(self.low), float(self.high)
            if not -1e100 < low < high < 1e100:
                raise InvalidArgument(f"Expected the range of {self.name!r} as low < high, got {low} and {high}.")
            object.__setattr__(self, "low", low)
            object.__setattr__(self, "high", high)

    size: ClassVar[int] = 1

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        return (self.name,)

    def encode(self, column: Any, out: NDArray[Any]) -> None:
        """Write the features of the cells ``column`` into ``out``, one row of it per feature."""
        if self.low is None or self.high is None:
            out[0] = column
            out[0, ~np.isfinite(out[0])] = 0.0
            return
        share = np.subtract(column, self.low, dtype=np.float64)
        share /= self.high - self.low
        np.clip(share, 0.0, 1.0, out=share)
        share[~np.isfinite(column)] = 0.5
        out[0] = 2 * share - 1 if self.centered else share


@dataclass(frozen=True)
class Levels:
    """A column of categories: one feature for each declared level."""

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        levels = tuple(canonical_text(level) for level in self.levels)
        if not levels or len(set(levels)) != len(levels) or "" in levels:
            raise InvalidArgument(f"Expected the levels of {self.name!r} to be different texts, at least one.")
        object.__setattr__(self, "levels", levels)

    @property
    def size(self) -> int:
        """Number of features that the column becomes."""
        return len(self.levels)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    def places(self, column: Coded) -> NDArray[np.int64]:
        """Which of its features each row sets; -1 for none."""
        places = {level: place for place, level in enumerate(self.levels)}
        return np.array([*(places.get(text, -1) for text in column.values), -1], dtype=np.int64)[column.codes]


@dataclass(frozen=True)
class Hashed:
    """A column of categories: one feature for each of ``buckets`` values of a fixed hash of the text."""

    name: str
    buckets: int

    def __post_init__(self) -> None:
        why = "It is the number of buckets to hash into."
        object.__setattr__(self, "buckets", positive_integer("buckets", self.buckets, why))

    @property
    def size(self) -> int:
        """Number of features that the column becomes."""
        return self.buckets

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        return tuple(f"{self.name}#{bucket}" for bucket in range(self.buckets))

    def places(self, column: Coded) -> NDArray[np.int64]:
        """Which of its features each row sets; -1 for none."""
        return np.array([*(self._bucket(text) for text in column.values), -1], dtype=np.int64)[column.codes]

    def _bucket(self, text: str) -> int:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self.buckets


KINDS: dict[str, Any] = {"number": Number, "levels": Levels, "hashed": Hashed}


@dataclass(frozen=True)
class Columns:
    """The columns that make a row, in the order of its features.

    >>> columns = Columns.declare(["age"], ranges={"age": (0, 100)}, categorical={"city": ["Lyon", "Paris"]})
    >>> columns.feature_names
    ('age', 'city=Lyon', 'city=Paris')
    >>> columns.encode({"age": np.array([50.0]), "city": Coded(("Paris",), np.array([0]))}).tolist()
    [[0.5, 0.0, 1.0]]
    """

    features: tuple[Number | Levels | Hashed, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        names = [column.name for column in self.features]
        if not names:
            raise InvalidArgument("Expected at least one feature column.")
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise InvalidArgument(f"Expected each column to be declared once; declared twice: {', '.join(twice)}.")

    @classmethod
    def declare(
        cls,
        numbers: Sequence[str] = (),
        *,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        categorical: Mapping[str, Sequence[str]] | None = None,
        hashed: Mapping[str, int] | None = None,
        centered: bool = False,
    ) -> Columns:
        """Columns of numbers (those with ranges scaled), then categories with their levels, then hashed ones."""
        ranges, categorical, hashed = dict(ranges or {}), dict(categorical or {}), dict(hashed or {})
        names = [*numbers, *(name for name in ranges if name not in numbers)]
        parts: list[Number | Levels | Hashed] = []
        for name in names:
            low, high = ranges.get(name, (None, None))
            parts.append(Number(name, low, high, centered and low is not None))
        parts += [Levels(name, tuple(levels)) for name, levels in categorical.items()]
        parts += [Hashed(name, buckets) for name, buckets in hashed.items()]
        return cls(tuple(parts))

    @property
    def width(self) -> int:
        """Number of features of an encoded row."""
        return sum(column.size for column in self.features)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features of an encoded row."""
        return tuple(name for column in self.features for name in column.outputs)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns to read as numbers."""
        return tuple(column.name for column in self.features if isinstance(column, Number))

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns to read as text."""
        return tuple(column.name for column in self.features if not isinstance(column, Number))

    @property
    def sparse(self) -> bool:
        """Whether rows come as CSR: where most features of a row are 0 because of its many levels."""
        return self.width >= SPARSE_FROM * len(self.features)

    def encode(self, table: Mapping[str, Any]) -> Any:
        """Features of the rows of ``table``, float32 of shape (rows, width): CSR if ``sparse``, else column-major."""
        with np.errstate(all="ignore"):
            return self._sparse(table) if self.sparse else self._dense(table)

    def _dense(self, table: Mapping[str, Any]) -> NDArray[np.float32]:
        rows = len(table[self.features[0].name])
        out, start = np.zeros((self.width, rows), dtype=np.float32), 0
        for column in self.features:
            if isinstance(column, Number):
                column.encode(table[column.name], out[start : start + 1])
            else:
                place = column.places(table[column.name])
                known = np.flatnonzero(place >= 0)
                out[start + place[known], known] = 1.0
            start += column.size
        return out.T

    def _sparse(self, table: Mapping[str, Any]) -> Any:
        from scipy.sparse import csr_matrix

        rows, count = len(table[self.features[0].name]), len(self.features)
        index, value, start = np.zeros((count, rows), dtype=np.int64), np.ones((count, rows), dtype=np.float32), 0
        for j, column in enumerate(self.features):
            if isinstance(column, Number):
                column.encode(table[column.name], value[j : j + 1])
                index[j] = start
            else:
                place = column.places(table[column.name])
                index[j] = np.where(place >= 0, start + place, -1)
            start += column.size
        used = index.T >= 0
        edges = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        return csr_matrix((value.T[used], index.T[used].astype(np.int32), edges), shape=(rows, self.width))

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON values."""
        names = {kind: name for name, kind in KINDS.items()}
        return {"features": [{"kind": names[type(c)], **dataclasses.asdict(c)} for c in self.features]}

    @classmethod
    def from_dict(cls, data: Any) -> Columns:
        """Return the schema that ``to_dict`` wrote; ``InvalidArgument`` if the fields are not its own."""
        try:
            if set(data) != {"features"}:
                raise KeyError
            parts = []
            for entry in data["features"]:
                fields = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items() if k != "kind"}
                kind = KINDS[entry["kind"]]
                if set(fields) != {field.name for field in dataclasses.fields(kind)} or type(fields["name"]) is not str:
                    raise KeyError
                parts.append(kind(**fields))
        except (KeyError, TypeError, AttributeError):
            raise InvalidArgument("Not a column schema: fields are missing, extra or of another version.") from None
        return cls(tuple(parts))
