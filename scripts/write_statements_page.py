"""Write docs/paper/statements.md from what the checks of ``dpsco paper`` find now.

python scripts/write_statements_page.py
"""

from __future__ import annotations

from pathlib import Path

from dpsco.research.paper import STATEMENTS, VERDICTS

PAGE = Path(__file__).parents[1] / "docs" / "paper" / "statements.md"


def main() -> None:
    findings = {statement.label: statement.check(0) for statement in STATEMENTS}
    lines = [
        "# Every statement, checked",
        "",
        "`dpsco paper` evaluates both sides of every numbered statement on random and adversarial instances. This page",
        "is what it found at seed 0, written by `python scripts/write_statements_page.py`; `tests/paper` repeats it",
        "with another seed.",
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
            f"> {escape(statement.claim)}",
            "",
        ]
        lines += [f"**{VERDICTS[found.verdict].capitalize()}.** {escape(found.sentence)}", ""]
        lines += [f"Check: `{check.__module__}.{check.__name__}`, {found.instances:,} instances.", ""]
        lines += ["| figure | found |", "|---|---|"]
        lines += [f"| {escape(name)} | {value:.3g} |" for name, value in found.figures.items()]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(lines) + "\n")


def escape(text: str) -> str:
    """What Markdown would read as markup stands for itself."""
    for mark in ("\\", "*", "_", "|", "<", ">"):
        text = text.replace(mark, "\\" + mark)
    return text


if __name__ == "__main__":
    main()
