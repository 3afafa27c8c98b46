"""Rows that stay where they are: a stream that hands out spans of shards instead of chunks of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpsco.engines.dask.layout import Order, Shard, Span, open_round, shards_of, spans_of
from dpsco.errors import DataError, InvalidArgument, one_of, positive, positive_integer
from dpsco.query import CHUNK_ROWS, Batch, Portion, chunk_multiple
from dpsco.rows.file_stream import Labels, RowForm, open_source
from dpsco.rows.layout import Layout
from dpsco.rows.one_pass import whole
from dpsco.rows.public_columns import PublicColumns
from dpsco.rows.readers.parquet import ParquetSource
from dpsco.rows.readers.stamps import stamp
from dpsco.rows.stream import Sample, Stream

__all__ = ["ParquetRows", "ShardStream", "SpanBatch"]


class ParquetRows:
    """Rows of Parquet files that every worker can reach under the same name: a shared disk, or ``s3://bucket/folder``.

    Parameters
    ----------
    path, labels, columns, feature_norm, shuffle, seed
        As in ``rows.file_stream.FileRows``: the same rows in the same order.
    unreadable : {"stop", "zero"}
        "stop": a file that a worker cannot read stops the run; what was released is on disk, and ``resume`` goes on.
        "zero": its rows count as zero rows. The denominator is the plan's in either case.

    Guarantee: what is read here, on the driver, is the footer of each file: columns and numbers of rows. Rows of a file
    that changed since (its size, or the time of its last change) are refused.
    """

    def __init__(
        self,
        path: str | Path,
        labels: Labels,
        columns: PublicColumns,
        *,
        feature_norm: float = 1.0,
        shuffle: int = 0,
        seed: int = 0,
        unreadable: str = "stop",
    ) -> None:
        norm = positive("feature_norm", feature_norm, "Rows are scaled into it; it must be public.")
        self.form = RowForm(labels, columns, norm)
        self.unreadable = one_of("unreadable", unreadable, ("stop", "zero"))
        source = open_source(path, label=labels.column)
        if not isinstance(source, ParquetSource):
            raise InvalidArgument(
                "A cluster reads Parquet files: they say where their rows are. Convert the data first."
            )
        source.refuse_times(self.form.words)
        stamps = source.of_each(stamp)  # before the footers: a file that changes in between is refused
        files = source.groups(self.form.numbers, self.form.texts)
        mixed = shuffle if shuffle == 0 else positive_integer("shuffle", shuffle, "It is a number of rows.")
        self.order = Order(sum(sum(groups) for _, groups in files), mixed, seed)
        self.shards: tuple[Shard, ...] = tuple(
            replace(shard, stamps=tuple(stamps[path] for path, _, _ in shard.parts))
            for shard in shards_of(files, self._row_bytes)
        )

    @property
    def _row_bytes(self) -> int:
        columns = self.form.columns
        return 8 + (12 * len(columns.features) if columns.sparse else 4 * columns.width)

    @property
    def unit(self) -> int:
        """Rows that spans are cut at multiples of, from the start of their round."""
        columns = self.form.columns
        return CHUNK_ROWS if columns.sparse else chunk_multiple(columns.width)


@dataclass(frozen=True, eq=False)
class SpanBatch(Batch):
    """A round of a ``ShardStream``: no rows, but where they are."""

    spans: tuple[Span, ...] = ()


class ShardStream(Stream):
    """The rounds of a plan as spans of shards."""

    def __init__(self, rows: ParquetRows) -> None:
        super().__init__()
        self.rows = rows

    def _check(self, layout: Layout) -> None:
        super()._check(layout)
        width = self.rows.form.columns.width
        if layout.width is not None and width != layout.width:
            raise DataError(
                f"Expected rows of {layout.width} features (problem.dimension={layout.width}), got "
                f"{width}. Fix the columns or the problem."
            )
        if not self.rows.order.rows:
            raise DataError("The files are empty: no row was found. Check the path; nothing was spent.")

    def _batches(self, layout: Layout) -> Iterator[Batch]:
        size = layout.batch_size
        rounds = [(step * size, (step + 1) * size) for step in range(layout.rounds)]
        for step, spans in enumerate(spans_of(self.rows.shards, rounds, self.rows.order, self.rows.unit)):
            yield self._handed_out(step, spans)

    def _check_portions(self, portions: Sequence[Portion]) -> None:
        if portions:
            super()._check_portions(portions)

    def _portions(self, portions: Iterable[Portion], sample: Sample | None) -> Iterator[Batch]:
        rows = self.rows
        for step, part in enumerate(whole(portions)):
            yield self._handed_out(step, open_round(rows.shards, step, part.first, part.last, rows.order, rows.unit))

    def _handed_out(self, step: int, spans: tuple[Span, ...]) -> SpanBatch:
        self.rows_read = (self.rows_read or 0) + sum(span.stop - span.start for span in spans)
        return SpanBatch(step, (), spans)

    def forget(self, rows: int) -> None:
        """Take back ``rows`` rows that were handed out and could not be read."""
        self.rows_read = (self.rows_read or 0) - rows
