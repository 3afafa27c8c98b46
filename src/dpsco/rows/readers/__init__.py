"""Readers of files: CSV, Parquet and Arrow IPC, libsvm, npz."""
