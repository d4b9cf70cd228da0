"""Digests of source code, which tell whether the code that decides a run is still the code that produced its log.

A digest covers the syntax trees of the modules, so comments, docstrings and whitespace do not count. It does not cover
files that a plug-in reads while it runs, nor other distributions, whose versions logs record instead.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

CORE = Path(__file__).parent
"""The directory of the core package."""

_AFTER_RUNS = ("analysis", "apply", "cli", "conformance", "exchange", "model", "suite", "tables", "watch")
"""The core's packages in layers above ``run``, which cannot change the trials of a run."""

_LIBRARIES = {"site-packages", "dist-packages"}
"""The directories in which distributions are installed."""


@functools.cache
def core_digest() -> str:
    """Return the digest of the files of searchlab itself that take part in a run, in which comments do count."""
    files = (path for path in CORE.rglob("*.py") if path.relative_to(CORE).parts[0] not in _AFTER_RUNS)
    return _digest(f"{path.relative_to(CORE)} {_bytes(path)}" for path in sorted(files))


def source_digest(*objects: Any) -> str:
    """Return the digest of the code that defines classes and functions.

    It covers the modules that define the objects and their base classes, and all modules that these import, directly or
    indirectly, unless they belong to the standard library or to another installed distribution. An installed package
    counts as a whole, with its version and all its files. The core has its own digest; see :func:`core_digest`.

    Args:
        objects: Classes or functions. Their modules have been imported.

    Example:
        >>> from searchlab.policy import NeverTwice, Policy
        >>> source_digest(Policy) == source_digest(NeverTwice)
        True
    """
    parts: set[str] = set()
    pending: set[str] = set()
    for item in objects:
        for definition in item.__mro__ if isinstance(item, type) else (item,):
            name = getattr(definition, "__module__", None) or ""
            if _path_of(name) is not None:
                pending.add(name)
            elif name not in sys.stdlib_module_names:
                parts.update(_code_of(definition))
    packages = {_package(name) for name in pending}
    visited: set[str] = set()
    while pending:
        name = pending.pop()
        visited.add(name)
        package = _package(name)
        path = None if package in sys.stdlib_module_names else _path_of(name)
        if path is None or _is_under(path, CORE):
            continue
        if _LIBRARIES.intersection(path.parts):
            if package in packages:
                parts.add(_installed(package))
            continue
        parts.add(f"{name} {_imported_tree(name, path)}")
        pending.update(_imports(path, _parent_package(name, path)) - visited)
    return _digest(sorted(parts))


_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NAMES = ("__doc__", "__module__", "__firstlineno__")


