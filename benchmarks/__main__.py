"""``python -m benchmarks``: all of them. ``python -m benchmarks NAME [options]``: one, with options of its own."""

from __future__ import annotations

import runpy
import sys

NAMES = (
    "reference",
    "memory",
    "startup",
    "mechanisms",
    "planner",
    "speed",
    "files",
    "adult",
    "rates",
    "federation",
    "cluster",
    "ghost_jax",
    "speed_peers",
    "ghost_torch",
)


def main(arguments: list[str]) -> int:
    chosen = arguments[:1] or list(NAMES)
    if chosen[0] not in NAMES:
        print(f"Unknown benchmark {chosen[0]!r}. Choose from: {', '.join(NAMES)}.", file=sys.stderr)
        return 2
    for name in chosen:
        print(f"\n== {name}", flush=True)
        sys.argv = [name, *arguments[1:]]
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
