"""Training algorithms by name, all on the ask / answer / release / tell waist.

Every method of the paper's Table 1 is here but one. ReSQue (Carmon et al. 2023) is left out: it minimises a
Gaussian-convolved objective with a reweighted estimator that is valid only in a small ball, inside a loop of ball
acceleration with line search and a private subsolver; it is made for losses that are not smooth, and no implementation
of it is known to compare with.
"""

from __future__ import annotations

from dpsco.algorithms.accelerated_gd import AcceleratedGD
from dpsco.algorithms.accelerated_sgd import AcceleratedSGD
from dpsco.algorithms.accelerated_srgd import AcceleratedSRGD
from dpsco.algorithms.base import Algorithm, Schedule
from dpsco.algorithms.dp_ftrl import DPFTRL
from dpsco.algorithms.dp_sgd import DPSGD
from dpsco.algorithms.dp_sgd_poisson import PoissonDPSGD
from dpsco.algorithms.localized_accelerated import LocalizedAccelerated
from dpsco.algorithms.online_to_batch import OnlineToBatch
from dpsco.algorithms.phased_erm import PhasedERM
from dpsco.algorithms.phased_sgd import PhasedSGD
from dpsco.algorithms.snowball_sgd import SnowballSGD
from dpsco.algorithms.unaccelerated_srgd import UnacceleratedSRGD

__all__ = [
    "ALGORITHMS",
    "DPFTRL",
    "DPSGD",
    "AcceleratedGD",
    "AcceleratedSGD",
    "AcceleratedSRGD",
    "Algorithm",
    "LocalizedAccelerated",
    "OnlineToBatch",
    "PhasedERM",
    "PhasedSGD",
    "PoissonDPSGD",
    "Schedule",
    "SnowballSGD",
    "UnacceleratedSRGD",
]

ALGORITHMS: dict[str, type[Algorithm]] = {
    algorithm.name: algorithm
    for algorithm in (
        AcceleratedSRGD,
        UnacceleratedSRGD,
        AcceleratedSGD,
        AcceleratedGD,
        DPSGD,
        PoissonDPSGD,
        DPFTRL,
        SnowballSGD,
        PhasedSGD,
        OnlineToBatch,
        PhasedERM,
        LocalizedAccelerated,
    )
}
