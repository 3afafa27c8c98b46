"""No row of a loader counts twice: what samplers, datasets and workers repeat is left out or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.clipping.torch.pictures import (
    DECLARED,
    SHAPE,
    N,
    Rows,
    cross_entropy,
    network,
    pictures,
)
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

import dpsco
import dpsco.torch
from dpsco import InvalidArgument
from dpsco.run import watching


def test_samplers_that_repeat_rows_are_refused() -> None:
    rows = Rows()
    for sampler in (
        RandomSampler(rows, replacement=True),
        RandomSampler(rows, num_samples=2 * N),
        WeightedRandomSampler([1.0] * N, N),
    ):
        batches = BatchSampler(sampler, 50, drop_last=False)
        for loader in (DataLoader(rows, batch_size=50, sampler=sampler), DataLoader(rows, batch_sampler=batches)):
            with pytest.raises(InvalidArgument, match="more than once"):
                dpsco.torch.fit(network(), cross_entropy, loader, n=N, input_shape=SHAPE, **DECLARED)
    with pytest.raises(InvalidArgument, match="batch size"):
        dpsco.torch.fit(network(), cross_entropy, DataLoader(rows, batch_size=None), n=N, input_shape=SHAPE, **DECLARED)
    shuffled = DataLoader(rows, batch_size=50, shuffle=True)
    assert dpsco.torch.fit(network(), cross_entropy, shuffled, n=N, input_shape=SHAPE, **DECLARED).report.private


@pytest.mark.parametrize("collate", [None, lambda rows: (torch.stack([x for x, _ in rows]), [y for _, y in rows])])
def test_a_place_that_a_sampler_draws_again_is_left_out(collate: Any) -> None:
    """A list, places as tensors, batches of the caller's: one row enters one contribution."""
    rows = Rows()
    places = [*range(N), *[7] * N]
    samplers: list[dict[str, Any]] = [
        {"sampler": range(N), "batch_size": 50},
        {"sampler": places, "batch_size": 50},
        {"sampler": SubsetRandomSampler(torch.tensor(places)), "batch_size": 50},
        {"batch_sampler": [places[k : k + 50] for k in range(0, 2 * N, 50)]},
        {"batch_sampler": [[*range(N)], [*range(-N, 0)]]},
    ]
    counts = []
    for given in samplers:
        seen: list[int] = []
        with watching(lambda query, clipped, released, seen=seen: seen.append(clipped.rows)):
            loader = DataLoader(rows, collate_fn=collate, **given)
            dpsco.torch.fit(network(), cross_entropy, loader, n=2 * N, input_shape=SHAPE, **DECLARED)
        counts.append(sum(seen))
    assert counts == [N] * 5


