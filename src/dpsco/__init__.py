"""dpsco: differentially private training in one pass and very few adaptive rounds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpsco.version import __version__

if TYPE_CHECKING:
    from dpsco.accounting.account import Account
    from dpsco.accounting.budget import Budget
    from dpsco.accounting.gaussian import compose, delta_of, epsilon_of, group, mu_of
    from dpsco.clipping import LinearOracle, PerExample
    from dpsco.errors import (
        AccountError,
        CheckpointError,
        DataError,
        DpscoError,
        ExtraMissing,
        HorizonError,
        IntervalError,
        InvalidArgument,
        LedgerError,
        SecondPassError,
    )
    from dpsco.estimators import (
        PrivacyLeakWarning,
        PrivateLinearRegression,
        PrivateLinearSVC,
        PrivateLogisticRegression,
    )
    from dpsco.inference import Inference
    from dpsco.methods import (
        DPFTRL,
        DPSGD,
        METHODS,
        AcceleratedGD,
        AcceleratedSGD,
        AcceleratedSRGD,
        DPNewton,
        LocalizedAccelerated,
        ObjectivePerturbation,
        OnlineToBatch,
        PhasedERM,
        PhasedSGD,
        PoissonDPSGD,
        SnowballSGD,
        SufficientStatistics,
        Surveyed,
        SurveyedObjective,
        UnacceleratedSRGD,
    )
    from dpsco.planning import Plan, Prediction
    from dpsco.planning.choose import plan
    from dpsco.planning.geometry import Geometry
    from dpsco.planning.network_plan import plan_network
    from dpsco.planning.public_geometry import public_geometry
    from dpsco.problem import (
        Box,
        CustomLoss,
        Everything,
        HalfSpace,
        Huber,
        L2Ball,
        Logistic,
        MulticlassHinge,
        Problem,
        Product,
        Simplex,
        SmoothedHinge,
        Softmax,
        Squared,
    )
    from dpsco.release.mechanisms import Mechanism, mechanism
    from dpsco.rows import Stream, stream
    from dpsco.rows.public_columns import PublicColumns
    from dpsco.run import Diagnostics, Model, Result, Round, train
    from dpsco.run.report import PrivacyReport

__all__ = [
    "DPFTRL",
    "DPSGD",
    "METHODS",
    "AcceleratedGD",
    "AcceleratedSGD",
    "AcceleratedSRGD",
    "Account",
    "AccountError",
    "Box",
    "Budget",
    "CheckpointError",
    "CustomLoss",
    "DPNewton",
    "DataError",
    "Diagnostics",
    "DpscoError",
    "Everything",
    "ExtraMissing",
    "Geometry",
    "HalfSpace",
    "HorizonError",
    "Huber",
    "Inference",
    "IntervalError",
    "InvalidArgument",
    "L2Ball",
    "LedgerError",
    "LinearOracle",
    "LocalizedAccelerated",
    "Logistic",
    "Mechanism",
    "Model",
    "MulticlassHinge",
    "ObjectivePerturbation",
    "OnlineToBatch",
    "PerExample",
    "PhasedERM",
    "PhasedSGD",
    "Plan",
    "PoissonDPSGD",
    "Prediction",
    "PrivacyLeakWarning",
    "PrivacyReport",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "Problem",
    "Product",
    "PublicColumns",
    "Result",
    "Round",
    "SecondPassError",
    "Simplex",
    "SmoothedHinge",
    "SnowballSGD",
    "Softmax",
    "Squared",
    "Stream",
    "SufficientStatistics",
    "Surveyed",
    "SurveyedObjective",
    "UnacceleratedSRGD",
    "__version__",
    "compose",
    "delta_of",
    "epsilon_of",
    "group",
    "mechanism",
    "mu_of",
    "plan",
    "plan_network",
    "public_geometry",
    "stream",
    "train",
]

_HOMES = {
    "accounting.account": ("Account",),
    "accounting.budget": ("Budget",),
    "accounting.gaussian": ("compose", "delta_of", "epsilon_of", "group", "mu_of"),
    "clipping": ("LinearOracle", "PerExample"),
    "errors": (
        "AccountError",
        "CheckpointError",
        "DataError",
        "DpscoError",
        "ExtraMissing",
        "HorizonError",
        "IntervalError",
        "InvalidArgument",
        "LedgerError",
        "SecondPassError",
    ),
    "inference": ("Inference",),
    "methods": (
        "DPFTRL",
        "DPSGD",
        "METHODS",
        "AcceleratedGD",
        "AcceleratedSGD",
        "AcceleratedSRGD",
        "DPNewton",
        "LocalizedAccelerated",
        "ObjectivePerturbation",
        "OnlineToBatch",
        "PhasedERM",
        "PhasedSGD",
        "PoissonDPSGD",
        "SnowballSGD",
        "SufficientStatistics",
        "Surveyed",
        "SurveyedObjective",
        "UnacceleratedSRGD",
    ),
    "planning": ("Plan", "Prediction"),
    "planning.choose": ("plan",),
    "planning.geometry": ("Geometry",),
    "planning.network_plan": ("plan_network",),
    "planning.public_geometry": ("public_geometry",),
    "problem": (
        "Box",
        "CustomLoss",
        "Everything",
        "HalfSpace",
        "Huber",
        "L2Ball",
        "Logistic",
        "MulticlassHinge",
        "Problem",
        "Product",
        "Simplex",
        "SmoothedHinge",
        "Softmax",
        "Squared",
    ),
    "release.mechanisms": ("Mechanism", "mechanism"),
    "rows": ("Stream", "stream"),
    "rows.public_columns": ("PublicColumns",),
    "run": ("Diagnostics", "Model", "Result", "Round", "train"),
    "run.report": ("PrivacyReport",),
    "estimators": ("PrivacyLeakWarning", "PrivateLinearRegression", "PrivateLinearSVC", "PrivateLogisticRegression"),
}
"""Where the public names live. A name is loaded on first use, so that commands start quickly."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_ADAPTERS = {"jax", "torch"}
_PACKAGES = {home.partition(".")[0] for home in _HOMES} | {"audit", "datasets", "engines", "pages", "query", "research"}


def __getattr__(name: str) -> Any:
    """Load a public name, an adapter (JAX, PyTorch) or a package on first use."""
    if name in _HOME_OF:
        value = getattr(import_module(f"dpsco.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    if name in _ADAPTERS | _PACKAGES:
        return import_module(f"dpsco.{name}")
    raise AttributeError(f"module 'dpsco' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, those that load on first use included."""
    return sorted({*__all__, *_ADAPTERS})
