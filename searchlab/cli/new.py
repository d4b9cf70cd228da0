"""``searchlab new``: write a package with a plug-in."""

from __future__ import annotations

import getpass
import re
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

from jinja2 import Environment, PackageLoader, StrictUndefined
from typer import Argument, Option

from ..errors import SearchlabError
from ..files import write_file
from .plugins import Contract
from .terminal import say

DETAILS = {
    Contract.policy: ("policy", "policies", "PolicyTests", ""),
    Contract.space: ("space", "spaces", "SpaceTests", ""),
    Contract.costmodel: ("cost model", "costmodels", "CostModelTests", ""),
    Contract.workload: ("workload", "workloads", "WorkloadTests", ":64x64"),
}
"""For each kind of plug-in, its title, its entry-point group, the class of its tests, and an instance to test."""


def new(
    kind: Annotated[Contract, Argument(help="What to write.")],
    name: Annotated[
        str, Argument(help="The name under which the package registers the plug-in, such as `hill-climb`.")
    ],
    directory: Annotated[Path | None, Option("--out", help="The directory to create [default: NAME].")] = None,
    author: Annotated[str, Option(help="The author's name [default: your login name].")] = "",
) -> None:
    """Write a package with a plug-in: its class, its tests, a study, a README and a pyproject.toml.

    Everything works at once, before the package is installed; then replace the example in the class by your idea.
    """
    directory = directory or Path(name)
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or iskeyword(module):
        raise SearchlabError(
            f"{name!r} cannot be the name of a plug-in and its package; use lower-case letters, digits and hyphens, "
            f"such as hill-climb"
        )
    if find_spec(module):
        raise SearchlabError(f"a Python module {module} already exists here; choose another name than {name}")
    if directory.exists():
        raise SearchlabError(f"{directory} already exists; choose another directory (--out)")
    title, group, tests, example = DETAILS[kind]
    environment = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    fields = {
        "kind": kind,
        "name": name,
        "author": author or getpass.getuser(),
        "module": module,
        "cls": "".join(part.capitalize() for part in name.split("-")),
        "title": title,
        "group": group,
        "tests": tests,
        "example": example,
    }
    files = {
        "pyproject.toml": "pyproject.toml",
        f"{module}.py": f"{kind}.py",
        f"test_{module}.py": "test.py",
        "study.toml": "study.toml",
        "README.md": "README.md",
    }
    for file, template in files.items():
        write_file(directory / file, environment.get_template(f"{template}.jinja").render(fields))
    say(f"{directory} contains a {title} that works; its README.md explains what to do next")
