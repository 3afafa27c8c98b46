"""Days of times with a zone, one by one: what every container of such times agrees on.

    second in UTC  ->  day on the clock of the zone       Python's clock: rules of a zone hold in all years to come

Columns have faster ways (pandas, Arrow), and one odd cell makes objects of a column. So each way has the days of this
one. Arrow's clock has no summer time from 2038 on: there Arrow columns are read by this file.
"""

from __future__ import annotations

import contextlib
import datetime
from typing import Any

import numpy as np

__all__ = ["CALENDAR", "day_on_clock"]

CALENDAR = np.datetime64("0001-01-03"), np.datetime64("9999-12-29")
"""Days whose local times lie in Python's calendar, whatever the zone."""


def day_on_clock(second: np.datetime64, zone: Any) -> Any:
    """Return the day of a time in UTC, of whole seconds, on the clock of ``zone``; none raises.

    Outside of ``CALENDAR``, and where the zone does not know the clock of a time, it is the day in UTC.

    >>> day_on_clock(np.datetime64("2050-06-30T22:30:00"), datetime.timezone(datetime.timedelta(hours=2)))
    datetime.date(2050, 7, 1)
    """
    day = second.astype("datetime64[D]")
    if CALENDAR[0] <= day <= CALENDAR[1]:
        with contextlib.suppress(Exception):  # a zone that does not know the clock of the cell
            time: datetime.datetime = second.astype("datetime64[s]").item()
            return time.replace(tzinfo=datetime.UTC).astimezone(zone).date()
    return day
