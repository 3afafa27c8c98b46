"""Rows of a ``torch.utils.data.DataLoader``, each by itself.

A loader joins its rows by ``collate_fn``. Where that is torch's own, the rows are taken before they are joined: a row
of another shape or type then changes itself alone. A collate function of the caller's makes chunks (X, y).

One row may enter one contribution only. Samplers that are known to draw rows again are refused. Of any other sampler
that is not torch's own, places that it draws again are left out: they depend on no row. So are those that a ``Subset``,
a ``ConcatDataset`` or a ``StackDataset`` of them names again. A ``ChainDataset`` that reads a dataset again is refused.
"""

from __future__ import annotations

import bisect
import copy
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data._utils.collate import default_collate

from dpsco.errors import InvalidArgument
from dpsco.rows.shaped import ShapedChunks

__all__ = ["array_of", "loader_array", "loader_chunks"]

Tensor = Any


def loader_array(loader: Any) -> Any:
    """Return the tensor that holds all rows of a loader, which states their shape; None if there is none."""
    return loader.dataset.tensors[0] if isinstance(loader.dataset, TensorDataset) else None


def loader_chunks(loader: Any, shape: tuple[int, ...], dtype: str) -> ShapedChunks:
    """Return the rows of ``loader`` as typed flat chunks.

    Raises
    ------
    InvalidArgument
        If the loader has no batches, or its sampler, its workers or its chain of datasets repeat rows.
    """
    if loader.batch_size is None and loader.batch_sampler is None:
        raise InvalidArgument(
            "A DataLoader with batch_size=None leaves open whether an item is a row or a batch. Give it a batch size."
        )
    if isinstance(loader.dataset, IterableDataset) and loader.num_workers > 1:
        raise InvalidArgument(
            f"num_workers={loader.num_workers} copies of an IterableDataset each hand out all of its rows, unless it "
            "divides them itself, and the guarantee counts on one contribution per row. Use num_workers=1; or, if it "
            "does divide them, pass the chunks: (chunk for chunk in loader)."
        )
    chained = list(map(id, _chained(loader.dataset)))
    if len(set(chained)) < len(chained):
        raise InvalidArgument(
            "The loader's ChainDataset reads a dataset more than once, and the guarantee counts on one contribution "
            "per row. Name each dataset once."
        )
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    repeats = isinstance(sampler, RandomSampler) and (
        sampler.replacement or sampler.num_samples > len(sampler.data_source)
    )
    if repeats or (isinstance(sampler, WeightedRandomSampler) and sampler.replacement):
        raise InvalidArgument(
            f"The loader's {type(sampler).__name__} draws rows more than once, and the guarantee counts on one "
            "contribution per row. Use shuffle=True, which draws each row once."
        )
    apart, pairs = copy.copy(loader), loader.collate_fn is default_collate
    apart._iterator = None
    if pairs:
        apart.collate_fn = list
    own = type(loader.batch_sampler) is BatchSampler and type(sampler) in (SequentialSampler, RandomSampler)
    own = own and not isinstance(loader.dataset, (Subset, ConcatDataset, StackDataset))
    if not own and not isinstance(loader.dataset, IterableDataset):
        object.__setattr__(apart, "batch_sampler", _Once(loader))  # a loader guards its own attributes
    return ShapedChunks(_Plain(apart, pairs=pairs), shape, dtype, together=not pairs)


def array_of(value: Any) -> Any:
    """Return a tensor as a NumPy array, whatever its device and type; anything else as it is."""
    if not issubclass(type(value), torch.Tensor):  # an object may raise when it is asked for its class
        return value
    try:
        plain = value.detach().cpu()
        return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    except Exception:  # a tensor that NumPy cannot hold is no row; its text is not ours to print
        return None


def _chained(rows: Any) -> Iterator[Any]:
    """Yield the datasets that an iterable one reads, one after the other; chains are unfolded."""
    if not isinstance(rows, ChainDataset):
        yield rows
        return
    if not isinstance(rows.datasets, (list, tuple)):  # a generator is used up by whoever looks at it
        rows.datasets = list(rows.datasets)
    for part in rows.datasets:
        yield from _chained(part)


class _Once:
    """Batches of places, without those that came before. Cost: memory of one number per place."""

    def __init__(self, loader: Any) -> None:
        self._batches: Iterable[Iterable[Any]] = loader.batch_sampler
        self._rows = loader.dataset

    def __iter__(self) -> Iterator[list[Any]]:
        seen: set[_Name] = set()
        for batch in self._batches:
            named = {_name(place, self._rows): place for place in batch}
            fresh = [place for name, place in named.items() if name not in seen]
            seen.update(named)
            if fresh:
                yield fresh


_Name = tuple[Any, ...]
"""A dataset and a place in it, or the names of the parts of a row."""


def _name(place: Any, rows: Any) -> _Name:
    """Return what tells a row apart: 3, ``np.int64(3)``, ``torch.tensor(3)`` and 3 - len(rows) are one.

    A row of stacked datasets is made of one row of each, and its name of their names. Text is a name too. Anything else
    may be one of several names of a row, or name several rows: (3,), [2, 3], 2:4.
    """
    if isinstance(place, str):
        return id(rows), str(place)
    try:
        index = operator.index(place)
    except TypeError:
        raise InvalidArgument(
            f"The sampler draws places of type {type(place).__name__}, which do not tell rows apart: the same row may "
            "be drawn again. Expected whole numbers or text."
        ) from None
    if index < 0:
        try:
            index += len(rows)
        except TypeError:
            raise InvalidArgument(
                "The sampler counts places from the end of a dataset that has no length, so they may be those of rows "
                "that it draws elsewhere. Give the dataset a __len__, or use places from 0."
            ) from None
    if isinstance(rows, Subset) and 0 <= index < len(rows.indices):
        return _name(rows.indices[index], rows.dataset)
    if isinstance(rows, ConcatDataset) and 0 <= index < len(rows):
        part = bisect.bisect_right(rows.cumulative_sizes, index)
        return _name(index - (rows.cumulative_sizes[part - 1] if part else 0), rows.datasets[part])
    if isinstance(rows, (StackDataset, TensorDataset)) and 0 <= index < len(rows):
        return tuple(_name(index, part) for part in _parts(rows))
    return id(rows), index


def _parts(rows: Any) -> Iterable[Any]:
    """Return the datasets, or the tensors, that each give a part of a row."""
    if isinstance(rows, TensorDataset):
        return rows.tensors
    return rows.datasets.values() if isinstance(rows.datasets, Mapping) else rows.datasets


class _Plain:
    """The items of a loader with arrays in place of tensors."""

    def __init__(self, loader: Any, *, pairs: bool = False) -> None:
        self._loader, self._pairs = loader, pairs

    def __iter__(self) -> Iterator[Any]:
        source = iter(self._loader)
        return ([_arrays(pair) for pair in item] if self._pairs else _arrays(item) for item in source)


def _arrays(item: Any) -> Any:
    return tuple(map(array_of, item)) if issubclass(type(item), (tuple, list)) else item
