"""A geometry on disk, in print and in a plan: exact, comparable, and readable by people.

A geometry states where it comes from (``source``). Released by a private run, or of public rows, it may be published,
stored and used again. That of a run without noise, with a given key or under watch is not private.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dpsco.errors import CheckpointError, InvalidArgument
from dpsco.json_files import canonical, decode_array, encode_array, read_sealed, write_sealed
from dpsco.methods.in_geometry import NOT_PRIVATE, check_source
from dpsco.query import Array

__all__ = ["GeometryForm"]

FORMAT = 2
_SHOWN = 8


class GeometryForm:
    """Serialisation and print of ``Geometry``."""

    if TYPE_CHECKING:
        scale: Array
        directions: Array
        sizes: Array
        rest: float
        observed: Array
        noise: float
        radius: float
        mean: Array
        feature_norm: float
        hidden: float
        source: str

    @property
    def intercept(self) -> bool:
        """Whether the last column is the intercept's."""
        return bool(self.mean[-1] > 0)

    @property
    def axes(self) -> bool:
        """Whether the directions are the axes: a size per column, and no p^2 numbers."""
        return self.directions.shape[1] == 0 and len(self.sizes) == len(self.scale)

    @property
    def column_sizes(self) -> Array:
        """Root mean square of each column in the units of the rows, the intercept's left out: estimates with noise."""
        sizes = self.feature_norm * np.sqrt(self.moment_diagonal)
        return np.asarray(sizes[: len(sizes) - self.intercept])

    @property
    def moment_diagonal(self) -> Array:
        """Mean square of each column over the squared feature norm."""
        if self.axes:
            return np.asarray(np.maximum(self.sizes, 0.0) / self.scale**2)
        squares, p = self.directions**2, len(self.scale)
        rest = self.rest * (1 - np.sum(squares, axis=1)) if squares.shape[1] < p else 0.0
        return np.asarray(np.maximum(squares @ self.sizes + rest, 0.0) / self.scale**2)

    # --- files --------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the geometry as JSON holds it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        source = values.pop("source")
        plain = {name: encode_array(v) if isinstance(v, np.ndarray) else float(v) for name, v in values.items()}
        return {"format": FORMAT, "source": source, **plain}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the geometry that ``to_dict`` wrote.

        Raises
        ------
        InvalidArgument
            If a field is missing, extra, or no possible value.
        """
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if not isinstance(data, Mapping) or set(data) != {"format", *names} or data["format"] != FORMAT:
            raise InvalidArgument(
                f"Not a geometry of format {FORMAT}: fields are missing, extra or of another version."
            )
        given = {name: decode_array(v) if isinstance(v := data[name], Mapping) else v for name in names}
        p, k = np.shape(given["scale"]), np.shape(given["sizes"])
        axes = p == k and np.shape(given["directions"]) == (*p, 0)
        shapes = {"scale": p, "mean": p, "sizes": k, "observed": k, "directions": (*p, 0) if axes else (*p, *k)}
        plain = all(
            isinstance(given[name], (int, float)) and np.isfinite(given[name]) for name in names - {"source", *shapes}
        )
        check_source(given["source"])
        if not plain or len(p) != 1 or len(k) != 1 or any(np.shape(given[name]) != s for name, s in shapes.items()):
            raise InvalidArgument("Not a geometry: its arrays do not fit together.")
        if not (np.all(given["scale"] > 0) and np.all(given["sizes"] >= 0) and given["rest"] >= 0):
            raise InvalidArgument("Not a geometry: sizes are not positive.")
        if not (given["feature_norm"] > 0 and given["radius"] >= 0):
            raise InvalidArgument("Not a geometry: sizes are not positive.")
        return cls(**given)

    def save(self, path: str | Path) -> Path:
        """Write the geometry to a file, whole or not at all."""
        target = Path(path)
        write_sealed(target, self.to_dict())
        return target

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote.

        Raises
        ------
        CheckpointError
            If the file is damaged or holds something else.
        """
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        try:
            return cls.from_dict(read_sealed(Path(path), "geometry", {"format", *names}))
        except InvalidArgument as error:
            raise CheckpointError(f"The file {Path(path).name!r} holds no geometry. {error}") from None

    def digest(self) -> str:
        """SHA-256 of the geometry."""
        return hashlib.sha256(canonical(self.to_dict())).hexdigest()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    # --- print --------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        above = int(np.sum(self.observed > self.radius))
        return f"Geometry(columns={len(self.scale)}, above_noise={above}, noise={self.noise:.3g})"

    def __str__(self) -> str:
        spectrum = np.sort(self.sizes)[::-1] if len(self.sizes) else np.array([self.rest])
        columns = self.column_sizes
        above = int(np.sum(self.observed > self.radius))
        return "\n".join(
            [
                f"Geometry of {len(self.scale)} columns{', the intercept included' if self.intercept else ''}: "
                + ("NOT PRIVATE, not to be published" if self.source == NOT_PRIVATE else f"{self.source}, publishable"),
                f"  size of columns (root mean square): {_numbers(columns)}",
                f"  spectrum of rows over the feature norm: {_numbers(spectrum)}",
                f"  directions above the noise floor {self.radius:.3g}: {above}",
            ]
        )


def _numbers(values: Array) -> str:
    shown = ", ".join(f"{value:.3g}" for value in values[:_SHOWN])
    return shown + (f", ... ({len(values)} in all)" if len(values) > _SHOWN else "")
