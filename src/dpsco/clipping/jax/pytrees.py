"""Parameters of any structure as one flat float64 vector, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dpsco.errors import InvalidArgument
from dpsco.query import Array

__all__ = ["Layout", "x64"]


def x64(on: bool) -> Any:
    """Enable or disable 64-bit numbers in a context; the setting of the process is unchanged."""
    return jax.enable_x64(on)


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of the leaves of a pytree in the flat vector: in the order of ``jax.tree.leaves``, row-major."""

    tree: Any
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]
    kinds: tuple[type, ...]
    """Constructor of each leaf: float, a NumPy array or a JAX array."""

    @classmethod
    def of(cls, params: Any) -> Layout:
        """Build the layout of ``params``. Raise InvalidArgument for a leaf without gradient (not a real float)."""
        paths, tree = jax.tree_util.tree_flatten_with_path(params)
        if not paths:
            raise InvalidArgument("Expected params to hold at least one array of floats: there is nothing to train.")
        widest = [np.dtype(leaf.dtype) for _, leaf in paths if hasattr(leaf, "dtype")]
        plain = np.result_type(*widest) if widest and all(d.kind == "f" for d in widest) else np.dtype(np.float32)
        names = tuple(jax.tree_util.keystr(path, simple=True, separator="/") or "params" for path, _ in paths)
        dtypes = []
        for name, (_, leaf) in zip(names, paths, strict=True):
            dtype = plain if type(leaf) is float else np.dtype(getattr(leaf, "dtype", object))
            if not jax.numpy.issubdtype(dtype, jax.numpy.floating):
                raise InvalidArgument(
                    f"Expected the parameter {name!r} to be an array of floats, got {dtype}: it has no gradient. Let "
                    "the loss close over it instead."
                )
            dtypes.append(dtype)
        shapes = tuple(tuple(np.shape(leaf)) for _, leaf in paths)
        return cls(tree, names, shapes, tuple(dtypes), tuple(_kind(leaf) for _, leaf in paths))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries per leaf."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """Number of entries in the flat vector."""
        return sum(self.sizes)

    @property
    def double(self) -> bool:
        """Whether the model computes in float64."""
        return any(dtype == np.float64 for dtype in self.dtypes)

    def flat(self, params: Any) -> Array:
        """Flatten ``params`` to one float64 vector."""
        leaves = jax.tree.leaves(params)
        return np.concatenate([np.asarray(leaf).astype(np.float64).ravel() for leaf in leaves])

    def parts(self, vector: Array) -> list[np.ndarray[Any, Any]]:
        """Split ``vector`` into leaves, as NumPy arrays in the model's own precision."""
        cuts = np.split(vector, np.cumsum(self.sizes)[:-1])
        with np.errstate(over="ignore"):
            return [
                cut.reshape(shape).astype(dtype)
                for cut, shape, dtype in zip(cuts, self.shapes, self.dtypes, strict=True)
            ]

    def tree_of(self, vector: Array) -> Any:
        """Rebuild the pytree from ``vector``, with the structure, shapes, types and containers of the parameters."""
        with x64(self.double):
            leaves = [kind(part) for kind, part in zip(self.kinds, self.parts(vector), strict=True)]
        return jax.tree.unflatten(self.tree, leaves)


def _kind(leaf: Any) -> Any:
    if type(leaf) is float:
        return float
    if isinstance(leaf, np.generic):
        return lambda part: part[()]
    return np.asarray if isinstance(leaf, np.ndarray) else jax.numpy.asarray
