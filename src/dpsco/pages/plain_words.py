"""The promise in words that need no mathematics, each sentence true as it stands."""

from __future__ import annotations

import math

from dpsco.run.report import PrivacyReport

__all__ = ["promise_in_words"]

_OTHER_WORLD = {
    "zero-out": "{is_} used as recorded; in the other {is_} blanked out and contribute{s} nothing. That {rows} "
    "exist{s}, where {they} stand{s} among the others and how many rows there are in all are treated as public",
    "replace": "{is_} used as recorded; in the other {is_} exchanged for any other rows. How many rows there are in "
    "all is treated as public",
    "add-remove": "{is_} in the data; in the other {is_} not. How many rows there are in all is treated as secret",
}


def promise_in_words(report: PrivacyReport) -> list[tuple[str, str]]:
    """(question, answer) pairs: who is protected, against whom, from what, with what left over, and what is not."""
    return [
        ("Who is protected?", _who(report)),
        ("What is promised?", _what(report)),
        ("Against whom?", _whom(report)),
        ("What remains?", _remainder(report)),
        ("What is not promised?", _limits(report)),
    ]


def _who(report: PrivacyReport) -> str:
    if report.records == 1:
        return (
            "Every single row of the training data. A person with one row is protected as a whole; a person with "
            f"several rows is protected for each of them, {_together(report)}."
        )
    return (
        f"Every person or unit with at most {report.records} rows in the training data, for all those rows together. "
        "Rows beyond that number did not count, or the data have none."
    )


def _together(report: PrivacyReport) -> str:
    if report.gaussian:
        return "with a weaker promise for all together ('epsilon for k rows')"
    return "and nothing is promised for all of them together"


def _what(report: PrivacyReport) -> str:
    one = report.records == 1
    rows = "one row" if one else f"the {report.records} rows of one person"
    verb = {"is_": "it is" if one else "they are", "s": "s" if one else "", "they": "it" if one else "they"}
    other = _OTHER_WORLD[report.adjacency].format(rows="the row" if one else "these rows", **verb)
    return (
        f"Compare two worlds that differ in {rows} only: in the one {other}. Whatever anyone concludes, from "
        "everything this run may publish, with some probability in one world, they conclude in the other with at most "
        f"{_factor(report):.3g} times that probability plus {report.delta:.2g} (epsilon = {report.epsilon:.4g}, delta "
        f"= {report.delta:.2g}). The promise was fixed before the first row was read and holds whatever the rows are."
    )


def _factor(report: PrivacyReport) -> float:
    return math.exp(report.epsilon) if report.epsilon < 700 else math.inf


_SEEN = {
    "all iterates": "the published model, its report and every intermediate version of it",
    "phase outputs": "the published model, its report and the released outputs of its phases (and nothing in between)",
    "last iterate": "the published model and its report (and no earlier version of it)",
}


def _whom(report: PrivacyReport) -> str:
    return (
        f"Against anyone who sees {_SEEN.get(report.releases, _SEEN['last iterate'])}, with any "
        "feasible amount of computing power and with any other knowledge, including all other rows. Later work with "
        "the model cannot undo it."
    )


def _remainder(report: PrivacyReport) -> str:
    curve = (
        "The curve below trades the one for the other: it is one promise at several points."
        if report.gaussian
        else "No other pair is promised."
    )
    return (
        f"A factor of {_factor(report):.3g} and a share of {report.delta:.2g}: the smaller both are, the less the two "
        f"worlds can be told apart. {curve}"
    )


def _limits(report: PrivacyReport) -> str:
    return (
        "Facts about the population that the model has learned are not hidden, even if they say something about a "
        "person who took part: they would be learned without that person as well. Other uses of the same data (other "
        "models, tables, a search for settings on these rows) each cost privacy of their own and add up. Whoever holds "
        "the raw data or the secret key is not restrained by this promise."
    )
