"""Whatever container rows come in and whatever one cell, row, label or id of them is: every other row keeps its bits.

Rows are watched where they leave each entry point: ``stream`` (arrays, ids, chunks, chunks of mixed kinds, single
rows), ``fit``, ``partial_fit``, files, shards of a cluster, clients of a federation, PyTorch and JAX. A row is the
bytes of its features and its label, or "zero row". The fast suite runs a fixed part of the combinations, `make
test-slow` all of them.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.rows.combinations import EXHAUSTIVE, PLACES, Tally, in_share
from tests.rows.containers_under_test import (
    COLUMNS,
    LISTS,
    ODD_CELLS,
    ODD_IDS,
    ODD_LABELS,
    ODD_ROWS,
    ROWS,
    TABLES,
    WIDTH,
    a_grid,
    object_array,
    pieces,
    with_odd_cell,
)

import dpsco
from dpsco.clipping.linear import LinearOracle
from dpsco.rows.layout import Layout

Rounds = list[list[bytes]]
ZERO = b"zero row"
LABELS: list[Any] = [k // 3 % 2 for k in range(ROWS)]
IDS: list[Any] = list(range(ROWS))


def layout(adjacency: str = "zero-out", loss: Any = None) -> Layout:
    return Layout(4, ROWS // 4, None, WIDTH, loss or dpsco.Logistic(), adjacency, "00" * 32, places=4)


def token(features: Any, label: Any) -> bytes:
    """A row as the oracle sees it; sparse rows as dense ones, every type as float64, which holds it exactly."""
    row = np.asarray(features, dtype=np.float64).ravel()
    usable = bool(np.all(np.isfinite(row)) and np.isfinite(label) and label in (0.0, 1.0))
    return row.tobytes() + np.float64(label).tobytes() if usable else ZERO


def rounds_of(batches: Any) -> Rounds:
    return [
        [
            token(features[k], labels[k])
            for features, labels in batch.chunks
            for k in range(len(labels))
            if _typed(features, labels)
        ]
        for batch in batches
    ]


def _typed(features: Any, labels: Any) -> bool:
    assert features.dtype in (np.float32, np.float64)
    assert labels.dtype == np.float64
    return True


# --- entry points: (rows, labels) in, rounds of rows out ---------------------------------------------------


def by_stream(x: Any, y: Any) -> Rounds:
    return rounds_of(dpsco.stream(x, y, non_finite="zero").open(layout()))


def by_ids(x: Any, y: Any, ids: Any = None) -> Rounds:
    chosen = IDS if ids is None else ids
    return rounds_of(dpsco.stream(x, y, ids=chosen, non_finite="zero").open(layout("add-remove")))


def by_chunks(x: Any, y: Any) -> Rounds:
    chunks = zip(pieces(x, 5), pieces(y, 5), strict=True)
    return rounds_of(dpsco.stream(chunks).open(layout()))


def by_mixed_chunks(x: Any, y: Any) -> Rounds:
    """Chunks of this container between chunks of lists, of bytes, of float32 and of sparse rows."""
    others = itertools.cycle(["list", "array of uint8", "array of float32", "csr int32 of float64", "pandas"])
    grid, mixed = a_grid(), []
    for start, (a, b) in zip(range(0, ROWS, 4), zip(pieces(x, 4), pieces(y, 4), strict=True), strict=True):
        if start % 8:
            mixed.append((a, b))
        else:
            mixed.append((TABLES[next(others)](grid[start : start + 4]), LABELS[start : start + 4]))
    return rounds_of(dpsco.stream(iter(mixed)).open(layout()))


def by_fit(x: Any, y: Any, unit: Any = None) -> Rounds:
    return _watched(lambda model, **ids: model.fit(x, y, **ids), unit)


def by_partial_fit(x: Any, y: Any, unit: Any = None) -> Rounds:
    def push(model: Any, unit: Any = None) -> None:
        units = itertools.repeat(None) if unit is None else pieces(unit, 7)
        for a, b, c in zip(pieces(x, 7), pieces(y, 7), units, strict=False):
            model.partial_fit(a, b, **({} if c is None else {"unit": c}))

    return _watched(push, unit)


def _watched(use: Callable[..., Any], unit: Any) -> Rounds:
    """The rows that reach the oracle of an estimator, round by round."""
    seen: dict[int, list[bytes]] = {}
    answer = LinearOracle.answer

    def watch(self: Any, query: Any, batch: Any) -> Any:
        chunks = [(features[:], labels) for features, labels in batch.chunks]  # rows on demand take slices
        for features, labels in chunks:
            seen.setdefault(query.step, []).extend(token(features[k], labels[k]) for k in range(len(labels)))
        return answer(self, query, type(batch)(batch.step, chunks))

    model = dpsco.PrivateLogisticRegression(
        epsilon=1.0,
        delta=1e-5,
        classes=[0, 1],
        rounds=4,
        n=ROWS,
        n_features=WIDTH,
        feature_norm=20.0,
        invalid_rows="zero",
        max_rows_per_unit=None if unit is None else 1,
        random_state=5,
    )
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", dpsco.PrivacyLeakWarning)
        patch.setattr(LinearOracle, "answer", watch)
        use(model, **({} if unit is None else {"unit": unit}))
    return [seen[step] for step in sorted(seen)]


def by_federation(x: Any, y: Any) -> Rounds:
    from dpsco.engines.flower.linear_gradients import linear_gradients

    problem = dpsco.Problem(dpsco.Logistic(), dpsco.L2Ball(1.0), dimension=WIDTH)
    gradients = linear_gradients(problem, x, y)(np.array([0.1, 0.2, 0.3]))
    return [[row.tobytes() if np.all(np.isfinite(row)) else ZERO for row in gradients]]


def by_torch(x: Any, y: Any) -> Rounds:
    torch = pytest.importorskip("torch")
    from dpsco import torch as dpsco_torch

    if "torch" not in _MADE:
        loss = torch.nn.CrossEntropyLoss(reduction="none")
        _MADE["torch"] = dpsco_torch.oracle(torch.nn.Linear(WIDTH, 2), loss)
    oracle = _MADE["torch"]
    structure = oracle._structure(WIDTH)
    out = []
    for batch in _custom(x, y):
        rows = []
        for chunk in batch.chunks:
            a, b, bad = oracle._usable(chunk, structure)
            assert a.dtype == torch.float32
            assert b.dtype == torch.int64
            rows += [ZERO if bad[k] else token(a[k].numpy(), int(b[k])) for k in range(len(b))]
        out.append(rows)
    return out


def by_jax(x: Any, y: Any) -> Rounds:
    jax = pytest.importorskip("jax")
    from dpsco import jax as dpsco_jax
    from dpsco.clipping.jax.blocks import blocks

    if "jax" not in _MADE:
        start = np.zeros((2, WIDTH), np.float32)
        _MADE["jax"] = dpsco_jax.oracle(lambda p, row: jax.nn.log_softmax(p @ row[0])[row[1]], start)
    form = _MADE["jax"]._form(np.zeros((1, WIDTH)))
    assert (form.features, form.labels) == (np.float32, np.int32)
    out = []
    for batch in _custom(x, y):
        found = [(block, k) for block in blocks(batch.chunks, 8, form) for k in range(block.filled)]
        out.append([token(b.features[k], b.labels[k]) if b.there[k] else ZERO for b, k in found])
    return out


def _custom(x: Any, y: Any) -> Iterator[Any]:
    """Rows of a loss of the caller's, whose labels the library does not know."""
    stream = dpsco.stream(x, y, non_finite="zero", width=WIDTH)
    unknown = Layout(4, ROWS // 4, None, None, None, "zero-out", "00" * 32)
    return (dense(batch) for batch in stream.open(unknown))


def dense(batch: Any) -> Any:
    chunks = ((a.dense() if hasattr(a, "dense") else a, b) for a, b in batch.chunks)
    return type(batch)(batch.step, chunks)


_MADE: dict[str, Any] = {}
ENTRIES: dict[str, Callable[..., Rounds]] = {
    "stream": by_stream,
    "stream with ids": by_ids,
    "stream of chunks": by_chunks,
    "stream of mixed chunks": by_mixed_chunks,
    "fit": by_fit,
    "partial_fit": by_partial_fit,
    "federation": by_federation,
    "torch": by_torch,
    "jax": by_jax,
}
LABEL_ENTRIES = tuple(ENTRIES)
ID_ENTRIES = ("stream with ids", "fit", "partial_fit")


# --- the property ----------------------------------------------------------------------------------------


def differing(clean: Rounds, other: Rounds) -> list[tuple[bytes, bytes]]:
    """Rows that are not what they were, at their place; raises if a round has another number of rows."""
    assert [len(batch) for batch in clean] == [len(batch) for batch in other]
    return [(a, b) for one, two in zip(clean, other, strict=True) for a, b in zip(one, two, strict=True) if a != b]


def check(clean: Rounds, other: Rounds, rows: set[bytes], *, zero: bool = True) -> None:
    """At most the odd row differs, it is a zero row now, and before it was one of ``rows``."""
    changed = differing(clean, other)
    assert len(changed) <= 1
    for before, after in changed:
        assert after == ZERO
        assert before in rows
    if zero:
        assert len(changed) == 1
    assert sum(row == ZERO for batch in clean for row in batch) == 0  # rows that count are what is compared


def gone(clean: Rounds, other: Rounds) -> None:
    """At most one row has left its round; every other keeps it."""
    left = 0
    for one, two in zip(clean, other, strict=True):
        rest = list(two)
        for row in one:
            if row in rest:
                rest.remove(row)
            else:
                left += 1
        assert not rest
    assert left <= 1


@pytest.mark.parametrize("every", EXHAUSTIVE)
@pytest.mark.parametrize("entry", ENTRIES)
def test_one_odd_cell_leaves_every_other_row_as_it_is(entry: str, every: bool, record_property: Any) -> None:
    take, tally = ENTRIES[entry], Tally()
    rows: dict[str, Rounds] = {}
    known = take(TABLES["array of float64"](a_grid()), LABELS)
    for container, odd, place in itertools.product(TABLES, ODD_CELLS, PLACES):
        if not every and not in_share(entry, container, odd, place):
            continue
        if entry == "stream of mixed chunks" and place // 4 % 2 == 0:
            continue  # the odd row is in a chunk of another container

        def body(container: str = container, odd: str = odd, place: int = place) -> None:
            made = TABLES[container](with_odd_cell(place, ODD_CELLS[odd]))
            if container not in rows:
                rows[container] = take(TABLES[container](a_grid()), LABELS)
                if "float32" not in container:  # a declaration of its own
                    assert rows[container] == known
            check(rows[container], take(made, LABELS), {row for batch in rows[container] for row in batch})

        tally.run(f"{container}, {odd} in row {place}", body)
    tally.done(record_property, 1200 if every else 60)


@pytest.mark.parametrize("every", EXHAUSTIVE)
@pytest.mark.parametrize("entry", ENTRIES)
def test_one_odd_row_leaves_every_other_row_as_it_is(entry: str, every: bool, record_property: Any) -> None:
    take, tally = ENTRIES[entry], Tally()
    clean = take(TABLES["list"](a_grid()), LABELS)
    for container, odd, place in itertools.product(LISTS, ODD_ROWS, PLACES):
        if entry == "stream of mixed chunks" and place // 4 % 2 == 0:
            continue

        def body(container: str = container, odd: str = odd, place: int = place) -> None:
            grid: list[Any] = a_grid()
            grid[place] = ODD_ROWS[odd]
            made: Any = (
                object_array(grid) if container == "array of rows" else {"list": list, "tuple": tuple}[container](grid)
            )
            check(clean, take(made, LABELS), {row for batch in clean for row in batch})

        if every or in_share(entry, container, odd, place):
            tally.run(f"{container}, {odd} as row {place}", body)
    tally.done(record_property, 25 if every else 0)


@pytest.mark.parametrize("every", EXHAUSTIVE)
@pytest.mark.parametrize("entry", LABEL_ENTRIES)
def test_one_odd_label_leaves_every_other_row_as_it_is(entry: str, every: bool, record_property: Any) -> None:
    take, tally = ENTRIES[entry], Tally()
    x = np.array(a_grid(), dtype=float)
    clean = take(x, LABELS)
    for container, odd, place in itertools.product(COLUMNS, ODD_LABELS, PLACES):
        if entry == "stream of mixed chunks" and place // 4 % 2 == 0:
            continue
        if not every and not in_share(entry, container, odd, place):
            continue

        def body(container: str = container, odd: str = odd, place: int = place) -> None:
            labels = [*LABELS]
            labels[place] = ODD_LABELS[odd]
            made = COLUMNS[container](labels)
            assert take(x, COLUMNS[container](LABELS)) == clean
            check(clean, take(x, made), {row for batch in clean for row in batch})

        tally.run(f"{container}, label {odd} of row {place}", body)
    tally.done(record_property, 300 if every else 10)


def in_floating_point(column: Any) -> bool:
    kind = getattr(column, "type", None) if hasattr(column, "to_pylist") else getattr(column, "dtype", None)
    kind = getattr(getattr(kind, "categories", None), "dtype", kind)
    return any(word in str(kind).lower() for word in ("float", "double", "complex"))


@pytest.mark.parametrize("every", EXHAUSTIVE)
@pytest.mark.parametrize("entry", ID_ENTRIES)
def test_one_odd_id_leaves_every_other_row_as_it_is(entry: str, every: bool, record_property: Any) -> None:
    take, tally = ENTRIES[entry], Tally()
    x = np.array(a_grid(), dtype=float)
    clean = take(x, LABELS, IDS)
    for container, odd, place in itertools.product(COLUMNS, ODD_IDS, PLACES):
        if container in ("list of booleans", "array of text") or (
            not every and not in_share(entry, container, odd, place)
        ):
            continue

        def body(container: str = container, odd: str = odd, place: int = place) -> None:
            ids = [*IDS]
            ids[place] = ODD_IDS[odd]
            made = COLUMNS[container](ids)
            for column in (COLUMNS[container](IDS), made):
                if in_floating_point(column):  # refused by type
                    with pytest.raises(dpsco.DataError, match="Int64"):
                        take(x, LABELS, column)
                    return
            assert take(x, LABELS, COLUMNS[container](IDS)) == clean
            if entry == "stream with ids":
                gone(clean, take(x, LABELS, made))
            else:
                check(clean, take(x, LABELS, made), {row for batch in clean for row in batch}, zero=False)

        tally.run(f"{container}, id {odd} of row {place}", body)
    tally.done(record_property, 300 if every else 10)


def test_single_rows_of_an_iterable() -> None:
    grid = a_grid()
    clean = rounds_of(dpsco.stream(zip(grid, LABELS, strict=True), items="rows").open(layout()))
    assert clean == by_stream(grid, LABELS)
    cells = [(list(with_odd_cell(13, odd)[13]), LABELS[13]) for odd in ODD_CELLS.values()]
    whole = [(row, LABELS[13]) for row in ODD_ROWS.values()]
    labels = [(grid[13], odd) for odd in ODD_LABELS.values()]
    for odd in (*cells, *whole, *labels, None, 5, (), (1, 2, 3), "ab"):
        pairs: list[Any] = list(zip(grid, LABELS, strict=True))
        pairs[13] = odd
        other = rounds_of(dpsco.stream(pairs, items="rows").open(layout()))
        check(clean, other, {row for batch in clean for row in batch})
