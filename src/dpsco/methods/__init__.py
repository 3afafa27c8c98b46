"""Training methods by class and by name, each by ask, answer, release and tell.

Every method of the paper's Table 1 is here, and what people use on rows at rest. ReSQue (Carmon et al. 2023), which is
not in the table, is not implemented: it is made for losses that are not smooth, its estimator holds only in a small
ball around a moving centre, and no implementation of its outer loop is public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dpsco.clipping.low_rank_map import map_from_dict
from dpsco.errors import InvalidArgument, one_of
from dpsco.methods.accelerated_gd import AcceleratedGD
from dpsco.methods.accelerated_sgd import AcceleratedSGD
from dpsco.methods.accelerated_srgd import AcceleratedSRGD
from dpsco.methods.dp_ftrl import DPFTRL
from dpsco.methods.dp_newton import DPNewton
from dpsco.methods.dp_sgd import DPSGD
from dpsco.methods.dp_sgd_poisson import PoissonDPSGD
from dpsco.methods.in_geometry import InGeometry
from dpsco.methods.localized_accelerated import LocalizedAccelerated
from dpsco.methods.method import Method
from dpsco.methods.objective_perturbation import ObjectivePerturbation
from dpsco.methods.online_to_batch import OnlineToBatch
from dpsco.methods.phased_erm import PhasedERM
from dpsco.methods.phased_sgd import PhasedSGD
from dpsco.methods.schedule import Schedule
from dpsco.methods.snowball_sgd import SnowballSGD
from dpsco.methods.sufficient_statistics import SufficientStatistics
from dpsco.methods.surveyed import Surveyed
from dpsco.methods.surveyed_objective import SurveyedObjective
from dpsco.methods.unaccelerated_srgd import UnacceleratedSRGD

__all__ = [
    "DPFTRL",
    "DPSGD",
    "METHODS",
    "AcceleratedGD",
    "AcceleratedSGD",
    "AcceleratedSRGD",
    "DPNewton",
    "InGeometry",
    "LocalizedAccelerated",
    "Method",
    "ObjectivePerturbation",
    "OnlineToBatch",
    "PhasedERM",
    "PhasedSGD",
    "PoissonDPSGD",
    "Schedule",
    "SnowballSGD",
    "SufficientStatistics",
    "Surveyed",
    "SurveyedObjective",
    "UnacceleratedSRGD",
    "method_from_dict",
]

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
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
        ObjectivePerturbation,
        SufficientStatistics,
        DPNewton,
    )
}


def method_from_dict(data: Mapping[str, Any]) -> Method:
    """Return the method that ``Method.to_dict`` wrote.

    Parameters
    ----------
    data : mapping
        Name and hyperparameters.

    Returns
    -------
    Method

    Raises
    ------
    InvalidArgument
        If a field is missing, extra, or no possible value.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise InvalidArgument("Not a method: expected its name and its hyperparameters.")
    if data["name"] == InGeometry.name:
        if set(data) != {"name", "map", "later", "source"}:
            raise InvalidArgument(f"Not a method {InGeometry.name!r}: fields are missing, extra or of another version.")
        return InGeometry(map=map_from_dict(data["map"]), later=method_from_dict(data["later"]), source=data["source"])
    known: dict[str, type[Method]] = {**METHODS, **{kind.name: kind for kind in (Surveyed, SurveyedObjective)}}
    kind = known[one_of("method", data["name"], known)]
    given = {name: math.inf if value == "inf" else value for name, value in data.items() if name != "name"}
    if set(given) != {field.name for field in fields(kind)}:
        raise InvalidArgument(f"Not a method {kind.name!r}: fields are missing, extra or of another version.")
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"Not a method {kind.name!r}: {error}.") from None
