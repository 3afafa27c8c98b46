"""Files around the package: pinned dependencies, package metadata, workflows and the release check."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dpsco.research.paper import STATEMENTS

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("wanted", "oldest"),
    [
        ("numpy>=1.26", "numpy==1.26"),
        ("jax >= 0.10, <0.11", "jax==0.10, <0.11"),
        ("torch==2.13.0", "torch==2.13.0"),
        ("mkdocstrings[python]>=0.26", "mkdocstrings[python]==0.26"),
        ("atheris>=3.0; python_version >= '3.11'", "atheris==3.0; python_version >= '3.11'"),
    ],
)
def test_the_oldest_version_of_a_range_is_its_lower_bound(wanted: str, oldest: str) -> None:
    assert script("oldest_dependencies").pinned(wanted) == oldest


def test_a_range_without_a_lower_bound_has_no_oldest_version() -> None:
    with pytest.raises(ValueError, match="no lower bound"):
        script("oldest_dependencies").pinned("numpy<3; python_version >= '3.11'")


def test_every_extra_of_the_oldest_environment_exists_and_is_pinned() -> None:
    makefile = (ROOT / "Makefile").read_text()
    extras = re.search(r"^OLDEST := (.*)$", makefile, re.M)[1].split()
    lines = script("oldest_dependencies").oldest((ROOT / "pyproject.toml").read_text(), extras)
    assert len(lines) > 15
    assert all("==" in line.partition(";")[0] for line in lines)


def test_the_readme_of_a_package_index_has_no_relative_link() -> None:
    metadata = script("package_metadata")
    readme = (ROOT / "README.md").read_text()
    relative = metadata.LINK.findall(readme)
    assert len(relative) > 10
    known = metadata.index_readme(readme, "https://host.example/owner/name", "1.2.3")
    assert metadata.LINK.findall(known) == []
    for picture, words, target in relative:
        kind = "raw" if picture else "blob"
        assert f"{picture}[{words}](https://host.example/owner/name/{kind}/v1.2.3/{target})" in known
    unknown = metadata.index_readme(readme, "", "1.2.3")
    assert metadata.LINK.findall(unknown) == []
    assert "Excess risk against the number of rounds" not in unknown  # the picture
    assert "all figures" in unknown  # the words of a link


def test_project_urls_are_known_only_with_the_repository() -> None:
    metadata = script("package_metadata")
    assert list(metadata.urls("", "1.2.3")) == ["Paper"]
    known = metadata.urls("https://host.example/owner/name", "1.2.3")
    assert {"Homepage", "Documentation", "Changelog", "Issues", "Security", "Paper"} == set(known)


def test_every_step_of_a_workflow_is_a_make_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
    assert len(WORKFLOWS) == 3
    for workflow in WORKFLOWS:
        commands = re.findall(r"^\s*(?:- )?run: (.*)$", workflow.read_text(), re.M)
        assert commands, workflow.name
        for command in commands:
            program, target = command.split()[:2]
            assert program == "make", command
            assert target in targets, command


def test_every_action_is_pinned_to_a_commit() -> None:
    for workflow in WORKFLOWS:
        for action in re.findall(r"uses: (.*)$", workflow.read_text(), re.M):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_every_declared_python_is_tested() -> None:
    declared = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    assert f"python: {declared}".replace("'", '"') in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_a_release_needs_the_same_version_everywhere_and_a_day(tmp_path: Path) -> None:
    release = script("check_release")
    (tmp_path / "src" / "dpsco").mkdir(parents=True)
    (tmp_path / "src" / "dpsco" / "version.py").write_text('__version__ = "0.9.0"\n')
    (tmp_path / "CITATION.cff").write_text("version: 0.8.0\n")
    (tmp_path / "CHANGELOG.md").write_text("## 0.9.0 (unreleased)\n")
    found = release.disagreements("v0.9.1", tmp_path)
    assert [sentence.split()[0] for sentence in found] == ["The", "CHANGELOG.md", "CITATION.cff"]
    (tmp_path / "CITATION.cff").write_text("version: 0.9.0\n")
    (tmp_path / "CHANGELOG.md").write_text("## 0.9.0 (2027-01-31)\n")
    assert release.disagreements("v0.9.0", tmp_path) == []


def test_the_changelog_has_an_entry_for_this_version() -> None:
    version = script("check_release").declared_version(ROOT)
    assert re.search(rf"^## {re.escape(version)} \(", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_every_statement_of_the_paper_has_a_typeset_claim_and_the_page_shows_it() -> None:
    page = (ROOT / "docs" / "paper" / "statements.md").read_text()
    claims = script("write_statements_page").CLAIMS
    assert list(claims) == [statement.label for statement in STATEMENTS]
    for claim in claims.values():
        assert f"\n> {claim}\n" in page


def test_formulas_are_typeset_without_a_network() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    for name in ("katex/katex.min.js", "katex/katex.min.css", "math.js", "site.css"):
        assert f"- assets/{name}\n" in settings
        assert "http" not in re.sub(r"https?://www\.w3\.org/\S+", "", (ROOT / "docs/assets" / name).read_text())
    styles = (ROOT / "docs/assets/katex/katex.min.css").read_text()
    fonts = set(re.findall(r"url\((fonts/[^)]+)\)", styles))
    assert {f"fonts/{path.name}" for path in (ROOT / "docs/assets/katex/fonts").iterdir()} == fonts
