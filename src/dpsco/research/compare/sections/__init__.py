"""The sections of a comparison. Each lists its tuning tasks and measures them into one dictionary."""
