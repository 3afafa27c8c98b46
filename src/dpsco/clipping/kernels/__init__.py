"""Compiled kernels of linear models: numba, imported on first use, cached on disk, free of the interpreter lock."""
