"""Write docs/paper/statements.md from the findings of ``dpsco paper``.

python scripts/write_statements_page.py
"""

from __future__ import annotations

from pathlib import Path

from dpsco.research.paper import STATEMENTS, VERDICTS

PAGE = Path(__file__).parents[1] / "docs" / "paper" / "statements.md"

CLAIMS = {
    "alg:nSGD": (
        r"$x, y, z$ by Nesterov's coupling of two steps on $\nabla_t = \frac{1}{\eta_t} \sum_{i \le t} "
        r"\Delta_i$"
    ),
    "thm:excesspop-simplified": (
        r"$\tilde O\Bigl(\frac{S L + S^2}{\beta \sqrt T} + \frac{S R}{T^{1.5}} + \frac{(S + L)\, b}{T} + "
        r"\frac{\beta b R}{T^2} + \frac{\beta R^2}{T^2}\Bigr)$"
    ),
    "thm:mainthm-simplified": (
        r"$L R\,\mathrm{polylog} \cdot \Bigl(\frac{1}{\sqrt n} + \frac{\sqrt p}{\varepsilon n}\Bigr)$ in one "
        r"epoch, $T = n^{1/4}$ or $\sqrt n$"
    ),
    "sec:unaccelerated": r"$\operatorname{Var}(\nabla_t) = t B/n$, whatever the batch size",
    "thm:excesspop": (
        r"$F(y_T) - F^*$ is at most five sums over the rounds plus $\beta \lVert \mathcal C "
        r"\rVert^2/\eta_{0:T}$, with probability $1 - \gamma$"
    ),
    "lem:potDrop": (
        r"$\Phi_t = \eta_{0:t-1} (F(y_t) - F^*) + 2 \beta \lVert z_t - x^* \rVert^2$ grows by terms in "
        r"$\lVert q_t \rVert$ and $\lVert b_t \rVert$ only"
    ),
    "lem:struct1": (
        r"$\eta_{0:t} (F(y_{t+1}) - F(x_t)) + \eta_t \langle \nabla_t, z_t - z_{t+1} \rangle - 2 \beta \lVert "
        r"z_{t+1} - z_t \rVert^2 \le$ noise terms"
    ),
    "lem:recstruct1": (
        r"$\lVert \nabla F(x_t) \rVert \le c_1 \sqrt M \Bigl(\text{sampling} + \text{noise} + \frac{2 \sqrt "
        r"\beta R}{t + 1}\Bigr)$"
    ),
    "lem:tighter-sens": r"$\lVert \Delta_t(d) \rVert \le c_{DP} L$ for all $t$ and $d$",
    "lem:btm": (r"prefix sums with error at most $\frac{4 C}{\mu} \log^{1.5}(T) \sqrt{p \ln(2T/\delta)}$, $\mu$-GDP"),
    "cor:dp-guarantee": (
        r"$\sigma = \frac{c_{DP} L}{\varepsilon B \beta} \sqrt{\log T \ln(2.5/\delta)}$ is $(\varepsilon, "
        r"\delta)$-DP"
    ),
    "thm:mainthm-1": (
        r"$L R\,\mathrm{polylog} \cdot \Bigl(\frac{1}{\sqrt n} + \frac{\sqrt p}{\varepsilon n}\Bigr)$ with $T "
        r"= c_{DP}\, n^{1/4}$"
    ),
    "lem:sens": (
        r"if $\beta \ge 2 M T$, then $\lVert \Delta_t(d) \rVert \le 2 (M b + 2 M R + L) \le 2 M b + (2 c_M + "
        r"1) L$"
    ),
    "cor:clipnormbound": (
        r"for $p$ below a bound, $\lVert \Delta_t(d) \rVert \le (8 c_M + 4) L$ with probability $1 - \delta/2$"
    ),
    "cor:dp-guarantee-2": (
        r"$\sigma = \frac{(16 \sqrt 2\, c_M + 8 \sqrt 2) L}{\varepsilon B \beta} \sqrt{\log T "
        r"\ln(2.5/\delta)}$ is $(\varepsilon, \delta)$-DP"
    ),
    "thm:mainthm-2": (
        r"$L R \Bigl(\frac{1}{\sqrt n} + \frac{\sqrt p}{\varepsilon n}\,\mathrm{polylog}\Bigr)$ with $B \le "
        r"\sqrt n$, $T = n/B$"
    ),
    "sec:independent": (
        r"$\mathbb E F(y_T) - F^*$ is at most a sum of $\frac{8 L^2}{\sqrt B\, \beta}$ and noise terms, plus "
        r"$\beta R^2/\eta_{0:T}$"
    ),
}
"""What each statement claims, typeset; ``dpsco paper`` prints the same in plain text."""


def main() -> None:
    findings = {statement.label: statement.check(0) for statement in STATEMENTS}
    lines = [
        "# Every statement, checked",
        "",
        "`dpsco paper` evaluates both sides of every numbered statement on random and adversarial instances. This page",
        "shows the findings at seed 0. `python scripts/write_statements_page.py` writes it. `tests/research/paper`",
        "repeats the checks with another seed.",
        "",
        "| statement | label | found |",
        "|---|---|---|",
    ]
    lines += [f"| {s.kind}: {s.title} | `{s.label}` | {VERDICTS[findings[s.label].verdict]} |" for s in STATEMENTS]
    for statement in STATEMENTS:
        found, check = findings[statement.label], statement.check
        lines += [
            "",
            f"## {statement.kind} {statement.label}: {statement.title}",
            "",
            f"> {CLAIMS[statement.label]}",
            "",
        ]
        lines += [f"**{VERDICTS[found.verdict].capitalize()}.** {escape(found.sentence)}", ""]
        lines += [f"Check: `{check.__module__}.{check.__name__}`, {found.instances:,} instances.", ""]
        lines += ["| figure | found |", "|---|---|"]
        lines += [f"| {escape(name)} | {value:.3g} |" for name, value in found.figures.items()]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(lines) + "\n")


def escape(text: str) -> str:
    """Return the text with the markup characters of Markdown escaped."""
    for mark in ("\\", "*", "_", "|", "<", ">"):
        text = text.replace(mark, "\\" + mark)
    return text


if __name__ == "__main__":
    main()
