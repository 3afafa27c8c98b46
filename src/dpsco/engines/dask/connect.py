"""A cluster to work with: one that is there, or workers on this machine for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from dpsco.errors import ClusterError, ExtraMissing, positive_integer

__all__ = ["cluster_at", "installed", "local_cluster"]

_PATIENCE = 30.0
_OLDEST = (2024, 9)
_QUIET = {
    # Rows are held by workers in memory. Spilled, they would lie on disks that nobody thinks of.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    # Dask has workers give memory back at once; a shard is as large as the last, and taking it anew is half the time.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 512 << 20,
    "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 32 << 20,
    # Dask's profiler walks the stacks of all threads a hundred times per second, for a dashboard that is not there.
    "distributed.worker.profile.enabled": False,
    # So do its monitors and its test of how late an event loop is; together they took 4 % of two processors.
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.memory.monitor-interval": "500ms",
    "distributed.scheduler.work-stealing-interval": "250ms",
    # It takes the second copy of the oracle from a worker every two seconds, which then fetches it again.
    "distributed.scheduler.active-memory-manager.start": False,
    # A worker that died starts anew. On a busy machine that takes longer than the 15 s after which Dask gives it up.
    "distributed.deploy.lost-worker-timeout": "300s",
}


@contextmanager
def cluster_at(address: str) -> Iterator[Any]:
    """Connect to a scheduler that runs already.

    Parameters
    ----------
    address : str
        ``tls://...``, or ``tcp://...`` in a closed network. Certificates are those of Dask's own configuration
        (``distributed.comm.tls``).

    Returns
    -------
    context manager of distributed.Client

    Raises
    ------
    ClusterError
        If there is no scheduler, or no worker.
    """
    distributed = installed()
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError):
        raise ClusterError(
            f"There is no Dask scheduler at {address!r}. Check the address and its certificates."
        ) from None
    try:
        _wait(client)
        yield client
    finally:
        client.close()


@contextmanager
def local_cluster(workers: int, *, threads: int = 3) -> Iterator[Any]:
    """Start worker processes on this machine, bound to 127.0.0.1, without a dashboard.

    Parameters
    ----------
    workers : int
        Number of processes.
    threads : int
        Threads per process. Of three, two can read while one sums.

    Returns
    -------
    context manager of distributed.Client

    A script needs ``if __name__ == "__main__":`` around it, since worker processes import it.
    """
    positive_integer("workers", workers, "It is the number of worker processes.")
    distributed = installed()
    import dask

    with (
        dask.config.set(_QUIET),
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        _wait(client)
        yield client


def _wait(client: Any) -> None:
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        raise ClusterError(f"The scheduler has had no worker for {_PATIENCE:.0f} s. Start workers first.") from None


def installed() -> Any:
    """Import ``distributed``; raise ``ExtraMissing`` if it is not installed."""
    try:
        import distributed
    except ImportError:
        raise ExtraMissing("A cluster needs Dask: install dpsco[dask].") from None
    found = version("distributed")
    if tuple(int(part) for part in found.split(".")[:2]) < _OLDEST:
        raise ExtraMissing(
            f"A cluster needs distributed 2024.9 or newer; {found} listens on all addresses of the "
            "machine. Install dpsco[dask]."
        )
    return distributed
