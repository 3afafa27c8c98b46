"""Training algorithms by name, all on the ask / answer / release / tell waist.

Every method of the paper's Table 1 is here. ReSQue (Carmon et al. 2023), which is not in the table, is not implemented:
it is made for losses that are not smooth, its estimator holds only in a small ball around a moving centre, and no
implementation of its outer loop is public.
"""

from __future__ import annotations

from dpsco.methods.accelerated_gd import AcceleratedGD
from dpsco.methods.accelerated_sgd import AcceleratedSGD
from dpsco.methods.accelerated_srgd import AcceleratedSRGD
from dpsco.methods.dp_ftrl import DPFTRL
from dpsco.methods.dp_sgd import DPSGD
from dpsco.methods.dp_sgd_poisson import PoissonDPSGD
from dpsco.methods.localized_accelerated import LocalizedAccelerated
from dpsco.methods.method import Algorithm, Schedule
from dpsco.methods.online_to_batch import OnlineToBatch
from dpsco.methods.phased_erm import PhasedERM
from dpsco.methods.phased_sgd import PhasedSGD
from dpsco.methods.snowball_sgd import SnowballSGD
from dpsco.methods.unaccelerated_srgd import UnacceleratedSRGD

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
