"""Private linear classifiers: logistic and softmax regression, support vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from dpsco.errors import InvalidArgument
from dpsco.estimators.base import PrivateLinearModel
from dpsco.estimators.public_facts import class_codes, class_shares, declared_classes
from dpsco.estimators.validation import check_labels
from dpsco.planning.geometry import Geometry
from dpsco.problem import Logistic, Loss, MulticlassHinge, SmoothedHinge, Softmax
from dpsco.query import Array
from dpsco.run import Model

__all__ = ["PrivateLinearSVC", "PrivateLogisticRegression"]


class _PrivateClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    classes: Sequence[Any] | None
    class_weight: Mapping[Any, float] | None

    def _loss(self, classes: int) -> Logistic | Softmax | SmoothedHinge | MulticlassHinge:
        raise NotImplementedError

    def _targets(
        self, y: Any, *, whole: bool, strict: bool, classes: Any = None, goes_on: bool = False
    ) -> tuple[Loss, Array, tuple[str, ...]]:
        if strict:
            check_labels(y)
        stated, earlier = classes if self.classes is None else self.classes, False
        if stated is None and not whole:  # said in an earlier call of partial_fit, or known from a fit
            stated, earlier = self.__dict__.get("classes_"), self.__dict__.get("_inferred", False)
        known, inferred = declared_classes(stated, y if whole else None)
        if classes is not None and not np.array_equal(known, declared_classes(classes, None)[0]):
            raise InvalidArgument("Expected classes= of partial_fit to be those of the estimator. State them once.")
        if goes_on and not np.array_equal(known, self.__dict__["classes_"]):
            raise InvalidArgument(
                "Expected classes to be those of the first call: the released rounds are about them. A new estimator "
                "begins a new run, with a budget of its own."
            )
        weights = class_shares(self.class_weight, known)
        loss = dataclasses.replace(self._loss(len(known)), weights=weights)
        codes = class_codes(y, known, unknown="error" if strict else "zero")
        self.classes_, self._inferred = known, inferred or earlier
        return loss, codes, ("the set of labels was read off the rows",) if self._inferred else ()

    def _keep(self, model: Model) -> None:
        self.coef_ = np.atleast_2d(model.coef) / self._norm
        self.intercept_ = np.atleast_1d(model.intercept)

    def decision_function(self, X: Any) -> Array:
        """Score of each row: one number for the second class, or one for each class if there are more than two."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each row."""
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(np.int64) if scores.ndim == 1 else np.argmax(scores, axis=1)
        return np.asarray(self.classes_[chosen])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on the few hundred rows of scikit-learn's checks noise rules
        return tags


