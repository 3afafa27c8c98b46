"""Simulated data: the reference problem, whose minimiser is known, and raw tables of people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsco.query import Array

__all__ = ["RawTable", "ReferenceProblem", "census", "people", "reference_problem"]

_JOBS = ("Service", "Farming", "Clerical", "Craft", "Sales", "Professional", "Executive")
_SCHOOLS = ("Primary", "Secondary", "High-school", "Bachelors", "Masters")


@dataclass(frozen=True, eq=False)
class ReferenceProblem:
    """Logistic regression with a known population minimiser, so that excess risk can be measured.

        a ~ N(0, diag(1/j)), divided by max(1, ||a||);    y ~ Bernoulli(sigmoid(<a, optimum>))

    Parameters
    ----------
    features, labels
        Rows to train on.
    optimum
        The population minimiser.
    """

    features: Array
    labels: NDArray[Any]
    optimum: Array
    _fresh: Array
    _seed: int

    def fresh(self, rows: int) -> tuple[Array, NDArray[Any]]:
        """Return features and labels of ``rows`` rows that are not for training."""
        features = self._fresh[:rows]
        return features, _labels(features, self.optimum, np.random.default_rng([self._seed, 1]))

    @property
    def population_smoothness(self) -> float:
        """0.25 times the largest eigenvalue of E[a a'], estimated on the fresh rows."""
        return 0.25 * float(np.linalg.eigvalsh(self._fresh.T @ self._fresh / len(self._fresh))[-1])

    def excess_risk(self, x: Array) -> float:
        """Return F(x) - F(optimum) over the fresh rows, with the true label probabilities."""
        truth, score = self._fresh @ self.optimum, self._fresh @ x
        probability = _sigmoid(truth)
        risk = np.logaddexp(0.0, score) - probability * score
        best = np.logaddexp(0.0, truth) - probability * truth
        return float(np.mean(risk - best))


def reference_problem(
    n: int = 200_000, dimension: int = 50, *, optimum_norm: float = 5.0, fresh: int = 200_000, seed: int = 0
) -> ReferenceProblem:
    """Return the reference problem.

    Parameters
    ----------
    n
        Number of rows to train on.
    dimension
        Number of features.
    optimum_norm
        Norm of the population minimiser.
    fresh
        Number of rows to measure with.
    seed
        Seed of all rows and labels.

    Returns
    -------
    ReferenceProblem
        The same rows for the same arguments.

    >>> data = reference_problem(n=100, dimension=3, fresh=10)
    >>> data.features.shape, data.excess_risk(data.optimum)
    ((100, 3), 0.0)
    """
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(dimension)
    optimum = optimum_norm * direction / np.linalg.norm(direction)
    scale = 1 / np.sqrt(np.arange(1, dimension + 1))
    rows = rng.standard_normal((n + fresh, dimension)) * scale
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    train = rows[:n]
    labels = _labels(train, optimum, rng)
    return ReferenceProblem(features=train, labels=labels, optimum=optimum, _fresh=rows[n:], _seed=seed)


@dataclass(frozen=True, eq=False)
class RawTable:
    """A raw table, with what is publicly known of it.

    Parameters
    ----------
    columns
        Cells by column, as a file would hold them: numbers, texts, dates, missing cells.
    labels
        One text per row.
    classes
        The labels there are.
    declared
        Arguments of ``PublicColumns``: ranges, levels and scales that were known before any row.
    """

    columns: dict[str, NDArray[Any]]
    labels: NDArray[Any]
    classes: tuple[str, ...]
    declared: dict[str, Any]


def people(n: int = 30_000, *, seed: int = 0) -> RawTable:
    """Return a simulated table of customers: five wild columns of numbers, a date, categories and missing cells.

    ``income`` is log-normal, ``balance`` heavy-tailed on both sides of 0, ``clicks`` a power law with many zeros,
    ``latency`` has broken sensors a million times too large, ``age`` is text with question marks.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int
        Another seed makes another table.

    Returns
    -------
    RawTable

    >>> table = people(n=3)
    >>> list(table.columns), table.labels.tolist()
    (['age', 'income', 'balance', 'clicks', 'latency', 'member', 'since', 'city', 'plan'], ['yes', 'no', 'no'])
    """
    rng = np.random.default_rng(seed)
    age, income = rng.integers(18, 95, n), rng.lognormal(10.3, 0.9, n).round(2)
    balance = (3_000 * rng.standard_t(1.5, n)).round(2)
    clicks = np.where(rng.random(n) < 0.4, 0, np.floor(rng.pareto(0.9, n)))
    latency = rng.gamma(3.0, 20.0, n).round(1)
    member = rng.random(n) < 0.35
    days = rng.integers(0, 5_000, n)
    city = rng.choice(["Lyon", "Paris", "Nice", "Lille", "Brest"], n, p=[0.3, 0.4, 0.15, 0.1, 0.05])
    tariff = rng.choice(["free", "basic", "pro"], n, p=[0.6, 0.3, 0.1])
    score = (
        0.9 * np.log(income / 30_000)
        + 0.35 * np.arcsinh(balance / 300)
        + 0.5 * np.log1p(clicks)
        - 0.02 * (latency - 60)
        + 0.03 * (age - 50)
        + 0.8 * member
        - 0.0003 * (days - 2_500)
        + 0.7 * (city == "Paris")
        + 1.2 * (tariff == "pro")
        - 1.3
    )
    labels = np.where(rng.random(n) < _sigmoid(1.5 * score), "yes", "no")
    ages = age.astype(object)
    ages[rng.random(n) < 0.05] = "?"
    columns = {
        "age": ages,
        "income": np.where(rng.random(n) < 0.03, np.nan, income),
        "balance": balance,
        "clicks": clicks,
        "latency": np.where(rng.random(n) < 0.01, 1e6 * latency, latency),
        "member": np.where(member, "yes", "no"),
        "since": (np.datetime64("2010-01-01") + days.astype("timedelta64[D]")).astype(str),
        "city": city,
        "plan": tariff,
    }
    declared = {
        "ranges": {
            "age": (0, 120),
            "income": (0, 1e6),
            "balance": (-1e6, 1e6),
            "clicks": (0, 1_000),
            "latency": (0, 1_000),
        },
        "log": ["income", "balance", "clicks"],
        "booleans": ["member"],
        "dates": {"since": ("2000-01-01", "2030-01-01")},
        "categories": {"city": ["Lyon", "Paris", "Nice", "Lille"], "plan": ["free", "basic", "pro"]},
        "missing": ["age", "income"],
        "other": ["city"],
    }
    return RawTable(columns, labels, ("no", "yes"), declared)


def census(n: int = 40_000, *, seed: int = 0) -> RawTable:
    """Return a simulated table of employees with the columns of Adult, numbers and texts as in its file.

    ``capital_gain`` and ``capital_loss`` are mostly 0, ``weight`` says nothing, "?" stands for unknown texts, and
    ``years`` repeats ``education``. No row of Adult is in it.

    >>> table = census(n=3)
    >>> list(table.columns)[:6], table.labels.tolist()
    (['age', 'workclass', 'weight', 'education', 'years', 'marital_status'], ['<=50K', '<=50K', '<=50K'])
    """
    rng = np.random.default_rng([seed, 2])
    age, years = rng.integers(17, 91, n), rng.binomial(15, 0.6, n) + 1
    married, male = rng.random(n) < _sigmoid((age - 36) / 8), rng.random(n) < 0.67
    single = rng.choice(["Never-married", "Divorced", "Widowed"], n, p=[0.65, 0.27, 0.08])
    job = rng.choice(len(_JOBS), n)
    work = rng.choice(["Private", "Self-employed", "Government"], n, p=[0.75, 0.11, 0.14])
    gain = np.where(rng.random(n) < 0.08, rng.lognormal(8.5, 1.0, n).round(), 0)
    loss = np.where(rng.random(n) < 0.05, rng.normal(1_900, 350, n).round(), 0)
    hours = np.clip(rng.normal(40, 12, n).round(), 1, 99)
    country = rng.choice(["United-States", "Mexico", "India", "Germany"], n, p=[0.9, 0.06, 0.02, 0.02])
    score = (
        2.3 * married
        + 0.35 * (years - 10)
        + 0.3 * (job - 3)
        + 0.035 * (hours - 40)
        + 0.5 * np.log1p(gain / 500)
        + 0.0004 * loss
        - 0.0015 * (age - 50) ** 2
        + 0.02 * (age - 40)
        + 0.3 * male
        - 3.2
    )
    labels = np.where(rng.random(n) < _sigmoid(2.0 * score), ">50K", "<=50K")
    columns = {
        "age": age,
        "workclass": np.where(rng.random(n) < 0.06, "?", work),
        "weight": rng.lognormal(12.0, 0.5, n).round(),
        "education": np.array(_SCHOOLS)[np.clip((years - 1) // 3, 0, 4)],
        "years": years,
        "marital_status": np.where(married, "Married", single),
        "occupation": np.where(rng.random(n) < 0.06, "?", np.array(_JOBS)[job]),
        "sex": np.where(male, "Male", "Female"),
        "capital_gain": gain,
        "capital_loss": loss,
        "hours_per_week": hours,
        "native_country": np.where(rng.random(n) < 0.02, "?", country),
    }
    declared = {
        "ranges": {
            "age": (0, 120),
            "weight": (0, 2e6),
            "years": (0, 20),
            "capital_gain": (0, 1e6),
            "capital_loss": (0, 1e5),
            "hours_per_week": (0, 168),
        },
        "log": ["capital_gain", "capital_loss"],
        "categories": {
            "workclass": ["Private", "Self-employed", "Government"],
            "education": list(_SCHOOLS),
            "marital_status": ["Married", "Never-married", "Divorced", "Widowed"],
            "occupation": list(_JOBS),
            "sex": ["Female", "Male"],
            "native_country": ["United-States", "Mexico", "India", "Germany"],
        },
        "other": ["workclass", "occupation", "native_country"],
    }
    return RawTable(columns, labels, ("<=50K", ">50K"), declared)


def _labels(features: Array, optimum: Array, rng: np.random.Generator) -> NDArray[Any]:
    return (rng.random(len(features)) < _sigmoid(features @ optimum)).astype(np.int64)


def _sigmoid(scores: Array) -> Array:
    return 0.5 * (1 + np.tanh(scores / 2))
