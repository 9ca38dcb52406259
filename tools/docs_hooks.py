"""Add to the documentation site: commands, the API, a menu of existing pages, examples of docstrings."""

import json
import re
from pathlib import Path
from typing import Any

from griffe import Extension
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

COMMANDS = "reference/commands.md"
# Packages with a page of public names in the reference, and modules whose internals it shows too.
API: dict[str, tuple[str, ...]] = {
    "perturbation": (),
    "models": ("models.adapt",),
    "data": ("data.canaries", "data.storage"),
    "training": (),
    "auditing": (),
    "attacks": ("attacks.lira", "attacks.rmia", "attacks.bavaria", "attacks.quantile"),
    "frontiers": (),
    "bounds": (),
    "heads": ("privacy.dp_head",),
    "features": (),
    "privacy": ("privacy.gaussian", "privacy.accounting"),
    "report": ("report.page", "report.section", "report.subject", "report.folders", "report.policy", "report.gate"),
    "engine": (),
    "registry": (),
    "noise": (),
}
SECURITY = Path(__file__).parents[1] / "SECURITY.md"
NOTEBOOK = Path(__file__).parents[1] / "examples" / "audit.ipynb"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of commands and of the API, SECURITY.md and the notebook; leave missing pages out."""
    files.append(File.generated(config, COMMANDS, content=commands_page()))
    for package in API:
        files.append(File.generated(config, f"reference/{package}.md", content=api_page(package)))
    files.append(File.generated(config, "security.md", content=SECURITY.read_text()))
    files.append(File.generated(config, "notebook.md", content=notebook_page(NOTEBOOK)))
    present = {file.src_uri for file in files}
    config.nav = _existing(config.nav, present)
    return files


def _existing(nav: Any, present: set[str]) -> list[Any]:
    kept = []
    for entry in nav:
        [(title, target)] = entry.items()
        if isinstance(target, list):
            kept.append({title: _existing(target, present)})
        elif target in present:
            kept.append(entry)
    return kept


def notebook_page(notebook: Path) -> str:
    """Write the cells of a notebook, without their output."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(notebook.read_text())["cells"]]
    parts = [source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in cells]
    title, *rest = parts
    where = f"*This page is `examples/{notebook.name}` in the repository; open it with Jupyter or VS Code.*"
    return "\n\n".join([title, where, *rest]) + "\n"


def api_page(package: str) -> str:
    """Return the page of a package: its public names, then its internals.

    >>> print(api_page("features"))
    # resperturb.features
    <BLANKLINE>
    ::: resperturb.features
    """
    parts = [f"# resperturb.{package}", f"::: resperturb.{package}"]
    if API[package]:
        parts += ["## Internals", "They may change in any version."]
    for module in API[package]:
        options = '    options: {heading_level: 4, filters: ["!^_"]}'
        parts.append(f"### resperturb.{module}\n\n::: resperturb.{module}\n{options}")
    return "\n\n".join(parts)


def commands_page() -> str:
    """Write every command with its help and its options."""
    import typer

    from resperturb.cli import app

    lines = ["# Commands", "", "What `resperturb COMMAND --help` says."]
    _describe(typer.main.get_command(app), "resperturb", lines)
    return "\n".join(lines) + "\n"


def _describe(command: Any, name: str, lines: list[str]) -> None:
    for child_name, child in getattr(command, "commands", {}).items():
        if child.hidden:
            continue
        path = f"{name} {child_name}"
        lines += ["", f"## {path}", "", (child.help or "").strip()]
        if hasattr(child, "commands"):
            _describe(child, path, lines)
            continue
        rows = [_row(parameter) for parameter in _parameters(child) if getattr(parameter, "help", None)]
        if rows:
            lines += ["", "| | | default |", "|---|---|---|", *rows]


def _parameters(command: Any) -> list[Any]:
    return [
        one for one in command.get_params(command.make_context("", [], resilient_parsing=True)) if one.name != "help"
    ]


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in parameter.opts if name.startswith("-"))
    names = names or f"`{(parameter.metavar or parameter.name).upper()}`"
    default = parameter.default
    shown = "" if default in (None, False, ()) or callable(default) or not str(default).strip() else f"`{default}`"
    if getattr(parameter, "required", False):
        shown = "required"
    return f"| {names} | {str(parameter.help).replace('|', '/')} | {shown} |"


class Docstrings(Extension):  # type: ignore[misc]
    """Show examples in docstrings as code, and names in them as names."""

    def on_instance(self, *, obj: Any, **others: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_class_members(self, *, cls: Any, **others: Any) -> None:
        """Leave out members that only check fields."""
        cls.members.pop("__post_init__", None)


def markdown(docstring: str) -> str:
    """Fence examples, and take the roles off names: ``:func:`x``` becomes a plain name.

    >>> print(markdown("See :func:`add`.\\n\\n>>> add(1)\\n2"))
    See `add`.
    <BLANKLINE>
    ```pycon
    >>> add(1)
    2
    ```
    """
    plain = re.sub(r":(?:class|func|meth|mod):`~?([^`]+)`", r"`\1`", docstring)
    paragraphs = re.split(r"\n\s*\n", plain)
    return "\n\n".join(f"```pycon\n{part}\n```" if part.lstrip().startswith(">>>") else part for part in paragraphs)