def files_digest(paths: Iterable[Path]) -> str:
    """Return the digest of the content of files, which is read again only if a file's size or time changes."""
    return _digest(_content(path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths)


@functools.lru_cache(1024)
def _content(path: Path, changed: int, size: int) -> str:
    return _bytes(path)


def _package(module: str) -> str:
    return module.partition(".")[0]


def _parent_package(name: str, path: Path) -> str:
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def _is_under(path: Path, folder: Path) -> bool:
    return str(path).startswith(os.path.join(folder, ""))


def _path_of(name: str) -> Path | None:
    """Return the source file of a module, or None if it has none or cannot be found; nothing is imported."""
    module = sys.modules.get(name)
    origin = _origin(name, tuple(sys.path)) if module is None else getattr(module, "__file__", None)
    return Path(os.path.realpath(origin)) if origin and origin.endswith(".py") and os.path.isfile(origin) else None


@functools.lru_cache(4096)
def _origin(name: str, path: tuple[str, ...]) -> str | None:
    """Return the file of a module that has not been imported; its parent package has been, or is found in its turn."""
    parent, _, last = name.rpartition(".")
    if not parent:
        spec = PathFinder.find_spec(name, list(path))
    elif parent in sys.modules:
        spec = PathFinder.find_spec(last, list(getattr(sys.modules[parent], "__path__", ())))
    else:
        package = _path_of(parent)
        is_package = package is not None and package.name == "__init__.py"
        spec = PathFinder.find_spec(last, [str(package.parent)]) if package is not None and is_package else None
    return spec.origin if spec else None


_imported: dict[str, tuple[object, str]] = {}
"""The digest of each imported module's tree, with the module's specification, which a reload replaces."""


def _imported_tree(name: str, path: Path) -> str:
    """Return the digest of the tree of a module's file, as it was when this was first called after its import.

    A file that changes after its module was imported has no effect on this process until the module is reloaded.
    """
    module = sys.modules.get(name)
    if module is None:
        return _tree(path)
    specification = getattr(module, "__spec__", None) or module
    if name not in _imported or _imported[name][0] is not specification:
        _imported[name] = specification, _tree(path)
    return _imported[name][1]


@functools.lru_cache(4096)
def _read(path: Path, changed: int, size: int) -> tuple[str, tuple[tuple[int, str, str], ...]]:
    """Return a digest of a file's syntax tree without docstrings, and all its imports as (level, module, name)."""
    data = path.read_bytes()
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return hashlib.sha256(data).hexdigest(), ()
    imports: set[tuple[int, str, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update((0, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports.update((node.level, node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    digest = hashlib.sha256(ast.dump(tree).encode("utf-8", "surrogatepass")).hexdigest()
    return digest, tuple(sorted(imports))


def _tree(path: Path) -> str:
    state = path.stat()
    return _read(path, state.st_mtime_ns, state.st_size)[0]


def _imports(path: Path, package: str) -> set[str]:
    """Return the names of all modules that a module in ``package`` may import, with their parent packages."""
    state = path.stat()
    modules: set[str] = set()
    for level, base, name in _read(path, state.st_mtime_ns, state.st_size)[1]:
        parents = package.split(".")
        module = ".".join([*parents[: len(parents) - level + 1], base]).strip(".") if level else base
        parts = [*module.split("."), name]
        modules.update(".".join(parts[:length]) for length in range(1, len(parts) + 1 - (not name)))
    return modules - {""}


@functools.cache
def _installed(package: str) -> str:
    """Return the version of an installed package and the digests of all its files."""
    path = _path_of(package)
    assert path is not None
    files = sorted(path.parent.rglob("*")) if path.name == "__init__.py" else [path]
    parts = [
        f"{file.name} {_tree(file) if file.suffix == '.py' else _bytes(file)}"
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    ]
    try:
        number = version(package)
    except PackageNotFoundError:
        number = ""
    return f"{package} {number} {_digest(parts)}"


def _bytes(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _code_of(item: Any) -> Iterator[str]:
    """Yield the code of a class or function without a file, and of what it refers to in its own namespace."""
    pending, visited = [item], set()
    while pending:
        current = pending.pop()
        if id(current) in visited:
            continue
        visited.add(id(current))
        if isinstance(current, type):
            if current.__module__ in ("builtins", "abc", "typing"):
                continue
            for name, value in sorted(vars(current).items()):
                value = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
                if isinstance(value, FunctionType):
                    pending.append(value)
                elif isinstance(value, bool | int | float | str | tuple | None) and name not in _NAMES:
                    yield f"{current.__qualname__}.{name} = {value!r}"
        elif isinstance(current, FunctionType):
            yield f"{current.__qualname__} {_code_digest(current.__code__)} {current.__defaults__!r}"
            yield f"{sorted((current.__kwdefaults__ or {}).items())!r}"
            for name in current.__code__.co_names:
                value = current.__globals__.get(name)
                if getattr(value, "__module__", None) == current.__module__:
                    pending.append(value)
                elif isinstance(value, bool | int | float | str):
                    yield f"{name} = {value!r}"


def _code_digest(code: CodeType) -> str:
    constants = [_code_digest(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    if code.co_consts and isinstance(code.co_consts[0], str):  # a docstring
        constants = constants[1:]
    return _digest([code.co_code.hex(), *constants, *code.co_names, *code.co_varnames])


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
