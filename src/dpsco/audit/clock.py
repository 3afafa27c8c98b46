"""How long an audit may take, and what it is doing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """Runs out after ``seconds``; ``say`` tells ``progress`` what goes on, at most five times per second."""

    def __init__(self, seconds: float = math.inf, progress: Callable[[str], None] | None = None) -> None:
        self._end = time.monotonic() + seconds
        self._progress = progress
        self._last = -math.inf

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._end

    def part(self, share: float) -> Clock:
        """Return a clock for ``share`` of the time that is left."""
        return Clock(share * (self._end - time.monotonic()), self._progress)

    def say(self, text: str) -> None:
        """Show ``text`` to whoever waits."""
        now = time.monotonic()
        if self._progress is not None and now > self._last + 0.2:
            self._last = now
            self._progress(text)
