"""Compiled kernels of linear models. numba is imported on first use and caches on disk."""
