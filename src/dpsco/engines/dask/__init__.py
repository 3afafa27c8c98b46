"""Training on a cluster: the same algorithm and the same guarantee, with Dask's workers as the oracle.

    rows = ParquetRows("s3://bucket/people", Labels("income", ("low", "high")), columns)
    with local_cluster(4) as client:                     # or distributed.Client("tls://scheduler:8786")
        result = train(plan, rows, client)

Trust: driver, scheduler and workers see rows or un-noised sums and are inside the boundary that the guarantee is drawn
around. What leaves the driver has been through ``release``.
"""

from dpsco.engines.dask.connect import cluster_at, local_cluster
from dpsco.engines.dask.run import train
from dpsco.engines.dask.stream import ParquetRows

__all__ = ["ParquetRows", "cluster_at", "local_cluster", "train"]
