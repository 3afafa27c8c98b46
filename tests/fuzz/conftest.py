"""The fuzzers' own program runs by itself, with an extra that the fast suite does not install."""

collect_ignore = ["run.py"]