def test_a_row_that_a_dataset_names_again_is_left_out() -> None:
    """Oversampling by ``Subset``, or a dataset joined with itself: one row entered as many contributions."""
    rows = Rows()
    again = Subset(rows, [*range(N), *[7] * (N // 2), *[-1] * (N // 2)])
    joined = ConcatDataset([rows, Subset(rows, range(N))])
    halves = ConcatDataset(random_split(rows, [N // 2, N // 2]))
    for given in (again, joined, halves):
        seen: list[int] = []
        with watching(lambda query, clipped, released, seen=seen: seen.append(clipped.rows)):
            loader = DataLoader(given, batch_size=50, shuffle=True)
            dpsco.torch.fit(network(), cross_entropy, loader, n=2 * N, input_shape=SHAPE, **DECLARED)
        assert sum(seen) == N


def test_a_row_that_stacked_datasets_name_again_is_left_out() -> None:
    """Features and labels in datasets of their own: a row that both named again entered two contributions."""
    X, y = map(torch.from_numpy, pictures())
    places = [*range(N), *[7] * (N // 2), *[-1] * (N // 2)]
    oversampled = StackDataset(Subset(X, places), Subset(y, places))
    joined = StackDataset(ConcatDataset([X, X]), ConcatDataset([y, y]))
    taken = Subset(StackDataset(Subset(X, places), Subset(y, places)), range(2 * N))
    same_tensors = ConcatDataset([TensorDataset(X, y), TensorDataset(X, y), StackDataset(X, y)])
    named = StackDataset(x=Subset(X, places), y=Subset(y, places))
    pairs = {"collate_fn": lambda rows: (torch.stack([r["x"] for r in rows]), torch.stack([r["y"] for r in rows]))}
    given: list[tuple[Any, dict[str, Any]]] = [
        *((rows, {}) for rows in (oversampled, joined, taken, same_tensors, StackDataset(X, y))),
        (named, pairs),
    ]
    for rows, how in given:
        seen: list[int] = []
        with watching(lambda query, clipped, released, seen=seen: seen.append(clipped.rows)):
            loader = DataLoader(rows, batch_size=50, shuffle=True, **how)
            dpsco.torch.fit(network(), cross_entropy, loader, n=3 * N, input_shape=SHAPE, **DECLARED)
        assert sum(seen) == N


def test_a_chain_that_reads_a_dataset_again_is_refused() -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            return iter(Rows().rows)

    one = Stream()
    chains = (ChainDataset([one, one]), ChainDataset(each for each in (one, ChainDataset([one]))))
    for chain in chains:
        loader = DataLoader(chain, batch_size=50)
        with pytest.raises(InvalidArgument, match="more than once"):
            dpsco.torch.fit(network(), cross_entropy, loader, n=2 * N, input_shape=SHAPE, **DECLARED)
    seen: list[int] = []
    with watching(lambda query, clipped, released: seen.append(clipped.rows)):
        loader = DataLoader(ChainDataset(each for each in (one, Stream())), batch_size=50)
        dpsco.torch.fit(network(), cross_entropy, loader, n=3 * N, input_shape=SHAPE, **DECLARED)
    assert sum(seen) == 2 * N


def test_places_from_the_end_of_a_dataset_without_a_length_are_refused() -> None:
    class Endless(Dataset):
        def __getitem__(self, place: int) -> Any:
            return Rows().rows[place]

    loader = DataLoader(Endless(), batch_sampler=[[5], [5 - N]])
    with pytest.raises(InvalidArgument, match="__len__"):
        dpsco.torch.fit(network(), cross_entropy, loader, n=N, input_shape=SHAPE, **DECLARED)


@pytest.mark.parametrize("place", [(7,), [7], [6, 7], slice(6, 8), np.array([6, 7]), ..., None, 7.0])
def test_places_that_do_not_tell_rows_apart_are_refused(place: Any) -> None:
    """A tensor takes (7,) and 6:8 for places: row 7 was counted again."""
    X, y = pictures()

    def joined(rows: Any) -> Any:
        return torch.cat([x.reshape(-1, *SHAPE) for x, _ in rows]), torch.cat([label.reshape(-1) for _, label in rows])

    rows = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    loader = DataLoader(rows, batch_sampler=[[7], [place]], collate_fn=joined)
    with pytest.raises(InvalidArgument, match="tell rows apart"):
        dpsco.torch.fit(network(), cross_entropy, loader, n=N, input_shape=SHAPE, **DECLARED)


def test_places_that_are_text_are_left_out_when_they_are_drawn_again() -> None:
    class Named(Rows):
        def __getitem__(self, place: Any) -> Any:
            return self.rows[int(place)]

    names = [str(place) for place in range(N)]
    seen: list[int] = []
    with watching(lambda query, clipped, released: seen.append(clipped.rows)):
        loader = DataLoader(Named(), batch_sampler=[names, names[:50]])
        dpsco.torch.fit(network(), cross_entropy, loader, n=2 * N, input_shape=SHAPE, **DECLARED)
    assert sum(seen) == N


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # torch warns where there is one core
def test_workers_that_each_hand_out_all_rows_are_refused() -> None:
    class Lines(IterableDataset):
        def __iter__(self) -> Any:
            return iter(Rows().rows)

    for workers in (0, 1):
        loader = DataLoader(Lines(), batch_size=50, num_workers=workers)
        report = dpsco.torch.fit(network(), cross_entropy, loader, n=N, input_shape=SHAPE, **DECLARED).report
        assert report.rows_missing == 0
    two = DataLoader(Lines(), batch_size=50, num_workers=2)
    with pytest.raises(InvalidArgument, match="num_workers=2"):
        dpsco.torch.fit(network(), cross_entropy, two, n=N, input_shape=SHAPE, **DECLARED)
