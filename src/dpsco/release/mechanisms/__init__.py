"""Continual-counting mechanisms by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dpsco.algorithm_1 import Z_STEPS
from dpsco.errors import InvalidArgument, one_of, positive, positive_integer
from dpsco.release.mechanisms.blt import BufferedToeplitz
from dpsco.release.mechanisms.buffered_workload import BufferedWorkload
from dpsco.release.mechanisms.dense import Dense
from dpsco.release.mechanisms.honaker import Honaker
from dpsco.release.mechanisms.independent import Independent
from dpsco.release.mechanisms.protocol import Draw, Mechanism, NoiseBuffers
from dpsco.release.mechanisms.smooth import Smooth
from dpsco.release.mechanisms.toeplitz import NormalisedSquareRoot, SquareRoot
from dpsco.release.mechanisms.tree import Tree
from dpsco.release.mechanisms.workload import Workload

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
    "NormalisedSquareRoot",
    "Smooth",
    "SquareRoot",
    "Tree",
    "Workload",
    "mechanism",
]

LARGEST_FIT = 512
"""Longest horizon for which a dense strategy is fitted; the fit takes less than 2 s."""

MEMORY = 2**30
"""Default limit on the noise state, in bytes, for ``"auto"`` and ``"workload"``."""


def mechanism(
    name: str,
    *,
    horizon: int,
    dimension: int | None = None,
    memory: float | None = None,
    z_step: str = "halved",
    **options: Any,
) -> Mechanism:
    """Build the mechanism called ``name`` for ``horizon`` rounds.

    Parameters
    ----------
    name : {"tree", "honaker", "smooth", "sqrt", "normalised-sqrt", "blt", "dense", "workload", "independent", "auto"}
        "auto" is "workload".
    horizon : int
        Number of rounds T.
    dimension : int, optional
        Number of parameters p, by default 1. With ``memory`` it selects the form of "workload": dense if T <= 512
        and T p-vectors fit into ``memory``, else buffered.
    memory : float, optional
        Limit on the noise state in bytes, 1 GiB by default.
    z_step : {"halved", "listed"}
        The method's z-step. Only "workload" uses it; every mechanism accepts it.
    **options
        Options of the mechanism itself, such as ``prior`` and ``ridge`` of "workload".

    Returns
    -------
    Mechanism

    Raises
    ------
    InvalidArgument
        If a name or option is unknown or a number is out of range.

    Examples
    --------
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
    room = positive("memory", MEMORY if memory is None else memory, "It limits the noise state, in bytes.")
    build = MECHANISMS["workload" if name == "auto" else name]
    if build is Workload and ("buffers" in options or horizon > LARGEST_FIT or 8.0 * horizon * (dimension or 1) > room):
        build = BufferedWorkload
    known = _options(build)
    unknown = sorted(set(options) - known)
    if unknown:
        own = sorted(known - {"horizon", "z_step"})
        raise InvalidArgument(
            f"Unknown {'option' if len(unknown) == 1 else 'options'} {', '.join(unknown)} for mechanism={name!r}. "
            + (f"It takes: {', '.join(own)}." if own else "It takes none.")
        )
    if "z_step" in known:
        options["z_step"] = z_step
    return build(horizon, **options)


@lru_cache(maxsize=16)
def _options(build: Callable[..., Mechanism]) -> frozenset[str]:
    """Return the names of a mechanism's arguments."""
    return frozenset(inspect.signature(build).parameters)


MECHANISMS: dict[str, Callable[..., Mechanism]] = {
    kind.name: kind
    for kind in (
        BufferedToeplitz,
        Dense,
        Honaker,
        Independent,
        NormalisedSquareRoot,
        Smooth,
        SquareRoot,
        Tree,
        Workload,
    )
}
"""Mechanisms by name. "workload" is the dense form; ``mechanism`` replaces it with the buffered form if needed."""
