"""Columns of times with a zone: no date stops the call, is printed, or changes how another row is read."""

from __future__ import annotations

import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsco
from dpsco.audit.recording import Transcript, observe
from dpsco.errors import DataError
from dpsco.rows.file_stream import FileRows, Labels

ZONES = (
    "UTC",
    "Europe/Paris",
    "Pacific/Kiritimati",
    "America/New_York",
    datetime.timezone(datetime.timedelta(hours=-23, minutes=-59)),
)
COLUMNS = dpsco.PublicColumns(dates={"when": ("0001-01-01", "9999-12-31")}, missing=True)
ORDINARY = np.arange("1969-06-01T23", "2037-06-01T23", np.timedelta64(200, "D"), dtype="datetime64[s]")
DATES = (
    "-290000-01-01",
    "0000-01-01",
    "0001-01-01",
    "0001-01-01T23:59",
    "1677-09-21T00:13",
    "1883-11-18T12",
    "2262-04-11T23:46",
    "9999-12-31T12",
    "9999-12-31T23:59:59",
    "10000-01-01",
    "33658-09-27",
    "290000-01-01",
    "NaT",
)


class Refusing(datetime.tzinfo):
    """A clock that is not known in leap years."""

    def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta:
        if when is not None and when.year % 4 == 0:
            raise RuntimeError(f"nothing is known of {when}")
        return datetime.timedelta(hours=2)

    def dst(self, when: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(0)

    def tzname(self, when: datetime.datetime | None) -> str:
        return "none"

    def fromutc(self, when: datetime.datetime) -> datetime.datetime:
        return when + self.utcoffset(when)


def features(times: np.ndarray, unit: str, zone: Any) -> np.ndarray:
    held = pd.Series(times.astype(f"datetime64[{unit}]")).dt.tz_localize("UTC").dt.tz_convert(zone)
    assert held.dt.tz is not None
    return np.asarray(COLUMNS.transform(pd.DataFrame({"when": held})))


def fitting(unit: str) -> list[str]:
    """Dates that the unit can hold."""
    whole = [np.datetime64(date, "s") for date in DATES]
    reach = np.iinfo(np.int64).max // {"s": 1, "us": 10**6, "ns": 10**9}[unit]
    return [d for d, s in zip(DATES, whole, strict=True) if np.isnat(s) or abs(s.astype(np.int64)) < reach]


@pytest.mark.parametrize("zone", [*ZONES, Refusing()], ids=[*map(str, ZONES), "refusing"])
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_no_date_stops_the_call_or_changes_another_row(unit: str, zone: Any) -> None:
    alone = {date: features(np.array([date], "datetime64[s]"), unit, zone)[0] for date in fitting(unit)}
    ordinary = features(ORDINARY, unit, zone)
    together = features(np.concatenate([ORDINARY, np.array(list(alone), "datetime64[s]")]), unit, zone)
    np.testing.assert_array_equal(together[: len(ORDINARY)], ordinary)
    np.testing.assert_array_equal(together[len(ORDINARY) :], np.stack(list(alone.values())))
    for date, row in alone.items():
        assert row[1] == (date == "NaT" or not -719162 - 1 <= np.datetime64(date, "D").astype(int) <= 2932896)


@pytest.mark.parametrize("zone", ZONES, ids=str)
def test_ordinary_times_are_days_in_utc(zone: Any) -> None:
    days = pd.DataFrame({"when": ORDINARY.astype("datetime64[D]").astype(str)})
    np.testing.assert_array_equal(features(ORDINARY, "us", zone), np.asarray(COLUMNS.transform(days)))


ZONED: dict[str, Any] = {
    "list": lambda cells: {"when": cells},
    "pandas": lambda cells: {"when": pd.Series(cells)},
    "polars": lambda cells: pl.DataFrame({"when": cells}),
    "Arrow": lambda cells: pa.table({"when": pa.array(cells)}),
    "Arrow, then pandas": lambda cells: pa.table({"when": pa.array(cells)}).to_pandas(),
    "text": lambda cells: {"when": [str(cell) for cell in cells]},
    "text that pandas parses": lambda cells: {"when": pd.to_datetime(pd.Series(map(str, cells)), utc=True)},
}


@pytest.mark.parametrize("make", ZONED.values(), ids=ZONED)
def test_the_zone_of_one_row_moves_no_other_date(make: Any) -> None:
    """pa.array, pl.Series and pandas.to_parquet give a column the zone of its first cell."""
    times = [datetime.datetime(2020, 5, day, hour, tzinfo=datetime.UTC) for day in (1, 2, 3) for hour in (0, 12, 23)]
    want = np.asarray(COLUMNS.transform({"when": [time.date() for time in times]}))
    for zone in ("Asia/Tokyo", "America/New_York"):
        cells = [times[0].astimezone(ZoneInfo(zone)), *times[1:]]
        for given in (cells, times):
            np.testing.assert_array_equal(np.asarray(COLUMNS.transform(make(given))), want)


def test_the_zone_of_one_row_of_a_file_moves_no_other_date(tmp_path: Any) -> None:
    times = [datetime.datetime(2020, 5, day, 20, tzinfo=datetime.UTC) for day in (1, 2, 3)]
    found = []
    for first in (times[0], times[0].astimezone(ZoneInfo("Asia/Tokyo"))):
        path = tmp_path / "rows.parquet"
        pd.DataFrame({"when": [first, *times[1:]], "y": [0, 1, 0]}).to_parquet(path)
        rows = FileRows(path, Labels(classes=("0", "1")), COLUMNS, feature_norm=2.0)
        found.append(np.concatenate([chunk for chunk, _ in rows]))
    assert found[0].tobytes() == found[1].tobytes()


def test_a_category_of_times_with_a_zone() -> None:
    held = pd.Series(np.array(["2001-01-01", "33658-09-27"], "datetime64[s]")).dt.tz_localize("UTC")
    found = COLUMNS.transform(pd.DataFrame({"when": held.dt.tz_convert("Europe/Paris").astype("category")}))
    assert found[:, 1].tolist() == [0.0, 1.0]


def has_object(time: np.datetime64, zone: str | datetime.timezone) -> bool:
    """Whether Python knows the time on this clock, and pandas does not crash on it, as 2.2 does at the year 1."""
    if np.isnat(time):
        return True
    if pd.__version__.startswith("2.2.") and time < np.datetime64("1600"):
        return False
    try:
        known = time.astype("datetime64[s]").item().replace(tzinfo=datetime.UTC)
        known.astimezone(ZoneInfo(zone) if isinstance(zone, str) else zone)
    except (AttributeError, OverflowError):
        return False
    return True


@pytest.mark.parametrize("zone", [*ZONES, "Asia/Tokyo"], ids=str)
@pytest.mark.parametrize("unit", ["s", "us"])
def test_one_odd_cell_that_makes_objects_of_a_column_changes_no_other_date(unit: str, zone: Any) -> None:
    """9999-12-31T23:59:59Z, "until further notice", is another day on many clocks, or one that Python does not know."""
    times = np.concatenate([ORDINARY, np.array(fitting(unit), "datetime64[s]")])
    held = pd.Series(times.astype(f"datetime64[{unit}]")).dt.tz_localize("UTC").dt.tz_convert(zone)
    held = held[[has_object(time, zone) for time in times]]
    odd = pd.concat([held, pd.Series(["never"])], ignore_index=True)
    assert odd.dtype == object
    found = np.asarray(COLUMNS.transform(pd.DataFrame({"when": odd})))[:-1]
    np.testing.assert_array_equal(found, np.asarray(COLUMNS.transform(pd.DataFrame({"when": held}))))


def test_times_of_python_with_a_zone_follow_the_same_rule() -> None:
    west, east = (datetime.timezone(datetime.timedelta(hours=hours)) for hours in (-9, 9))
    cells = [
        datetime.datetime(9999, 12, 31, 20, tzinfo=west),  # in the year 10000 of UTC: no date of the calendar
        datetime.datetime(2020, 5, 4, 1, tzinfo=east),
        datetime.datetime(2020, 5, 3, 16),
    ]
    found = np.asarray(COLUMNS.transform(pd.DataFrame({"when": pd.Series(cells, dtype=object)})))
    assert found[:, 1].tolist() == [1.0, 0.0, 0.0]
    assert found[1, 0] == found[2, 0]


@pytest.mark.parametrize("make", [pd.Index, pd.array], ids=["Index", "array"])
@pytest.mark.parametrize("zone", [None, "Europe/Paris"], ids=["no zone", "Paris"])
def test_an_index_and_an_array_of_pandas_are_read_as_a_series_is(make: Any, zone: Any) -> None:
    """pandas finds the type of both by looking at all cells: times, or objects where one cell is no time."""
    held = list(pd.Series(ORDINARY).dt.tz_localize("UTC").dt.tz_convert(zone))
    times, odd = make(held), make([*held[:-1], "never"])
    assert (times.dtype.kind, odd.dtype.kind) == ("M", "O")
    found = np.asarray(COLUMNS.transform({"when": times}))
    np.testing.assert_array_equal(found, np.asarray(COLUMNS.transform({"when": pd.Series(held)})))
    np.testing.assert_array_equal(found[:-1], np.asarray(COLUMNS.transform({"when": odd}))[:-1])
    as_numbers = dpsco.PublicColumns(ranges={"when": (0, 1)})
    with pytest.raises(DataError, match="'when' holds times"):
        as_numbers.transform({"when": times})
    assert np.unique(np.asarray(as_numbers.transform({"when": odd}))).tolist() == [0.5]  # cells of objects are missing


@pytest.mark.parametrize(
    "cells", [[20200101, None], [True, None], ["2020-01-01", None], [20200101, 2.5], [20200101, "x"]]
)
def test_an_array_of_pandas_with_any_cells_is_read_as_a_series_is(cells: list[Any]) -> None:
    columns = dpsco.PublicColumns(dates={"a": ("1900-01-01", "2100-01-01")}, hashed={"b": 4}, ranges={"c": (0, 3)})
    for held in (pd.array(cells), pd.Index(cells), pd.Categorical(cells), pd.arrays.SparseArray(cells)):
        want = columns.transform(dict.fromkeys("abc", cells))
        np.testing.assert_array_equal(columns.transform(dict.fromkeys("abc", held)), want)


def test_an_odd_cell_in_an_index_of_times_moves_the_sums_by_one_row() -> None:
    held = list(pd.Series(np.resize(ORDINARY, 400)).dt.tz_localize("UTC").dt.tz_convert("Europe/Paris"))
    labels = np.arange(400) % 2
    facts = {"columns": COLUMNS, "classes": [0, 1], "survey": "none", "invalid_rows": "zero", "random_state": 0}

    def sums(index: pd.Index, frozen: Transcript | None) -> Transcript:
        def run() -> bytes:
            dpsco.PrivateLogisticRegression(epsilon=1.0, delta=1e-5, **facts).fit({"when": index}, labels)
            return b""

        return observe(run, frozen)

    one = sums(pd.Index(held), None)
    other = sums(pd.Index(["never", *held[1:]]), one)
    assert one.error is other.error is None
    distances = [
        np.linalg.norm(a - b) / query.clip for a, b, query in zip(one.sums, other.sums, one.queries, strict=True)
    ]
    assert 0 < max(distances) <= 2.001  # one row becomes another one


NOT_ON_THE_CLOCK = [
    datetime.datetime(2011, 12, 30, 12, tzinfo=ZoneInfo("Pacific/Apia")),  # Samoa left this day out
    datetime.datetime(2011, 12, 30, 12, tzinfo=ZoneInfo("Pacific/Apia"), fold=1),
    datetime.datetime(2018, 11, 4, 0, 30, tzinfo=ZoneInfo("America/Sao_Paulo"), fold=1),  # forward over midnight
    datetime.datetime(1912, 1, 1, 0, 8, tzinfo=ZoneInfo("Africa/Abidjan"), fold=1),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1, microseconds=1))),
]


