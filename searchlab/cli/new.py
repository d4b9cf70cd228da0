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
from .plugins import KINDS_BY_NAME, Contract
from .terminal import say


def new(
    kind: Annotated[Contract, Argument(help="What to write.")],
    name: Annotated[
        str, Argument(help="The name under which the package registers the plug-in, such as `hill-climb`.")
    ],
    package_dir: Annotated[Path | None, Option("--out", help="The directory to create [default: NAME].")] = None,
    author: Annotated[str, Option(help="The author's name [default: your login name].")] = "",
) -> None:
    """Write a package with a plug-in: its class, its tests, a study, a README and a pyproject.toml.

    Everything works at once, before the package is installed; then replace the example in the class by your idea.
    """
    package_dir = package_dir or Path(name)
    module_name = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or iskeyword(module_name):
        raise SearchlabError(
            f"{name!r} cannot be the name of a plug-in and its package; use lower-case letters, digits and hyphens, "
            f"such as hill-climb"
        )
    if find_spec(module_name):
        raise SearchlabError(f"a Python module {module_name} already exists here; choose another name than {name}")
    if package_dir.exists():
        raise SearchlabError(f"{package_dir} already exists; choose another directory (--out)")
    plugin_kind = KINDS_BY_NAME[kind]
    environment = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    template_variables = {
        "kind": kind,
        "name": name,
        "author": author or getpass.getuser(),
        "module": module_name,
        "cls": "".join(word.capitalize() for word in name.split("-")),
        "title": plugin_kind.title,
        "group": plugin_kind.group,
        "tests": f"{plugin_kind.contract.__name__}Tests",
        "example": ":64x64" if kind is Contract.workload else "",
    }
    templates_by_file = {
        "pyproject.toml": "pyproject.toml",
        f"{module_name}.py": f"{kind}.py",
        f"test_{module_name}.py": "test.py",
        "study.toml": "study.toml",
        "README.md": "README.md",
    }
    for file_name, template in templates_by_file.items():
        write_file(package_dir / file_name, environment.get_template(f"{template}.jinja").render(template_variables))
    say(f"{package_dir} contains a {plugin_kind.title} that works; its README.md explains what to do next")
