"""Compiled kernels of linear models: numba, imported on first use, cached on disk, free of the interpreter lock.

The cache of a kernel knows its own file only: after a change to ``simd.py`` or ``slopes.py`` remove the ``*.nbi`` files
beside them (a new installation has new ones).
"""
