"""Benchmarks. Every figure in the docs names the command that prints it."""
