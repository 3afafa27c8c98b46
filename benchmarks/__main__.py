"""``python -m benchmarks [NAME ...]``: run some benchmarks, or all of them."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = ("reference", "memory", "startup", "mechanisms", "planner")


def main(names: list[str]) -> int:
    for name in names or NAMES:
        if name not in NAMES:
            print(f"Unknown benchmark {name!r}. Choose from: {', '.join(NAMES)}.", file=sys.stderr)
            return 2
    for name in names or NAMES:
        print(f"\n== {name}", flush=True)
        import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
