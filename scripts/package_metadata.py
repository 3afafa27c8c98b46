"""Build hook: project URLs, and a README whose links and pictures work on a package index.

The repository's address is written nowhere in the sources. The environment variable ``REPOSITORY_URL`` holds it while a
package is built. Workflows set it from the repository in which they run, so a fork or a move needs no edit.

With the variable, each relative link of README.md becomes an absolute one to the tag of the version, and the project
gets its URLs. Without it (an editable install, a build at home), relative links become plain text and pictures are left
out: a page never has a dead link.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ModuleNotFoundError:  # tests read the functions where no package is built
    MetadataHookInterface = object

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")
PAPER = "https://arxiv.org/abs/2406.02716"


def index_readme(text: str, repository: str, version: str) -> str:
    """Return the README for a package index.

    Parameters
    ----------
    text : str
        README.md with links relative to the root of the repository.
    repository : str
        Address of the repository, such as ``https://host/owner/name``; empty if it is not known.
    version : str
        Links lead to the tag ``v<version>``.

    Returns
    -------
    str
        The same text without a relative link.
    """

    def absolute(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        if repository:
            return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/v{version}/{target})"
        return "" if picture else words

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(absolute, text))


def urls(repository: str, version: str) -> dict[str, str]:
    """Return ``[project.urls]``; the paper alone if the repository is not known."""
    if not repository:
        return {"Paper": PAPER}
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/v{version}/docs/index.md",
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Security": f"{repository}/security/policy",
        "Paper": PAPER,
    }


class PackageMetadata(MetadataHookInterface):
    """Fills ``readme`` and ``urls``, which pyproject.toml declares dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository, version = os.environ.get("REPOSITORY_URL", "").rstrip("/"), str(metadata["version"])
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_readme(text, repository, version)}
        metadata["urls"] = urls(repository, version)