class PrivateLogisticRegression(_PrivateClassifier):
    """Differentially private logistic regression, softmax for more than two classes, in one planned pass.

    Every argument is a public fact; none may come from looking at the rows.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee. delta = min(1e-5, n^-1.1) by default.
    feature_norm : float, optional
        Longer rows are shortened to this norm, in training and in prediction. By default that of ``PublicColumns``, as
        argument or as the step before, else 1.
    radius : float
        Bound on the model: ||(feature_norm coef, intercept)|| <= radius, times sqrt(K / 2) for K > 2 classes. A large
        radius costs little; a small one excludes good models. 1000 with a survey and 20 without by default.
    classes : sequence, optional
        The label set. By default it is read off ``y``, with a ``PrivacyLeakWarning``.
    n : int, optional
        Number of rows, for ``partial_fit`` or to plan for a number other than len(X).
    fit_intercept : bool
        Whether the model has an intercept.
    rounds : int, optional
        Number of adaptive rounds; planned by default. With a survey it is the most of them.
    survey : {"auto", "full", "diagonal", "low-rank", "intervals", "none"}
        "auto": a first round learns the geometry of the rows where that pays. Columns may then differ in size. The
        others as in ``dpsco.plan``.
    solver : {"one-pass", "auto", "objective-perturbation", "surveyed-objective-perturbation", "sufficient-statistics"}
        What ``fit`` does with rows at rest. "auto": the method of least predicted excess; ``plan_`` says which and why,
        ``privacy_`` what its proof needs. ``partial_fit`` and iterables of chunks are one pass always.
    geometry : Geometry, optional
        ``geometry_`` of an earlier fit on the same population, or ``dpsco.public_geometry``: there is no survey then.
    adjacency : {"zero-out", "replace"}
        As in ``Budget``.
    max_rows_per_unit : int, optional
        At most so many rows of one ``unit`` (see ``fit``) count, and the guarantee covers all of them together.
    shuffle : bool
        Put the rows into random rounds, with randomness of the operating system: in a table of 64 MB or more groups
        of neighbouring rows (8 KB) instead of single ones, from all parts of the table alike.
    invalid_rows : {"error", "zero"}
        "error" refuses a table that has a row with a missing value, text or an undeclared label. "zero" counts each
        such row as a zero row, so that no row decides whether a fit succeeds. Behind the first call of ``partial_fit``
        such rows are zero rows in either case.
    n_features : int, optional
        Features per row, if X is a list of rows: a list does not state it.
    class_weight : mapping of labels to numbers, optional
        Public weights. The loss of a row is multiplied by its class's weight over the largest one before its
        contribution is clipped, so no row counts for more than one. Labels without a weight have 1.
    penalty : float
        Ridge: the model minimises the mean loss plus penalty / 2 ||coef||^2, to second order around the released model.
        It costs no privacy and needs a survey. ``standard_errors()`` are those of the model without it.
    columns : PublicColumns or path, optional
        Declared columns, or the path of a schema. ``fit``, ``partial_fit`` and ``predict`` then take raw tables;
        missing cells and unknown levels are encoded as declared, so no cell of X makes a call fail.
    start : estimator or (coef, intercept), optional
        The model to begin with: a public one, or a private one, whose own guarantee adds up. There is no survey then.
    warm_start : bool
        Begin with the model of the last ``fit``. Each fit has a budget of its own; ``account`` adds them up.
    account : Account or path, optional
        Charged before the first release. ``cross_val_score`` and one-vs-rest charge each fit.
    random_state : int or RandomState, optional
        Repeats order and noise, for research. The report then says "not private".

    Attributes
    ----------
    coef_, intercept_, classes_
        The model.
    plan_
        The plan.
    privacy_
        The report.
    geometry_, health_
        What the survey released; None without one.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsco.datasets import reference_problem
    >>> data = reference_problem(n=20_000, fresh=10)
    >>> model = PrivateLogisticRegression(epsilon=1.0, delta=1e-6, classes=[0, 1]).fit(data.features, data.labels)
    >>> bool(model.score(data.features, data.labels) > 0.55), model.privacy_.epsilon
    (True, 1.0)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        feature_norm: float | None = None,
        radius: float | None = None,
        classes: Sequence[Any] | None = None,
        n: int | None = None,
        *,
        fit_intercept: bool = True,
        rounds: int | None = None,
        survey: str = "auto",
        solver: str = "one-pass",
        geometry: Geometry | None = None,
        adjacency: str = "zero-out",
        max_rows_per_unit: int | None = None,
        shuffle: bool = True,
        invalid_rows: str = "error",
        n_features: int | None = None,
        class_weight: Mapping[Any, float] | None = None,
        penalty: float = 0.0,
        columns: Any = None,
        start: Any = None,
        warm_start: bool = False,
        account: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.feature_norm = feature_norm
        self.radius = radius
        self.classes = classes
        self.n = n
        self.fit_intercept = fit_intercept
        self.rounds = rounds
        self.survey = survey
        self.solver = solver
        self.geometry = geometry
        self.adjacency = adjacency
        self.max_rows_per_unit = max_rows_per_unit
        self.shuffle = shuffle
        self.invalid_rows = invalid_rows
        self.n_features = n_features
        self.class_weight = class_weight
        self.penalty = penalty
        self.columns = columns
        self.start = start
        self.warm_start = warm_start
        self.account = account
        self.random_state = random_state

    def _loss(self, classes: int) -> Logistic | Softmax:
        return Logistic() if classes == 2 else Softmax(classes)

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class (columns as in ``classes_``) for each row."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of ``predict_proba``."""
        return np.asarray(np.log(self.predict_proba(X)))


class PrivateLinearSVC(_PrivateClassifier):
    """Differentially private linear support vector classifier, by smoothed hinge losses.

    Two classes have one score and ``SmoothedHinge``, more have a score each and ``MulticlassHinge``: one run and one
    budget for all of them.

    Parameters
    ----------
    width : float
        Width of the rounded corner of the hinge. Smaller is closer to the hinge and harder to optimise.
    epsilon, delta, feature_norm, radius, classes, n, fit_intercept, rounds, survey, solver : optional
        As in ``PrivateLogisticRegression``.
    geometry, adjacency : optional
        As in ``PrivateLogisticRegression``.
    max_rows_per_unit, shuffle, invalid_rows, n_features, class_weight, penalty, columns, start, warm_start : optional
        As in ``PrivateLogisticRegression``.
    account, random_state : optional
        As in ``PrivateLogisticRegression``.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        feature_norm: float | None = None,
        radius: float | None = None,
        classes: Sequence[Any] | None = None,
        n: int | None = None,
        *,
        width: float = 1.0,
        fit_intercept: bool = True,
        rounds: int | None = None,
        survey: str = "auto",
        solver: str = "one-pass",
        geometry: Geometry | None = None,
        adjacency: str = "zero-out",
        max_rows_per_unit: int | None = None,
        shuffle: bool = True,
        invalid_rows: str = "error",
        n_features: int | None = None,
        class_weight: Mapping[Any, float] | None = None,
        penalty: float = 0.0,
        columns: Any = None,
        start: Any = None,
        warm_start: bool = False,
        account: Any = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.feature_norm = feature_norm
        self.radius = radius
        self.classes = classes
        self.n = n
        self.width = width
        self.fit_intercept = fit_intercept
        self.rounds = rounds
        self.survey = survey
        self.solver = solver
        self.geometry = geometry
        self.adjacency = adjacency
        self.max_rows_per_unit = max_rows_per_unit
        self.shuffle = shuffle
        self.invalid_rows = invalid_rows
        self.n_features = n_features
        self.class_weight = class_weight
        self.penalty = penalty
        self.columns = columns
        self.start = start
        self.warm_start = warm_start
        self.account = account
        self.random_state = random_state

    def _loss(self, classes: int) -> SmoothedHinge | MulticlassHinge:
        return SmoothedHinge(self.width) if classes == 2 else MulticlassHinge(classes, self.width)
