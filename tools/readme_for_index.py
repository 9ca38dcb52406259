"""Write the README for a package index, which has no other files: links to files become links to the repository.

The environment says where that is (RESPERTURB_REPOSITORY, or the variables of GitHub Actions). Otherwise links to
files become plain text and pictures are left out, rather than broken.
"""

import os
import re
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # only what builds the package has it
    MetadataHookInterface = object


def for_index(readme: str, repository: str | None) -> str:
    """Rewrite links to files of the repository, and leave all others.

    >>> for_index("[docs](docs/a.md), ![plot](b.png)", "https://example.org/r")
    '[docs](https://example.org/r/blob/main/docs/a.md), ![plot](https://example.org/r/raw/main/b.png)'
    >>> for_index("[docs](docs/a.md), ![plot](b.png) [arXiv](https://arxiv.org)", None)
    'docs,  [arXiv](https://arxiv.org)'
    """
    link = re.compile(r"(!?)\[((?:!\[[^]]*\]\([^)]*\)|[^]])*)\]\((?!https?://|#)([^)]+)\)")

    def rewrite(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        text = link.sub(rewrite, text)
        if repository is None:
            return "" if picture else text
        if target.startswith("../../"):  # a page of the repository's site, such as the state of its tests
            return f"{picture}[{text}]({repository}/{target.removeprefix('../../')})"
        return f"{picture}[{text}]({repository}/{'raw' if picture else 'blob'}/main/{target})"

    return link.sub(rewrite, readme)


def repository_of(environment: dict[str, str]) -> str | None:
    """Return the address of the repository, if the environment names it."""
    if "GITHUB_REPOSITORY" in environment:
        default = f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{environment['GITHUB_REPOSITORY']}"
        return environment.get("RESPERTURB_REPOSITORY", default)
    return environment.get("RESPERTURB_REPOSITORY")


class ReadmeHook(MetadataHookInterface):  # type: ignore[misc]
    """Set the description of the package, and its address where known."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = repository_of(dict(os.environ))
        with open(os.path.join(self.root, "README.md")) as file:
            text = for_index(file.read(), repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if repository is not None:
            metadata["urls"] = {"Repository": repository}
