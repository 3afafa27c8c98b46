"""Standard errors, intervals and the table that statisticians know."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsco.errors import DataError, InvalidArgument, one_of
from dpsco.problem import Logistic, Loss, Softmax
from dpsco.query import Array

__all__ = ["Inference", "table_text"]

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

    def table(self, level: float = 0.95) -> list[dict[str, Any]]:
        """List the parameters as statisticians know them, one dict each: ``pandas.DataFrame(inference.table())``.

        Parameters
        ----------
        level : float
            Confidence level.

        Returns
        -------
        list of dict
            "class" (softmax alone), "name", "estimate", "standard_error" and its parts "sampling", "privacy" and
            "optimisation", "z" = estimate / standard_error, "p_value" of a coefficient that is 0 (Student's
            distribution with "degrees" of freedom), "low" and "high" of the interval.
        """
        from scipy.special import stdtr

        shape = (self.loss.outputs, -1)
        centre, ends = self._centred.reshape(shape), self.confidence_intervals(level).reshape(*shape, 2)
        errors = {part: self.standard_errors(part).reshape(shape) for part in PARTS}
        names, degrees = self._names(), self.degrees.reshape(shape)
        out = []
        for k in range(self.loss.outputs):
            of_class = {"class": self.classes[k] if self.classes else str(k)} if self.loss.outputs > 1 else {}
            for j, name in enumerate(names):
                z = centre[k, j] / errors["total"][k, j] if errors["total"][k, j] > 0 else math.inf
                parts = {part: float(errors[part][k, j]) for part in PARTS[1:]}
                out.append(
                    {
                        **of_class,
                        "name": name,
                        "estimate": float(centre[k, j]),
                        "standard_error": float(errors["total"][k, j]),
                        **parts,
                        "z": float(z),
                        "p_value": 2 * float(stdtr(degrees[k, j], -abs(z))),
                        "degrees": float(degrees[k, j]),
                        "low": float(ends[k, j, 0]),
                        "high": float(ends[k, j, 1]),
                    }
                )
        return out

    def summary(self, level: float = 0.95) -> str:
        """Return ``table`` as text with its notes: estimate, standard error, its parts, z, P(>|z|) and interval."""
        return table_text(self.loss.kind, self.table(level), level, self.notes)

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

    def of_quantities(self, slopes: ArrayLike, offsets: ArrayLike, names: tuple[str, ...] = ()) -> Inference:
        """Return the same in terms of quantities of which the features are affine maps.

        With feature_j = slope_j t_j + offset_j the score is

            sum_j (slope_j coef_j) t_j + (intercept + sum_j offset_j coef_j),

        so the coefficient of t_j is slope_j coef_j and the intercept moves by sum_j offset_j coef_j. Estimate, shift
        and covariances follow exactly. Without an intercept there is one now, unless every offset is 0.

        Parameters
        ----------
        slopes, offsets : arrays of shape (features,)
            Public numbers.
        names : tuple of str
            Names of the quantities.

        Guarantee: post-processing of released values. Cost: O(features * parameters * classes).
        """
        slope, offset = np.asarray(slopes, dtype=np.float64), np.asarray(offsets, dtype=np.float64)
        moved = bool(np.any(offset))
        outputs, width, p = self.loss.outputs, self.features + (self.intercept or moved), self.features
        scale = np.ones(width)
        scale[:p] = slope

        def vector(values: Array) -> Array:
            table = np.zeros((outputs, width))
            table[:, : p + self.intercept] = values.reshape(outputs, -1)
            if moved:
                table[:, -1] += table[:, :p] @ offset
            return np.asarray((table * scale).ravel())

        def matrix(values: Array) -> Array:
            held, total = p + self.intercept, outputs * width
            blocks = np.zeros((outputs, width, outputs, width))
            blocks[:, :held, :, :held] = values.reshape(outputs, held, outputs, held)
            if moved:
                blocks[:, -1] += np.einsum("j,kjlm->klm", offset, blocks[:, :p])
                blocks[..., -1] += blocks[..., :p] @ offset
            return np.asarray(blocks.reshape(total, total) * np.outer(np.tile(scale, outputs), np.tile(scale, outputs)))

        return dataclasses.replace(
            self,
            estimate=vector(self.estimate),
            shift=vector(self.shift),
            sampling=matrix(self.sampling),
            privacy=matrix(self.privacy),
            degrees=self._degrees_of(offset, width),
            intercept=self.intercept or moved,
            names=names or self.names,
        )

    # --- pieces -------------------------------------------------------------------------------------

    @property
    def _centred(self) -> Array:
        """The estimate; for softmax as deviations from the mean over the classes."""
        if self.loss.outputs == 1:
            return self.estimate
        table = self.estimate.reshape(self.loss.outputs, -1)
        return np.asarray((table - np.mean(table, axis=0)).ravel())

    def _degrees_of(self, offset: Array, width: int) -> Array:
        """Degrees of freedom after ``of_quantities``: the intercept's are those of the parameters that it is made of.

        The relative variance rho = 2 / (degrees - 4) of a sum's variance is taken as if those of its terms were one
        error: root rho is the mean of the terms' roots, weighted by their variances.
        """
        held = self.features + self.intercept
        degrees = self.degrees.reshape(self.loss.outputs, held)
        if not np.any(offset):
            return self.degrees
        weights = np.append(offset, 1.0)[:held] ** 2
        terms = weights * np.diag(self.sampling + self.privacy).reshape(degrees.shape)
        roots = np.sqrt(2.0 / np.maximum(degrees - 4.0, 1e-300))
        mean = np.sum(terms * roots, axis=1) / np.maximum(np.sum(terms, axis=1), 1e-300)
        out = np.empty((self.loss.outputs, width))
        out[:, : self.features], out[:, -1] = degrees[:, : self.features], 4.0 + 2.0 / np.maximum(mean**2, 1e-6)
        return np.asarray(out.ravel())

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


def table_text(loss: str, rows: Sequence[Mapping[str, Any]], level: float, notes: Sequence[str]) -> str:
    """Return rows of ``Inference.table`` as text."""
    wide = max((len(row["name"]) for row in rows), default=9)
    head = f"{'':<{wide}} {'coef':>11} {'std err':>10} {'sampling':>10} {'privacy':>10} {'optimis.':>10}"
    head += f" {'z':>8} {'P>|z|':>6} {f'[{50 - 50 * level:.3g} %':>11} {f'{50 + 50 * level:.3g} %]':>11}"
    lines = [f"{loss}: intervals of {level:.3g}, from released values alone", head]
    for place, row in enumerate(rows):
        if "class" in row and (place == 0 or rows[place - 1]["class"] != row["class"]):
            lines.append(f"class {row['class']}")
        numbers = " ".join(f"{row[part]:>10.4g}" for part in ("standard_error", *PARTS[1:]))
        tail = f"{row['z']:>8.2f} {row['p_value']:>6.3f} {row['low']:>11.4g} {row['high']:>11.4g}"
        lines.append(f"{row['name']:<{wide}} {row['estimate']:>11.4g} {numbers} {tail}")
    return "\n".join([*lines, *(f"Note: {note}" for note in notes)])
