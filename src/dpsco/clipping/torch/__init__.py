"""Oracle of a PyTorch model: clips per-example differences without forming them, where a rule exists."""
