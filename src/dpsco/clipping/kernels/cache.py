"""numba's disk cache: where it is, and its invalidation. A change to any source file discards all compiled kernels.

numba stores compiled code beside the sources or in the user's cache folder. If neither can be written (a read-only
installation without a home), every process compiles for itself.

numba checks only a function's own file, not the files of the functions it calls. A digest of all sources is therefore
stored beside the cache. If it differs, the compiled code is deleted before any of it is loaded.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from dpsco.clipping import bound as clipping
from dpsco.json_files import write_atomic

__all__ = ["can_cache", "renew"]

_STAMP = "dpsco-kernels.sha256"


def can_cache() -> bool:
    """Whether numba finds a folder to which it can write compiled code."""
    from numba import njit

    try:
        njit(_nothing, cache=True)
    except RuntimeError:  # "no locator available"
        return False
    return True


def _nothing() -> None: ...


def renew(folder: str | None) -> None:
    """Delete the kernels cached in ``folder`` unless they were compiled from the current sources."""
    here = Path(__file__).parent
    sources = sorted(here.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (*sources, Path(clipping.__file__)))).hexdigest()
    if folder is None:  # nothing is cached
        return
    stamp = Path(folder) / _STAMP
    try:
        if stamp.read_text() == digest:
            return
    except OSError:
        pass
    try:
        for path in sources:
            for index in Path(folder).glob(f"{path.stem}.*.nbi"):
                index.unlink(missing_ok=True)
        write_atomic(stamp, digest.encode())
    except OSError:  # a read-only folder cannot be updated
        return
