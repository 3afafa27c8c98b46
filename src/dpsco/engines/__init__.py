"""Where the rows are: a Dask cluster or a Flower federation."""
