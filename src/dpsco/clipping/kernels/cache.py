"""Where compiled code is kept, and for how long: a change to any source renews the cache of all.

numba keeps it beside the sources or in the user's cache folder. Where neither can be written (a read-only installation
without a home), every process compiles for itself.

numba looks at a function's own file and not at those it calls into. So a digest of all sources lies beside the cache,
and if it is another one, what was compiled is forgotten before anything of it is loaded.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from dpsco.clipping import bound as clipping
from dpsco.json_files import write_atomic

__all__ = ["can_cache", "renew"]

_STAMP = "dpsco-kernels.sha256"


def can_cache() -> bool:
    """Whether numba finds a folder that it can write compiled code to."""
    from numba import njit

    try:
        njit(_nothing, cache=True)
    except RuntimeError:  # "no locator available"
        return False
    return True


def _nothing() -> None: ...


def renew(folder: str | None) -> None:
    """Forget the kernels cached in ``folder`` unless they were compiled from the sources of today."""
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
    except OSError:  # a folder that cannot be written holds what its owner has put there
        return