@pytest.mark.parametrize("time", NOT_ON_THE_CLOCK, ids=str)
def test_a_time_that_its_clock_never_showed_has_one_day_in_every_container(time: datetime.datetime) -> None:
    """A column of pandas keeps the time in UTC alone; one odd cell makes objects of it, which show another day."""
    column = pd.Series([time, time])
    assert column.dtype.kind == "M"
    want = np.asarray(COLUMNS.transform({"when": column}))[:1]
    for cells in ([time, "never"], [pd.Timestamp(time), "never"], [pd.Timestamp(time), time]):
        for held in (cells, pd.Series(cells, dtype=object), pd.Series(cells, dtype=object).astype("category")):
            np.testing.assert_array_equal(np.asarray(COLUMNS.transform({"when": held}))[:1], want)


LATE = (
    "2036-06-30T22:30",
    "2049-06-30T22:30",
    "2049-12-31T23:30",
    "9999-06-30T22:30",
    "9999-12-31T23:30",
    "0001-01-01",
)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "America/New_York", "Asia/Kolkata"])
def test_a_time_to_come_has_one_day_in_python_pandas_and_arrow(zone: str, tmp_path: Any) -> None:
    """Arrow's clock has no summer time from 2038 on; one odd cell makes objects of a column, with Python's clock."""
    times = pd.Series(np.array(LATE, "datetime64[us]")).dt.tz_localize("UTC").dt.tz_convert(zone)
    held = pa.array(times.dt.tz_convert(None).to_numpy()).cast(pa.int64()).cast(pa.timestamp("us", zone))
    backed = pd.Series(pd.arrays.ArrowExtensionArray(held))
    want = np.asarray(COLUMNS.transform({"when": times}))
    odd = pd.concat([backed[:-2], pd.Series(["never"])], ignore_index=True)  # Python does not know the last two
    assert odd.dtype == object
    np.testing.assert_array_equal(np.asarray(COLUMNS.transform({"when": odd}))[:-1], want[:-2])
    for column in (backed, held, pa.chunked_array([held[:2], held[2:]]), held.dictionary_encode(), pl.from_arrow(held)):
        np.testing.assert_array_equal(np.asarray(COLUMNS.transform({"when": column})), want)
    pq.write_table(pa.table({"when": held, "y": [0] * len(LATE)}), tmp_path / "rows.parquet")
    rows = FileRows(tmp_path / "rows.parquet", Labels(classes=("0", "1")), COLUMNS, feature_norm=2.0)
    np.testing.assert_array_equal(np.concatenate([chunk for chunk, _ in rows]), want / np.float32(2))
