"""Continual-counting mechanisms by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dpsco.errors import InvalidArgument, one_of, positive, positive_integer
from dpsco.release.mechanisms.base import Draw, Mechanism, NoiseBuffers
from dpsco.release.mechanisms.blt import BufferedToeplitz
from dpsco.release.mechanisms.buffered_workload import BufferedWorkload
from dpsco.release.mechanisms.dense import Dense
from dpsco.release.mechanisms.honaker import Honaker
from dpsco.release.mechanisms.independent import Independent
from dpsco.release.mechanisms.smooth import Smooth
from dpsco.release.mechanisms.toeplitz import SquareRoot
from dpsco.release.mechanisms.tree import Tree
from dpsco.release.mechanisms.workload import Z_STEPS, Workload

__all__ = [
    "LARGEST_FIT",
    "MECHANISMS",
    "BufferedToeplitz",
    "BufferedWorkload",
    "Dense",
    "Draw",
    "Honaker",
    "Independent",
    "Mechanism",
    "NoiseBuffers",
    "Smooth",
    "SquareRoot",
    "Tree",
    "Workload",
    "mechanism",
]

LARGEST_FIT = 512
"""Longest horizon a dense strategy is fitted for: the fit takes under 2 s."""

MEMORY = 2**30
"""Bytes of noise state that ``"auto"`` allows itself when nothing else is said."""


def mechanism(
    name: str,
    *,
    horizon: int,
    dimension: int | None = None,
    memory: float | None = None,
    z_step: str = "halved",
    **options: Any,
) -> Mechanism:
    """The mechanism called ``name`` for ``horizon`` rounds.

    ``dimension`` (p) and ``memory`` (bytes of noise state, 1 GiB by default) steer "auto" and the form of "workload":
    dense while its T p-vectors fit and T <= 512, buffered otherwise. ``z_step`` is the algorithm's and matters
    to "workload" alone; any mechanism takes it. Further options are the mechanism's own.

    >>> round(mechanism("sqrt", horizon=64).max_error, 3)
    2.389
    >>> mechanism("auto", horizon=64, dimension=50), mechanism("auto", horizon=64, dimension=10**8).memory
    (Workload(horizon=64), 2)
    """
    one_of("mechanism", name, [*MECHANISMS, "auto"])
    one_of("z_step", z_step, Z_STEPS)
    horizon = positive_integer("horizon", horizon, "It is the number of rounds T.")
    if dimension is not None:
        dimension = positive_integer("dimension", dimension, "It is the number of parameters p.")
    room = positive("memory", MEMORY if memory is None else memory, "It is the room for noise state, in bytes.")
    build = MECHANISMS["workload" if name == "auto" else name]
    if build is Workload and ("buffers" in options or horizon > LARGEST_FIT or 8.0 * horizon * (dimension or 1) > room):
        build = BufferedWorkload
    known = inspect.signature(build).parameters
    unknown = sorted(set(options) - set(known))
    if unknown:
        own = sorted(set(known) - {"horizon", "z_step"})
        raise InvalidArgument(
            f"Unknown {'option' if len(unknown) == 1 else 'options'} {', '.join(unknown)} for mechanism={name!r}. "
            + (f"It takes: {', '.join(own)}." if own else "It takes none.")
        )
    if "z_step" in known:
        options["z_step"] = z_step
    return build(horizon, **options)


MECHANISMS: dict[str, Callable[..., Mechanism]] = {
    kind.name: kind for kind in (BufferedToeplitz, Dense, Honaker, Independent, Smooth, SquareRoot, Tree, Workload)
}
"""Mechanisms by name; "workload" stands for its dense form, which ``mechanism`` trades for the buffered one."""
