"""Digests of source code, which tell whether the code that decides a run is still the code that produced its log.

A digest covers the syntax trees of the modules, so comments, docstrings and whitespace do not count, and the plain
values to which a user's classes and functions refer. It does not cover files that a plug-in reads while it runs, nor
other distributions, whose versions logs record instead.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pkgutil import get_importer
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .options import is_numpy

CORE = Path(__file__).parent
"""The directory of the core package."""

_AFTER_RUNS = ("analysis", "apply", "cli", "conformance", "exchange", "model", "suite", "tables")
"""The core's packages in layers above ``run``, which cannot change the trials of a run."""

SCRIPT = "__main__"
"""The module of a script, of which only the classes and functions count to which the objects refer.

Its other lines, such as the arguments of ``tune``, may change at any time.
"""

MAX_NUMBERS = 1000
"""Larger arrays are data rather than code, so only their shapes count."""

_SITE_FOLDERS = {"site-packages", "dist-packages"}
"""The names of the directories in which distributions are installed by default."""

_STANDARD = Path(os.path.realpath(sysconfig.get_path("stdlib")))
"""The directory of the standard library. A user's module may have the name of one of its modules."""


@functools.cache
def core_digest() -> str:
    """Return the digest of the files of searchlab itself that take part in a run, in which comments do count."""
    files = (path for path in CORE.rglob("*.py") if path.relative_to(CORE).parts[0] not in _AFTER_RUNS)
    return _digest(f"{path.relative_to(CORE)} {_file_digest(path)}" for path in sorted(files))


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
    definitions = [base for item in objects for base in (item.__mro__ if isinstance(item, type) else (item,))]
    modules = [getattr(_unwrap(item), "__module__", None) or "" for item in definitions]
    packages = {_package(name) for name in modules if _has_file(name)}
    referenced = _ReferencedCode(definitions)
    parts, pending = referenced.code, referenced.modules
    visited: set[str] = set()
    while pending:
        name = pending.pop()
        visited.add(name)
        package = _package(name)
        path = _path_of(name)
        if path is None or _is_under(path, CORE):
            continue
        if _is_installed(path):
            if package in packages:
                parts.add(_distribution_digest(package))
        elif not _is_under(path, _STANDARD):
            if name != SCRIPT:
                parts.add(f"{name} {_imported_tree(name, path)}")
            pending |= _imported_modules(path, _parent_package(name, path)) - visited
    return _digest(sorted(parts))


_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NAMES = {"__doc__", "__module__", "__firstlineno__", "__static_attributes__", "__dict__", "__weakref__"}
_PLAIN = (str, int, float, complex, bytes, type(None), set, frozenset)
_HAS_DOCSTRING: int = getattr(inspect, "CO_HAS_DOCSTRING", 0)  # since Python 3.14


