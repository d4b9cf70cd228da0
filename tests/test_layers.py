"""The layers of the code: which package may import which, no circles, and nothing but names in an ``__init__``.

Every import statement of the source counts: those within functions, and those for type checkers alone, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {
    "searchlab": ROOT,
    "searchlab_spaces": ROOT / "spaces",
    "searchlab_policies": ROOT / "policies",
    "searchlab_costmodels": ROOT / "costmodels",
}

LAYERS = [
    {"units"},
    {"errors", "console", "arrays", "survival", "notebook"},
    {"files", "foreign_code", "stats"},
    {"options", "parquet"},
    {"schema", "source"},
    {"plugins"},
    {"workload", "machine", "target"},
    {"space"},
    {"metaschedule", "records"},
    {"policy"},
    {"costmodel"},
    {"log"},
    {"measure", "analysis"},
    {"apply", "exchange", "executors"},
    {"run"},
    {"model"},
    {"tables", "hypertune", "conformance"},
    {"suite"},
    {"cli"},
]
"""The packages of the core, lowest layer first: a package imports its own modules, and packages of lower layers."""

SAME_LAYER = {("target", "machine")}
"""Imports within a layer."""

CONTRACTS = {
    "arrays",
    "errors",
    "foreign_code",
    "options",
    "plugins",
    "workload",
    "machine",
    "target",
    "space",
    "metaschedule",
    "records",
    "policy",
    "costmodel",
}
"""What a plug-in may import of the core."""

FILES = {"searchlab.log", "searchlab.log.journal", "searchlab.log.lease"}
"""Modules that a plug-in may import, too, in order to record what it cannot compute again."""


def modules() -> dict[str, Path]:
    """Every module of the four packages, by name."""
    paths = {}
    for package, source in SOURCES.items():
        for path in (source / package).rglob("*.py"):
            parts = path.relative_to(source).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


@cache
def imports() -> dict[str, set[str]]:
    """The modules of the four packages that each of them imports; a package stands for its ``__init__``."""
    paths = modules()
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            for target in imported_names(node, package):
                # ``from package import module`` names a module, ``from module import name`` what is in it.
                module = target if target in paths else target.rpartition(".")[0]
                if module in paths and module != name:
                    graph[name].add(module)
                    # The packages above it are run too, but for those that the importer is in itself.
                    parents = (module[:i] for i, letter in enumerate(module) if letter == ".")
                    graph[name] |= {up for up in parents if not f"{name}.".startswith(f"{up}.")}
    return graph


def imported_names(node: ast.AST, package: str) -> Iterator[str]:
    """``module.name`` of everything that an import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        yield from (f"{module}.{alias.name}" for alias in node.names)


def package_of(module: str) -> str:
    """The package of a module of the core; empty for ``searchlab`` itself."""
    return module.split(".")[1] if "." in module else ""


def test_no_import_runs_in_a_circle() -> None:
    graph = imports()
    reached: dict[str, set[str]] = {}
    for start in graph:
        visited: set[str] = set()
        todo = list(graph[start])
        while todo:
            module = todo.pop()
            if module not in visited:
                visited.add(module)
                todo += graph[module]
        reached[start] = visited
    assert [module for module in graph if module in reached[module]] == []


def test_every_package_has_a_layer_and_arrows_point_downwards() -> None:
    layer_of = {name: number for number, names in enumerate(LAYERS) for name in names}
    upwards = []
    for module, targets in imports().items():
        source = package_of(module)
        if not module.startswith("searchlab.") or source == "__main__":
            continue
        assert source in layer_of, f"{source!r} has no layer: add it to LAYERS"
        for target in targets:
            imported = package_of(target)
            if not target.startswith("searchlab.") or imported == source or (source, imported) in SAME_LAYER:
                continue
            if layer_of[imported] >= layer_of[source]:
                upwards.append(f"{module} -> {target}")
    assert upwards == []


def test_analysis_imports_only_the_log_and_its_parts() -> None:
    graph = imports()
    reached = {target for module in graph if package_of(module) == "analysis" for target in graph[module]}
    packages = {package_of(target) for target in reached if target.startswith("searchlab.")} - {"analysis"}
    assert packages <= {
        "log",
        "records",
        "costmodel",
        "space",
        "plugins",
        "options",
        "workload",
        "errors",
        "notebook",
        "console",
        "units",
        "arrays",
        "files",
        "schema",
        "stats",
    }


def test_the_core_imports_no_plug_in() -> None:
    outside = {
        f"{module} -> {target}"
        for module, targets in imports().items()
        for target in targets
        if module.split(".")[0] == "searchlab" and target.split(".")[0] != "searchlab"
    }
    assert outside == set()


def test_plug_ins_import_the_contracts_and_not_each_other() -> None:
    violations = []
    for module, targets in imports().items():
        package = module.split(".")[0]
        if package == "searchlab":
            continue
        for target in targets:
            foreign = target.split(".")[0] not in (package, "searchlab")
            of_core = target.startswith("searchlab.") and target not in FILES
            if foreign or (of_core and package_of(target) not in CONTRACTS):
                violations.append(f"{module} -> {target}")
    assert violations == []


@pytest.mark.parametrize("name", sorted(name for name, path in modules().items() if path.name == "__init__.py"))
def test_an_init_only_hands_names_on(name: str) -> None:
    tree = ast.parse(modules()[name].read_text())
    allowed = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign)
    if name == "searchlab":  # its names are imported when they are first used
        allowed += (ast.If, ast.FunctionDef)
    assert [type(node).__name__ for node in tree.body if not isinstance(node, allowed)] == []
