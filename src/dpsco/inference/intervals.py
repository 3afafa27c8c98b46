"""Standard errors, intervals and the table that statisticians know."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from dpsco.errors import DataError, InvalidArgument, one_of
from dpsco.problem import Logistic, Loss, Softmax
from dpsco.query import Array

__all__ = ["Inference"]

PARTS = ("total", "sampling", "privacy", "optimisation")


@dataclass(frozen=True, eq=False)
class Inference:
    """How sure a private model is, in its own units. From released values alone: private and publishable.

    Parameters of the model are ordered as (coefficients, intercept), class after class for softmax. Coefficients of
    softmax are deviations from their mean over the classes: the model does not depend on that mean.

    Parameters
    ----------
    estimate : array
        The model's parameters.
    sampling, privacy : arrays
        Covariance from drawing these rows and no others, and from the privacy noise.
    shift : array
        What optimisation left, as estimated: the model minus the minimiser.
    degrees : array
        Degrees of freedom of Student's distribution, for each parameter. Predictions take their median.
    loss, features, intercept
        Of the problem.
    notes : tuple of str
        What a reader should know.
    names : tuple of str
        Names of the features; x0, x1, ... if empty.
    classes : tuple of str
        Names of the classes of softmax; 0, 1, ... if empty.
    """

    estimate: Array
    sampling: Array
    privacy: Array
    shift: Array
    degrees: Array
    loss: Loss
    features: int
    intercept: bool
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def covariance(self, part: str = "total") -> Array:
        """Covariance of the parameters, or a part of it.

        Parameters
        ----------
        part : {"total", "sampling", "privacy", "optimisation"}
            "optimisation" is the outer product of ``shift``.

        Returns
        -------
        array of shape (parameters, parameters)
        """
        one_of("part", part, PARTS)
        parts = {"sampling": self.sampling, "privacy": self.privacy, "optimisation": np.outer(self.shift, self.shift)}
        return np.asarray(sum(parts.values()) if part == "total" else parts[part])

    def standard_errors(self, part: str = "total") -> Array:
        """Roots of the covariance's diagonal; of shape (features + intercept,), or (classes, features + intercept)."""
        return self._shaped(np.sqrt(np.maximum(np.diag(self.covariance(part)), 0.0)))

    def confidence_intervals(self, level: float = 0.95) -> Array:
        """Interval of each parameter: lower and upper end along the last axis."""
        return self._around(self._shaped(self._centred), self.standard_errors(), level, self._shaped(self.degrees))

    def predict_interval(self, features: ArrayLike, level: float = 0.95) -> Array:
        """Interval of the prediction's mean for each row.

        Parameters
        ----------
        features : array of shape (rows, features)
            Rows in the units of the coefficients.
        level : float
            Confidence level.

        Returns
        -------
        array of shape (rows, 2), or (rows, classes, 2) for softmax
            Probability of class 1 for logistic, of each class for softmax; score for the smoothed hinge; expected
            target otherwise. Rows of new data scatter around it by more.
        """
        a = np.asarray(features, dtype=np.float64)
        if a.ndim != 2 or a.shape[1] != self.features:
            raise DataError(f"Expected rows of {self.features} features, got shape {a.shape}.")
        a = np.column_stack([a, np.ones(len(a))]) if self.intercept else a
        outputs, width, total = self.loss.outputs, a.shape[1], self.covariance()
        degrees = np.median(self.degrees)
        scores = a @ self._centred.reshape(outputs, width).T
        blocks = total.reshape(outputs, width, outputs, width)
        between = np.einsum("ri,kilj,rj->rkl", a, blocks, a, optimize=True)
        if isinstance(self.loss, Softmax):
            q = np.exp(scores - np.max(scores, axis=1, keepdims=True))
            q /= np.sum(q, axis=1, keepdims=True)
            turn = q[:, :, None] * (np.eye(outputs) - q[:, None, :])  # derivative of the probabilities in the scores
            errors = np.sqrt(np.maximum(np.einsum("rkl,rlm,rkm->rk", turn, between, turn), 0.0))
            return np.clip(self._around(q, errors, level, degrees), 0.0, 1.0)
        ends = self._around(scores[:, 0], np.sqrt(np.maximum(between[:, 0, 0], 0.0)), level, degrees)
        return np.asarray(0.5 * (1 + np.tanh(0.5 * ends))) if isinstance(self.loss, Logistic) else ends

    def summary(self, level: float = 0.95) -> str:
        """Print the parameters: estimate, standard error, its parts, z, P(>|z|) and interval."""
        from scipy.special import stdtr

        shape = (self.loss.outputs, -1)
        centre, ends = self._centred.reshape(shape), self.confidence_intervals(level).reshape(*shape, 2)
        errors = {part: self.standard_errors(part).reshape(shape) for part in PARTS}
        names, degrees = self._names(), self.degrees.reshape(shape)
        wide = max(map(len, names), default=9)
        head = f"{'':<{wide}} {'coef':>11} {'std err':>10} {'sampling':>10} {'privacy':>10} {'optimis.':>10}"
        head += f" {'z':>8} {'P>|z|':>6} {f'[{50 - 50 * level:.3g} %':>11} {f'{50 + 50 * level:.3g} %]':>11}"
        lines = [f"{self.loss.kind}: intervals of {level:.3g}, from released values alone", head]
        for k in range(self.loss.outputs):
            lines += [f"class {self.classes[k] if self.classes else k}"] if self.loss.outputs > 1 else []
            for j, name in enumerate(names):
                z = centre[k, j] / errors["total"][k, j] if errors["total"][k, j] > 0 else np.inf
                numbers = " ".join(f"{errors[part][k, j]:>10.4g}" for part in PARTS)
                chance = 2 * float(stdtr(degrees[k, j], -abs(z)))
                low, high = ends[k, j]
                tail = f"{z:>8.2f} {chance:>6.3f} {low:>11.4g} {high:>11.4g}"
                lines.append(f"{name:<{wide}} {centre[k, j]:>11.4g} {numbers} {tail}")
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def in_units(self, coefficient: float, intercept: float, names: tuple[str, ...] = ()) -> Inference:
        """Return the same for a model whose coefficients and intercept were multiplied by public numbers."""
        table = np.full((self.loss.outputs, self.features + self.intercept), coefficient)
        if self.intercept:
            table[:, -1] = intercept
        by = table.ravel()
        scaled = {name: getattr(self, name) * np.outer(by, by) for name in ("sampling", "privacy")}
        return dataclasses.replace(
            self, estimate=self.estimate * by, shift=self.shift * by, names=names or self.names, **scaled
        )

    # --- pieces -------------------------------------------------------------------------------------

    @property
    def _centred(self) -> Array:
        """The estimate; for softmax as deviations from the mean over the classes."""
        if self.loss.outputs == 1:
            return self.estimate
        table = self.estimate.reshape(self.loss.outputs, -1)
        return np.asarray((table - np.mean(table, axis=0)).ravel())

    def _around(self, centre: Array, errors: Array, level: float, degrees: ArrayLike) -> Array:
        from scipy.special import stdtrit

        if isinstance(level, bool) or not isinstance(level, Real) or not 0 < level < 1:
            raise InvalidArgument(f"Expected level={level!r} in (0, 1): it is a probability, 0.95 say.")
        half = stdtrit(degrees, 0.5 + level / 2) * errors
        return np.stack([centre - half, centre + half], axis=-1)

    def _shaped(self, values: Array) -> Array:
        return values if self.loss.outputs == 1 else values.reshape(self.loss.outputs, -1)

    def _names(self) -> list[str]:
        names = list(self.names) or [f"x{j}" for j in range(self.features)]
        return [*names, "intercept"] if self.intercept else names
