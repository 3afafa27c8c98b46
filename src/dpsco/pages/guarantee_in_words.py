"""The guarantee in words that need no mathematics. Each sentence is true by itself."""

from __future__ import annotations

import math

from dpsco.run.report import PrivacyReport

__all__ = ["guarantee_in_words", "headline_in_words"]

_OTHER_DATA = {
    "zero-out": "{is_} used as recorded; in the other {is_} replaced by zeros and contribute{s} nothing. The existence "
    "and position of {these} and the number of {all} are treated as public",
    "replace": "{is_} used as recorded; in the other {is_} exchanged for any other {all}{own}. The number of {all} is "
    "treated as public",
    "add-remove": "{is_} present; in the other {is_} absent. The number of {all} is treated as secret",
}

_VISIBLE = {
    "all iterates": "the published model, its report and every intermediate version of it",
    "phase outputs": "the published model, its report and the released outputs of its phases (and nothing in between)",
    "last iterate": "the published model and its report (and no earlier version of it)",
}


def headline_in_words(report: PrivacyReport) -> tuple[str, str]:
    """Return the verdict and its reason: the report's headline, without mathematics where it says why."""
    verdict, reason = report.headline.split(": ", 1)
    if not report.private or report.exceptions:
        return verdict, reason
    whose = {"row": "any one row", "client": "any one client", "id": "any one person"}[report.record]
    if report.records > 1 and report.record != "id":
        whose = f"any {report.records} {report.record}s together"
    return verdict, (
        f"random noise hides whether {whose} took part (epsilon = {report.epsilon:.4g}, delta = {report.delta:.2g})."
    )


def guarantee_in_words(report: PrivacyReport) -> list[tuple[str, str]]:
    """Return questions with answers: who is protected, what is guaranteed, against whom, what remains.

    Parameters
    ----------
    report
        The report of a private run.

    Returns
    -------
    list of (question, answer)
        Texts without markup.
    """
    return [
        ("Who is protected?", _who(report)),
        ("What is guaranteed?", _what(report)),
        ("Against whom?", _against(report)),
        ("How much can still be learned?", _remainder(report)),
        ("What does it rest on?", _basis(report)),
        ("What is not guaranteed?", _limits(report)),
    ]


def _who(report: PrivacyReport) -> str:
    if report.record == "id":
        return (
            f"Every person, if all rows of a person carry one id, for all of them together. At most {report.records} "
            "rows of an id were used. Nothing is promised for one row of several alone: without it, another row of the "
            "same id may be used."
        )
    if report.record == "client":
        of = "Every client" if report.records == 1 else f"Any {report.records} clients together"
        some = (
            ""
            if report.adjacency == "replace"
            else " A change of some rows of a client counts as two clients: it removes one contribution and adds "
            "another."
        )
        return f"{of}, with all rows that it holds.{some}"
    if report.records > 1:
        return (
            f"Any {report.records} rows of the training data together: every person or unit with at most so many rows."
        )
    together = (
        "and all of them together have the weaker guarantee 'epsilon for k rows'"
        if report.gaussian
        else "and nothing is promised for all of them together"
    )
    return (
        "Every single row of the training data. A person with one row is fully covered. A person with several rows is "
        f"covered for each of them, {together}."
    )


def _what(report: PrivacyReport) -> str:
    changed, verb = _changed(report)
    other = _OTHER_DATA[report.adjacency].format(**verb)
    return (
        f"Compare two data sets that differ in {changed} only: in the one {other}. Any conclusion drawn from "
        "everything this run may publish has, with either data set, at most "
        f"{_factor(report):.3g} times the probability that it has with the other, plus {_one_in(report.delta)} "
        f"(epsilon = {report.epsilon:.4g}, delta = {report.delta:.2g}). The guarantee was fixed before the first "
        "row was read and holds for any rows."
    )


def _changed(report: PrivacyReport) -> tuple[str, dict[str, str]]:
    """Return what differs between two data sets, and the words of a sentence about it."""
    rows = "clients" if report.record == "client" else "rows"
    many = {"is_": "they are", "s": "", "these": f"these {rows}", "all": rows, "own": ""}
    if report.record == "id":
        return "all rows of one person", {**many, "own": " of one person who has no others"}
    if report.records == 1:
        return f"one {report.record}", {**many, "is_": "it is", "s": "s", "these": f"the {report.record}"}
    return f"any {report.records} {rows}", many


def _against(report: PrivacyReport) -> str:
    return (
        f"Anyone who sees {_VISIBLE.get(report.releases, _VISIBLE['last iterate'])}, with any feasible amount of "
        "computing power and any other knowledge, including all other rows. Later use of the model does not weaken the "
        "guarantee."
    )


def _remainder(report: PrivacyReport) -> str:
    pairs = (
        "The curve below trades one for the other: one guarantee, stated at several points."
        if report.gaussian
        else "No other pair is promised."
    )
    return (
        f"A factor of {_factor(report):.3g} and a probability of {_one_in(report.delta)}. The smaller both are, the "
        f"harder it is to tell the two data sets apart. {pairs}"
    )


def _basis(report: PrivacyReport) -> str:
    rests = (
        "Whoever trained the model confirms: the facts stated about the data (columns, ranges, classes, number of "
        "rows) and the settings were not chosen by looking at these rows, and each row was used in this run once."
    )
    if report.record == "id":
        rests += " All rows of one person carry the same id."
    if report.needs == "convexity":
        rests += " The proof also needs a loss function of a certain form (convex), which this model has."
    return rests + " Cryptographic random numbers are unpredictable. The last sections list all assumptions."


def _limits(report: PrivacyReport) -> str:
    used = (
        f"The guarantee does not cover everything that was used: {'; '.join(report.exceptions)}. "
        if report.exceptions
        else ""
    )
    return used + (
        "The model may reveal facts about the population, even if they say something about a person who took part: the "
        "model would show them without that person too. Other uses of the same data (other models, tables, a search "
        "for settings on these rows) have their own privacy cost, and the costs add up. The guarantee does not bind "
        "anyone who holds the raw data or the secret key."
    )


def _factor(report: PrivacyReport) -> float:
    return math.exp(report.epsilon) if report.epsilon < 700 else math.inf


def _one_in(probability: float) -> str:
    return f"one in {1 / probability:,.0f}"
