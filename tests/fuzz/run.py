"""``python -m tests.fuzz.run TARGET SECONDS FOLDER``: coverage-guided fuzzing of one reader with atheris.

Exits with 0 when the time is up, otherwise with the traceback and the input in FOLDER/crash-*.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["dpsco", "tests.fuzz.targets"]):
    from tests.fuzz.targets import TARGETS, attempt

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2, 1e-300, 1e300, -0.5, 10**30, "", "inf", "nan", "x", "\ud800", [], {}, [[]],
    ["a", 1], {"kind": "softmax", "classes": 10**9}, "logistic", "tree", "replace",
]  # fmt: skip


def changed(value: Any, rng: random.Random) -> Any:
    """``value`` with something in it exchanged, dropped or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != name} | (
                {rng.choice(["x", name + "2"]): 1} if rng.random() < 0.5 else {}
            )
        return {**value, name: changed(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], changed(value[place], rng), *value[place + (rng.random() < 0.9) :]]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.5:
        return value * rng.choice([-1, 0, 2, 0.5, 1e10, 1e-10]) + rng.choice([0, 1, -1])
    return rng.choice(ODD)


def mutate(data: bytes, largest: int, seed: int) -> bytes:
    """Half the time in the tree of the JSON text, half the time in its bytes."""
    rng = random.Random(seed)  # noqa: S311
    if rng.random() < 0.5:
        try:
            return json.dumps(changed(json.loads(data), rng)).encode("utf-8", "surrogatepass")[:largest]
        except (ValueError, RecursionError, OverflowError):
            pass
    return bytes(atheris.Mutate(data, largest))


def main() -> None:
    name, seconds, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    corpus, work = folder / "corpus", folder / "work"
    corpus.mkdir(parents=True)
    work.mkdir()
    for k, seed in enumerate(TARGETS[name].seeds()):
        (corpus / f"seed-{k}").write_bytes(seed)
    options = {"custom_mutator": mutate} if TARGETS[name].structured else {}
    limits = [
        f"-max_total_time={seconds}",
        "-timeout=120",
        "-rss_limit_mb=0",  # the largest size of the process that started this one would count
        "-malloc_limit_mb=2000",
        f"-artifact_prefix={folder}/",
        "-verbosity=1",
    ]
    atheris.Setup(
        [sys.argv[0], *limits, "-max_len=65536", str(corpus)],
        lambda data: attempt(name, data, work) and None,
        **options,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
