"""The page of a run: guarantee, plan, what happened, and results on public data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dpsco.methods import AcceleratedSRGD
from dpsco.pages.coefficients import Coefficients, coefficients_of
from dpsco.pages.guarantee_in_words import guarantee_in_words, headline_in_words
from dpsco.pages.plots import line_plot
from dpsco.pages.renderer import write_html
from dpsco.pages.subject import Subject
from dpsco.pages.survey_section import survey_section
from dpsco.planning.spectrum_priors import loss_scale
from dpsco.run.parameter_table import parameter_table
from dpsco.run.result import Result

__all__ = ["write_run_page"]


_ROWS_ARE = {
    "row": "",
    "client": "A row of this plan is a client. ",
    "id": "The rows that this plan protects together are those of one id. ",
}


def write_run_page(
    result: Result,
    path: str | Path,
    *,
    reached: Mapping[str, str] | None = None,
    not_private: Mapping[str, str] | None = None,
    subject: Subject | None = None,
    coefficients: Coefficients | None = None,
) -> Path:
    """Write the page of a run.

    Parameters
    ----------
    result
        The result of `dpsco.train`.
    path
        The file to write.
    reached
        Figures measured on data that you declare public. The page labels them so.
    not_private
        Figures that depend on the rows without noise, such as clip fractions. The page is then marked NOT PRIVATE from
        its first line.
    subject
        Name of the data set, date, label and features, as you state them.
    coefficients
        The model in the units of its reader; that of ``result`` by default.

    Returns
    -------
    Path
        ``path``.

    Guarantee
    ---------
    Without ``not_private``, the page shows the plan, released values, ``subject`` and ``reached`` alone: it may be
    published.
    """
    report, subject = result.report, subject or Subject()
    names, shown = subject.names(result.plan.problem.dimension), coefficients or _coefficients(result, subject)
    # Plan.explain describes Algorithm 1; the facts of the report describe every method.
    explained = report.method == AcceleratedSRGD.name
    return write_html(
        path,
        "run.html.jinja",
        report=report,
        subject=subject,
        summary=subject.facts(result),
        headline=headline_in_words(report),
        coefficients=None if shown is None else shown.section(names, subject.classes),
        facts=report.facts(),
        lists=report.lists(),
        words=guarantee_in_words(report) if report.private else [],
        explanation=_ROWS_ARE[report.record] + result.plan.explain().replace("\n  ", " ") if explained else "",
        predicted=_predicted(result),
        survey=survey_section(result, names),
        reached=dict(reached or {}),
        not_private=dict(not_private or {}),
        curve_plot=_curve(result) if report.private and report.gaussian else "",
        trace_plot=_trace(result),
    )


def _coefficients(result: Result, subject: Subject) -> Coefficients | None:
    named = tuple(subject.names(result.plan.problem.dimension))
    return coefficients_of(result, table=parameter_table(result, names=named, classes=subject.classes))


def _curve(result: Result) -> str:
    report = result.report
    deltas, epsilons = zip(*report.curve, strict=True)
    dot = (report.delta, report.epsilon)
    return line_plot([("epsilon", deltas, epsilons)], x_label="delta", y_label="epsilon", x_log=True, dot=dot)


def _predicted(result: Result) -> dict[str, str]:
    parts = result.prediction
    if parts is None:
        return {}
    return {
        "excess risk": f"{parts.total:.3g}: the expected loss of the model minus that of the best model",
        "of it, optimisation": f"{parts.optimisation:.3g}",
        "of it, privacy noise": f"{parts.noise:.3g}",
        "of it, sampling": f"{parts.sampling:.3g}",
        "of a constant prediction": f"about {loss_scale(result.plan.problem).gap:.3g}, where there is much to learn",
    }


def _trace(result: Result) -> str:
    trace = [each for each in result.trace if each.move > 0]  # a survey moves nothing
    if not trace:
        return ""
    rounds = [each.step + 1 for each in trace]
    series = [
        ("gradient estimate, noise included", rounds, [each.gradient_norm for each in trace]),
        ("length of the move", rounds, [each.move for each in trace]),
    ]
    return line_plot(series, x_label="round", y_label="l2 norm", y_log=True)
