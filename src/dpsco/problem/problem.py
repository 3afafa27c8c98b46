"""The problem: what is minimised, over which set, on rows of which size. All of it is public."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsco.errors import InvalidArgument, one_of, positive, positive_integer
from dpsco.json_files import jsonable
from dpsco.problem.domains import DOMAINS, Domain, Product
from dpsco.problem.losses import LOSSES, Loss

__all__ = ["Problem"]

_LARGEST_NORM = 1e100


@dataclass(frozen=True)
class Problem:
    """Minimise E f(x, d) over x in ``domain``, for rows d of ``dimension`` features.

    Parameters
    ----------
    loss : Loss
    domain : Domain
        The set that contains x.
    dimension : int
        Number of features per row.
    feature_norm : float
        Public bound on the l2 norm of a row's features.
    intercept : bool
        If True, every row gets one more feature, constantly 1. Its coefficient is the last one in x (per class).
        L and M then refer to rows of norm sqrt(feature_norm^2 + 1).

    Raises
    ------
    InvalidArgument
        If an argument is not valid or the domain is not a subset of R^parameters.

    Examples
    --------
    >>> from dpsco.problem.losses import Logistic
    >>> from dpsco.problem.domains import L2Ball
    >>> problem = Problem(loss=Logistic(), domain=L2Ball(radius=10.0), dimension=50)
    >>> problem.lipschitz, problem.smoothness
    (1.0, 0.25)
    """

    loss: Loss
    domain: Domain
    dimension: int
    feature_norm: float = 1.0
    intercept: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss):
            raise InvalidArgument(f"Expected loss to be one of dpsco's losses, such as Logistic(), got {self.loss!r}.")
        if not isinstance(self.domain, Domain):
            raise InvalidArgument(
                f"Expected domain to be one of dpsco's, such as L2Ball(radius=10.0), got {self.domain!r}."
            )
        dimension = positive_integer("dimension", self.dimension, "It is the number of features.")
        norm = positive("feature_norm", self.feature_norm, "It bounds the l2 norm of a row; it must be public.")
        if norm > _LARGEST_NORM:
            raise InvalidArgument(
                f"Expected feature_norm={norm:.3g} <= {_LARGEST_NORM:g}: the loss's smoothness grows with its square. "
                "Scale the rows."
            )
        object.__setattr__(self, "dimension", dimension)
        object.__setattr__(self, "feature_norm", norm)
        if not isinstance(self.intercept, bool):
            raise InvalidArgument(f"Expected intercept={self.intercept!r} to be True or False.")
        self.domain.check(self.parameters)
        if self.domain.is_point(self.parameters):
            raise InvalidArgument(
                f"Expected domain={self.domain!r} to have more than one point for p={self.parameters}. State another: "
                "there is nothing to learn on one point."
            )

    @property
    def parameters(self) -> int:
        """Length p of the learned vector x."""
        return (self.dimension + self.intercept) * self.loss.outputs

    @property
    def row_norm(self) -> float:
        """Bound on the norm of a row, including the intercept's 1."""
        return math.hypot(self.feature_norm, 1.0) if self.intercept else self.feature_norm

    @property
    def lipschitz(self) -> float:
        """Bound L on the norm of a row's gradient, for rows within feature_norm."""
        return self.loss.lipschitz(self.row_norm, self.radius)

    @property
    def smoothness(self) -> float:
        """Bound M on the norm of a row's Hessian, for rows within feature_norm."""
        return self.loss.smoothness(self.row_norm)

    @property
    def radius(self) -> float:
        """Largest ||x|| over the domain; inf if it is unbounded."""
        return self.domain.radius_in(self.parameters)

    @property
    def diameter(self) -> float:
        """Largest distance between two points of the domain; inf if it is unbounded."""
        return self.domain.diameter_in(self.parameters)

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as JSON values; ``from_dict`` reads it back."""
        return {
            "loss": _to_dict(self.loss),
            "domain": _to_dict(self.domain),
            "dimension": self.dimension,
            "feature_norm": self.feature_norm,
            "intercept": self.intercept,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Problem:
        """Rebuild a problem from ``to_dict``. Raise InvalidArgument if fields are missing, unknown or invalid."""
        loss = _from_dict(data["loss"], LOSSES, "loss")
        if set(data) != {field.name for field in dataclasses.fields(cls)}:
            raise InvalidArgument("Not a problem: fields are missing or unknown, or the version differs.")
        return cls(loss, _domain(data["domain"]), data["dimension"], data["feature_norm"], data["intercept"])


def _to_dict(part: Loss | Domain) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": part.kind}
    for field in dataclasses.fields(part):  # type: ignore[arg-type]
        value = getattr(part, field.name)
        if field.name == "weights" and not value:  # most losses have none
            continue
        fields[field.name] = [_to_dict(p) for p in value] if field.name == "parts" else jsonable(value)
    return fields


def _domain(data: Mapping[str, Any]) -> Domain:
    if data.get("kind") == Product.kind:
        return Product(tuple(_domain(part) for part in data["parts"]), tuple(data["sizes"]))
    domain: Domain = _from_dict(data, DOMAINS, "domain")
    return domain


def _from_dict(data: Mapping[str, Any], kinds: Mapping[str, Any], name: str) -> Any:
    kind = kinds[one_of(name, data.get("kind"), kinds)]
    return kind(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key != "kind"}
    )
