"""Oracles of PyTorch models: per-example differences clipped without being formed, where a rule exists."""
