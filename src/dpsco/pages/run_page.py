"""One self-contained HTML page a run: promise, plan, what happened, what it reached on public data."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from dpsco.errors import ExtraMissing
from dpsco.json_files import write_atomic
from dpsco.methods import AcceleratedSRGD
from dpsco.pages.plain_words import promise_in_words
from dpsco.pages.plots import line_plot
from dpsco.run.result import Result

__all__ = ["write_page"]


def write_page(
    result: Result,
    path: str | Path,
    *,
    reached: Mapping[str, str] | None = None,
    not_private: Mapping[str, str] | None = None,
) -> Path:
    """Write the page of ``result`` to ``path`` and return it.

    ``reached`` holds figures measured on data you declare public; they are shown as such. Everything else on
    the page comes from the plan and from released values, so the page may be published. ``not_private`` holds
    figures that depend on the rows without noise (clip fractions, training loss): the page is then marked NOT
    PRIVATE from its first line, and is for whoever may see the data.
    """
    try:
        import jinja2
    except ImportError:
        raise ExtraMissing("The page needs jinja2 and matplotlib: install dpsco[report].") from None
    template = files("dpsco.pages").joinpath("run_page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    html = environment.from_string(template).render(
        report=result.report,
        facts=result.report.facts(),
        lists=result.report.lists(),
        words=promise_in_words(result.report) if result.report.private else [],
        # The words of a plan are those of Algorithm 1; what another method did with it is in the facts.
        explanation=result.plan.explain().replace("\n  ", " ")
        if result.report.algorithm == AcceleratedSRGD.name
        else "",
        predicted=_predicted(result),
        reached=dict(reached or {}),
        not_private=dict(not_private or {}),
        curve_plot=_curve(result) if result.report.private and result.report.gaussian else "",
        trace_plot=_trace(result),
    )
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, html.encode())
    return target


def _curve(result: Result) -> str:
    report = result.report
    deltas, epsilons = zip(*report.curve, strict=True)
    return line_plot(
        [("epsilon", deltas, epsilons)],
        x_label="delta",
        y_label="epsilon",
        x_log=True,
        mark=(report.delta, report.epsilon),
    )


def _predicted(result: Result) -> dict[str, str]:
    parts = result.plan.prediction
    if parts is None:
        return {}
    return {
        "excess risk": f"{parts.total:.3g}: how far the model's expected loss is above the best model's",
        "of it, optimisation": f"{parts.optimisation:.3g}",
        "of it, privacy noise": f"{parts.noise:.3g}",
        "of it, sampling": f"{parts.sampling:.3g}",
    }


def _trace(result: Result) -> str:
    if not result.trace:
        return ""
    steps = [r.step + 1 for r in result.trace]
    series = [
        ("gradient estimate, noise included", steps, [r.gradient_norm for r in result.trace]),
        ("step length", steps, [r.move for r in result.trace]),
    ]
    return line_plot(series, x_label="round", y_label="l2 norm", y_log=True)
