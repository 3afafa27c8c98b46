"""Benchmarks: every figure in the docs names the command here that prints it."""
