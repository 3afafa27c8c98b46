"""A check of all rows that runs in a thread of its own, beside work that does not wait for its outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["CheckBeside"]


class CheckBeside:
    """Runs ``check()`` in a thread from now on.

    Parameters
    ----------
    check : callable
        Raises an error if the rows do not fit.

    Guarantee: ``wait`` returns after the check has ended, and raises what it raised. Whoever uses the rows calls it
    before anything that depends on them leaves the process.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check, self._error = check, list[BaseException]()
        self._thread = threading.Thread(target=self._run, name="dpsco-check", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._check()
        except BaseException as error:  # raised by ``wait``
            self._error.append(error)

    def wait(self) -> None:
        """Wait for the end of the check, and raise its error if it has one."""
        self._thread.join()
        if self._error:
            raise self._error[0]