def files_digest(paths: Iterable[Path]) -> str:
    """Return the digest of the content of files, which is read again only if a file's size or time changes."""
    return _digest(_cached_file_digest(path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths)


@functools.lru_cache(1024)
def _cached_file_digest(path: Path, changed: int, size: int) -> str:
    return _file_digest(path)


def _package(module: str) -> str:
    return module.partition(".")[0]


def _parent_package(name: str, path: Path) -> str:
    package = getattr(sys.modules.get(name), "__package__", None)  # of a script that is run with -m, too
    return package or (name if path.name == "__init__.py" else name.rpartition(".")[0])


def _is_under(path: Path, folder: Path) -> bool:
    return str(path).startswith(os.path.join(folder, ""))


def _is_installed(path: Path) -> bool:
    """Return whether a module belongs to an installed distribution, also one from ``pip install --target``."""
    return not _SITE_FOLDERS.isdisjoint(path.parts) or any(
        _is_under(path, folder) for folder in _folders_of_distributions(tuple(sys.path))
    )


@functools.lru_cache(64)
def _folders_of_distributions(path: tuple[str, ...]) -> tuple[Path, ...]:
    folders = (Path(os.path.realpath(entry)) for entry in path if entry)
    return tuple(folder for folder in folders if any(folder.glob("*.dist-info")))


def _has_file(name: str) -> bool:
    return os.path.exists(getattr(sys.modules.get(name), "__file__", None) or "")


def _path_of(name: str) -> Path | None:
    """Return the file of a module, or None if it has none or cannot be found; nothing is imported."""
    module = sys.modules.get(name)
    origin = _find_module(name, tuple(sys.path))[0] if module is None else getattr(module, "__file__", None)
    return Path(os.path.realpath(origin)) if origin and os.path.isfile(origin) else None


def _folders_of(name: str) -> list[str]:
    """Return the directories of a package's modules. A namespace package has no file, and may have several."""
    module = sys.modules.get(name)
    return list(_find_module(name, tuple(sys.path))[1] if module is None else getattr(module, "__path__", ()))


@functools.lru_cache(4096)
def _find_module(name: str, path: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Return the file of a module that has not been imported, and its directories if it is a package."""
    parent = name.rpartition(".")[0]
    portions: list[str] = []  # of a namespace package; PathFinder requires that its parent has been imported
    for folder in _folders_of(parent) if parent else path:
        finder = get_importer(folder)
        spec = finder.find_spec(name) if finder else None
        if spec is not None and spec.loader is not None:
            return spec.origin, tuple(spec.submodule_search_locations or ())
        portions += spec.submodule_search_locations or () if spec else ()
    return None, tuple(portions)


_digests_at_import: dict[str, tuple[object, str]] = {}
"""The digest of each imported module's tree, with the module's specification, which a reload replaces."""


def _imported_tree(name: str, path: Path) -> str:
    """Return the digest of the tree of a module's file, as it was when this was first called after its import.

    A file that changes after its module was imported has no effect on this process until the module is reloaded. If it
    had changed by the first call, the digest is none that the file has in a new process.
    """
    module = sys.modules.get(name)
    if module is None:
        return _tree_digest(path)
    specification = getattr(module, "__spec__", None) or module
    if name not in _digests_at_import or _digests_at_import[name][0] is not specification:
        changed = f" changed after its import, at {path.stat().st_mtime_ns}" if _has_changed(module, path) else ""
        _digests_at_import[name] = specification, _tree_digest(path) + changed
    return _digests_at_import[name][1]


def _has_changed(module: ModuleType, path: Path) -> bool:
    """Return whether a file differs from the one that was compiled when its module was imported, as far as is known."""
    try:
        with open(getattr(module, "__cached__", None) or "", "rb") as compiled:
            header = compiled.read(16)
    except OSError:
        return False
    flags, seconds, size = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    state = path.stat()
    return flags == 0 and (seconds, size) != (int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF)


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
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names = [item.value for item in node.args[:1] if isinstance(item, ast.Constant)]
            imports.update(
                (len(name) - len(name.lstrip(".")), name.lstrip("."), "") for name in names if isinstance(name, str)
            )
        elif isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    digest = hashlib.sha256(ast.dump(tree).encode("utf-8", "surrogatepass")).hexdigest()
    return digest, tuple(sorted(imports))


def _tree_digest(path: Path) -> str:
    state = path.stat()
    return _read(path, state.st_mtime_ns, state.st_size)[0]


def _imported_modules(path: Path, package: str) -> set[str]:
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
def _distribution_digest(package: str) -> str:
    """Return the version of an installed package and the digests of all its files."""
    path = _path_of(package)
    folders = _folders_of(package)
    files = sorted(file for folder in folders for file in Path(folder).rglob("*")) or ([path] if path else [])
    parts = [
        f"{file.name} {_tree_digest(file) if file.suffix == '.py' else _file_digest(file)}"
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    ]
    try:
        number = version(package)
    except PackageNotFoundError:
        number = ""
    return f"{package} {number} {_digest(parts)}"


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _unwrap(item: Any) -> Any:
    """Return what a descriptor, a partial function or another object that is no function or method wraps."""
    while not isinstance(item, FunctionType | MethodType):
        inner = getattr(item, "__wrapped__", None) or getattr(item, "__func__", None)
        if isinstance(item, functools.partial | functools.cached_property):
            inner = item.func
        if inner is None or isinstance(item, type | ModuleType):
            return item
        item = inner
    return item


class _ReferencedCode:
    """The code of classes and functions that are in no file, and the modules with files to which they refer.

    The source of a class or function in a user's file does not say to which values its variables are bound: those of a
    function that returns the class, or globals that are read from the command line. The code contains these values if
    they are plain data. Private attributes and globals are left out, since many are caches. In a script or a notebook,
    whose other lines do not count, all values do; objects count by their class and their state.

    Args:
        definitions: The classes and functions.

    Attributes:
        code: The code and the values, as texts.
        modules: The names of the modules.
    """

    def __init__(self, definitions: Sequence[Any]) -> None:
        self.code: set[str] = set()
        self.modules: set[str] = set()
        self._names: set[str] = set()  # which the code mentions
        self._command_lines: list[tuple[str, argparse.Namespace]] = []
        self._visited: dict[int, tuple[str, Any]] = {}
        self._is_own = functools.cache(_is_own)
        self._pending: list[tuple[str, Any, bool]] = [("", item, False) for item in definitions]
        while self._pending:
            self._visit(*self._pending.pop())
        for name, options in self._command_lines:  # whose other options may be those of the run
            self.code |= {f"{name}.{key} = {_plain(item)}" for key, item in vars(options).items() if key in self._names}

    def _visit(self, name: str, value: Any, is_in_file: bool) -> None:
        """Add ``value``, and queue what it refers to. A value that ``is_in_file`` is in the file's digest already."""
        if is_numpy(value):
            value = value.tolist() if value.size <= MAX_NUMBERS else f"{value.dtype} {value.shape}"
        if not isinstance(value, _PLAIN):
            if id(value) in self._visited:
                if name and not is_in_file:
                    self.code.add(f"{name} is {self._visited[id(value)][0]}")
                return
            self._visited[id(value)] = name, value
        members: list[tuple[str, Any]] = []
        if isinstance(value, ModuleType):
            self.modules.add(value.__name__)
        elif isinstance(value, type | FunctionType):
            members = self._definition(name, value, is_in_file)
        elif (contents := _members(name, value)) is not None:
            members = contents
        elif isinstance(value, argparse.Namespace):
            self._command_lines.append((name, value))
        elif isinstance(value, _PLAIN):
            self.code.add(f"{name} = {_plain(value)}")
        elif not is_in_file and self._is_own(type(value).__module__):
            members = [(f"{name}.", object.__getstate__(value))]
        elif not is_in_file:
            text = value.shape if hasattr(value, "shape") else _plain(value)  # arrays and frames of other libraries
            self.code.add(f"{name} = {type(value).__qualname__} {text}")
        if not is_in_file and self._is_own(type(value).__module__):
            members.append((name, type(value)))
        self._pending += [(*member, is_in_file) for member in members]

    def _definition(self, name: str, value: Any, is_in_file: bool) -> list[tuple[str, Any]]:
        """Add a class or function, and return the named values that belong to it."""
        has_file = _has_file(value.__module__)
        if has_file:
            self.modules.add(value.__module__)
        if name and not is_in_file:
            self.code.add(f"{name} = {value.__module__}:{value.__qualname__}")
        if not self._is_own(value.__module__):
            return []
        references = _references(value)
        if has_file and value.__module__ != SCRIPT:
            self._pending += [(*member, True) for member in references if not _is_private(*member)]
            return [member for member in _bound_values(value) if not (is_in_file and _is_private(*member))]
        self.code.add(_code_text(value))
        if isinstance(value, FunctionType):
            self._names |= _names_in(value.__code__)
        return references + _bound_values(value)


def _members(name: str, value: Any) -> list[tuple[str, Any]] | None:
    """Return the named values in a container or a wrapper of a function, or None if ``value`` is neither."""
    if isinstance(value, Mapping):
        return [(f"{name}[{_plain(key)}]", member) for key, member in value.items()]
    if isinstance(value, list | tuple):
        return [(f"{name}[{index}]", member) for index, member in enumerate(value)]
    if isinstance(value, property):
        return [(name, function) for function in (value.fget, value.fset)]
    if isinstance(value, MethodType):
        return [(name, value.__func__), (f"{name}.__self__", value.__self__)]
    if (inner := _unwrap(value)) is not value:
        return [(name, inner), (name, getattr(value, "args", ())), (name, getattr(value, "keywords", {}))]
    return None


def _is_users(module: str) -> bool:
    """Return whether a module is neither searchlab's nor in the standard library or an installed distribution."""
    path = _path_of(module)
    return path is not None and not (_is_under(path, CORE) or _is_under(path, _STANDARD) or _is_installed(path))


def _is_own(module: str) -> bool:
    """Return whether a module is a user's, or has no file and is not in the standard library."""
    if _has_file(module) and module != SCRIPT:
        return _is_users(module)
    return _package(module) not in sys.stdlib_module_names - {SCRIPT}


def _is_private(name: str, value: Any) -> bool:
    """Return whether a name is private and its value may be a cache: texts, such as a kernel's source, are none."""
    is_private = name.rpartition(".")[2].startswith("_") and not name.endswith("()")
    return is_private and not callable(value) and not isinstance(value, str | bytes)


def _code_text(value: Any) -> str:
    return f"{value.__qualname__} {_code_digest(value.__code__) if isinstance(value, FunctionType) else ''}"


def _references(value: Any) -> list[tuple[str, Any]]:
    """Return the globals to which a function refers, or the attributes and the bases of a class.

    Attributes of modules count as globals, since a script may set them.
    """
    if isinstance(value, type):
        prefix = value.__qualname__
        attributes = [(f"{prefix}.{name}", item) for name, item in vars(value).items() if name not in _NAMES]
        return [*attributes, *((f"{prefix}.base", base) for base in value.__bases__)]
    names = sorted(name for name in _names_in(value.__code__) if not name.startswith("__"))  # such as __file__
    values = [(name, value.__globals__[name]) for name in names if name in value.__globals__]
    for prefix, module in list(values):
        if isinstance(module, ModuleType) and _is_own(module.__name__):
            values += [(f"{prefix}.{name}", vars(module)[name]) for name in names if name in vars(module)]
    return values


def _bound_values(value: Any) -> list[tuple[str, Any]]:
    """Return the values that are bound when a function is defined: defaults, attributes and those of its closure."""
    if isinstance(value, type):
        return []
    prefix = value.__qualname__
    values: list[tuple[str, Any]] = [(f"{prefix}()", (value.__defaults__, value.__kwdefaults__))]
    values += [(f"{prefix}.{name}", item) for name, item in vars(value).items()]
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            values.append((f"{prefix}.{name}", cell.cell_contents))
    return values


def _names_in(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names_in(item) for item in code.co_consts if isinstance(item, CodeType)))


def _code_digest(code: CodeType) -> str:
    constants = list(code.co_consts)
    may_have_docstring = code.co_flags & _HAS_DOCSTRING if _HAS_DOCSTRING else not code.co_name.startswith("<")
    if may_have_docstring and constants and isinstance(constants[0], str):
        constants = constants[1:]
    return _digest([code.co_code.hex(), *map(_plain, constants), *code.co_names, *code.co_varnames])


def _plain(value: Any) -> str:
    """Return a value as text that is the same in every process."""
    if isinstance(value, CodeType):
        return _code_digest(value)
    if isinstance(value, set | frozenset):
        return f"{sorted(map(_plain, value))}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_plain, value))})"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
