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

from .foreign_code import top_level_package
from .options import is_numpy

CORE_FOLDER = Path(__file__).parent
"""The directory of the core package."""

_PACKAGES_AFTER_RUNS = ("analysis", "apply", "cli", "conformance", "exchange", "model", "suite", "tables")
"""The core's packages in layers above ``run``, which cannot change the trials of a run."""

SCRIPT_MODULE = "__main__"
"""The module of a script, of which only the classes and functions count to which the objects refer.

Its other lines, such as the arguments of ``tune``, may change at any time.
"""

MAX_ARRAY_SIZE = 1000
"""Larger arrays are data rather than code, so only their shapes count."""

_SITE_FOLDER_NAMES = {"site-packages", "dist-packages"}
"""The names of the directories in which distributions are installed by default."""

_STANDARD_LIBRARY_FOLDER = Path(os.path.realpath(sysconfig.get_path("stdlib")))
"""The directory of the standard library. A user's module may have the name of one of its modules."""


@functools.cache
def core_digest() -> str:
    """Return the digest of the files of searchlab itself that take part in a run, in which comments do count."""
    paths = sorted(path.relative_to(CORE_FOLDER) for path in CORE_FOLDER.rglob("*.py"))
    run_paths = [path for path in paths if path.parts[0] not in _PACKAGES_AFTER_RUNS]
    return _hash_texts(f"{path} {_file_digest(CORE_FOLDER / path)}" for path in run_paths)


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
    definitions: list[Any] = []
    for definition in objects:
        definitions += definition.__mro__ if isinstance(definition, type) else (definition,)
    modules = [getattr(_unwrap(definition), "__module__", None) or "" for definition in definitions]
    packages = {top_level_package(name) for name in modules if _has_file(name)}
    referenced = _ReferencedCode(definitions)
    texts, pending_modules = referenced.code_texts, referenced.module_names
    visited_modules: set[str] = set()
    while pending_modules:
        name = pending_modules.pop()
        visited_modules.add(name)
        package = top_level_package(name)
        path = _path_of(name)
        if path is None or _is_under(path, CORE_FOLDER):
            continue
        if _is_installed(path):
            if package in packages:
                texts.add(_distribution_digest(package))
        elif not _is_under(path, _STANDARD_LIBRARY_FOLDER):
            if name != SCRIPT_MODULE:
                texts.add(f"{name} {_imported_tree_digest(name, path)}")
            pending_modules |= _list_imported_modules(path, _parent_package(name, path)) - visited_modules
    return _hash_texts(sorted(texts))


_DOCUMENTED_NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_IGNORED_ATTRIBUTES = {"__doc__", "__module__", "__firstlineno__", "__static_attributes__", "__dict__", "__weakref__"}
_PLAIN_TYPES = (str, int, float, complex, bytes, type(None), set, frozenset)
_HAS_DOCSTRING: int = getattr(inspect, "CO_HAS_DOCSTRING", 0)  # since Python 3.14


def files_digest(paths: Iterable[Path]) -> str:
    """Return the digest of the content of files, which is read again only if a file's size or time changes."""
    return _hash_texts(_cached_file_digest(path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths)


@functools.lru_cache(1024)
def _cached_file_digest(path: Path, modified_ns: int, byte_count: int) -> str:
    return _file_digest(path)


def _parent_package(module_name: str, path: Path) -> str:
    package = getattr(sys.modules.get(module_name), "__package__", None)  # of a script that is run with -m, too
    return package or (module_name if path.name == "__init__.py" else module_name.rpartition(".")[0])


def _is_under(path: Path, folder: Path) -> bool:
    return str(path).startswith(os.path.join(folder, ""))


def _is_installed(path: Path) -> bool:
    """Return whether a module belongs to an installed distribution, also one from ``pip install --target``."""
    return not _SITE_FOLDER_NAMES.isdisjoint(path.parts) or any(
        _is_under(path, folder) for folder in _folders_of_distributions(tuple(sys.path))
    )


@functools.lru_cache(64)
def _folders_of_distributions(search_path: tuple[str, ...]) -> tuple[Path, ...]:
    folders = (Path(os.path.realpath(search_path_entry)) for search_path_entry in search_path if search_path_entry)
    return tuple(folder for folder in folders if any(folder.glob("*.dist-info")))


def _has_file(module_name: str) -> bool:
    return os.path.exists(getattr(sys.modules.get(module_name), "__file__", None) or "")


def _path_of(module_name: str) -> Path | None:
    """Return the file of a module, or None if it has none or cannot be found; nothing is imported."""
    module = sys.modules.get(module_name)
    origin = _find_module(module_name, tuple(sys.path))[0] if module is None else getattr(module, "__file__", None)
    return Path(os.path.realpath(origin)) if origin and os.path.isfile(origin) else None


def _folders_of(module_name: str) -> list[str]:
    """Return the directories of a package's modules. A namespace package has no file, and may have several."""
    module = sys.modules.get(module_name)
    return list(_find_module(module_name, tuple(sys.path))[1] if module is None else getattr(module, "__path__", ()))


@functools.lru_cache(4096)
def _find_module(module_name: str, search_path: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Return the file of a module that has not been imported, and its directories if it is a package."""
    parent_name = module_name.rpartition(".")[0]
    namespace_folders: list[str] = []  # of a namespace package; PathFinder requires that its parent has been imported
    for folder in _folders_of(parent_name) if parent_name else search_path:
        finder = get_importer(folder)
        spec = finder.find_spec(module_name) if finder else None
        if spec is not None and spec.loader is not None:
            return spec.origin, tuple(spec.submodule_search_locations or ())
        namespace_folders += spec.submodule_search_locations or () if spec else ()
    return None, tuple(namespace_folders)


_digests_at_import: dict[str, tuple[object, str]] = {}
"""The digest of each imported module's tree, with the module's specification, which a reload replaces."""


def _imported_tree_digest(module_name: str, path: Path) -> str:
    """Return the digest of the tree of a module's file, as it was when this was first called after its import.

    A file that changes after its module was imported has no effect on this process until the module is reloaded. If it
    had changed by the first call, the digest is none that the file has in a new process.
    """
    module = sys.modules.get(module_name)
    if module is None:
        return _tree_digest(path)
    specification = getattr(module, "__spec__", None) or module
    if module_name not in _digests_at_import or _digests_at_import[module_name][0] is not specification:
        change_note = f" changed after its import, at {path.stat().st_mtime_ns}" if _has_changed(module, path) else ""
        _digests_at_import[module_name] = specification, _tree_digest(path) + change_note
    return _digests_at_import[module_name][1]


def _has_changed(module: ModuleType, path: Path) -> bool:
    """Return whether a file differs from the one that was compiled when its module was imported, as far as is known."""
    try:
        with open(getattr(module, "__cached__", None) or "", "rb") as compiled_file:
            compiled_header = compiled_file.read(16)
    except OSError:
        return False
    flags, seconds, size = (int.from_bytes(compiled_header[offset : offset + 4], "little") for offset in (4, 8, 12))
    status = path.stat()
    return flags == 0 and (seconds, size) != (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)


@functools.lru_cache(4096)
def _parse_file(path: Path, modified_ns: int, byte_count: int) -> tuple[str, tuple[tuple[int, str, str], ...]]:
    """Return a digest of a file's syntax tree without docstrings, and all its imports as (level, module, name)."""
    source_bytes = path.read_bytes()
    try:
        tree = ast.parse(source_bytes)
    except (SyntaxError, ValueError):
        return hashlib.sha256(source_bytes).hexdigest(), ()
    imports: set[tuple[int, str, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update((0, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports.update((node.level, node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            module_names = [item.value for item in node.args[:1] if isinstance(item, ast.Constant)]
            imports.update(
                (len(name) - len(name.lstrip(".")), name.lstrip("."), "")
                for name in module_names
                if isinstance(name, str)
            )
        elif isinstance(node, _DOCUMENTED_NODES) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    digest = hashlib.sha256(ast.dump(tree).encode("utf-8", "surrogatepass")).hexdigest()
    return digest, tuple(sorted(imports))


def _tree_digest(path: Path) -> str:
    status = path.stat()
    return _parse_file(path, status.st_mtime_ns, status.st_size)[0]


def _list_imported_modules(path: Path, package: str) -> set[str]:
    """Return the names of all modules that a module in ``package`` may import, with their parent packages."""
    status = path.stat()
    modules: set[str] = set()
    for level, relative_module, name in _parse_file(path, status.st_mtime_ns, status.st_size)[1]:
        parents = package.split(".")
        module = relative_module
        if level:
            module = ".".join([*parents[: len(parents) - level + 1], relative_module]).strip(".")
        module_parts = [*module.split("."), *([name] if name else [])]
        modules.update(".".join(module_parts[:part_count]) for part_count in range(1, len(module_parts) + 1))
    return modules - {""}


@functools.cache
def _distribution_digest(package: str) -> str:
    """Return the version of an installed package and the digests of all its files."""
    path = _path_of(package)
    folders = _folders_of(package)
    files = sorted(file for folder in folders for file in Path(folder).rglob("*")) or ([path] if path else [])
    file_texts = [
        f"{file.name} {_tree_digest(file) if file.suffix == '.py' else _file_digest(file)}"
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    ]
    try:
        version_text = version(package)
    except PackageNotFoundError:
        version_text = ""
    return f"{package} {version_text} {_hash_texts(file_texts)}"


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _unwrap(wrapper: Any) -> Any:
    """Return what a descriptor, a partial function or another object that is no function or method wraps."""
    while not isinstance(wrapper, FunctionType | MethodType):
        wrapped = getattr(wrapper, "__wrapped__", None) or getattr(wrapper, "__func__", None)
        if isinstance(wrapper, functools.partial | functools.cached_property):
            wrapped = wrapper.func
        if wrapped is None or isinstance(wrapper, type | ModuleType):
            return wrapper
        wrapper = wrapped
    return wrapper


class _ReferencedCode:
    """The code of classes and functions that are in no file, and the modules with files to which they refer.

    The source of a class or function in a user's file does not say to which values its variables are bound: those of a
    function that returns the class, or globals that are read from the command line. The code contains these values if
    they are plain data. Private attributes and globals are left out, since many are caches. In a script or a notebook,
    whose other lines do not count, all values do; objects count by their class and their state.

    Args:
        definitions: The classes and functions.

    Attributes:
        code_texts: The code and the values, as texts.
        module_names: The names of the modules.
    """

    def __init__(self, definitions: Sequence[Any]) -> None:
        self.code_texts: set[str] = set()
        self.module_names: set[str] = set()
        self._names_in_code: set[str] = set()
        self._command_lines: list[tuple[str, argparse.Namespace]] = []
        self._visited_values: dict[int, tuple[str, Any]] = {}  # by id(value)
        self._is_own_module = functools.cache(_is_own_module)
        self._pending_values: list[tuple[str, Any, bool]] = [("", item, False) for item in definitions]
        while self._pending_values:
            self._add_value(*self._pending_values.pop())
        for name, options in self._command_lines:
            self._add_options_in_code(name, options)

    def _add_options_in_code(self, name: str, options: argparse.Namespace) -> None:
        """Add the command line's options whose names occur in the code; others may be the run's, such as its seed."""
        for key, value in vars(options).items():
            if key in self._names_in_code:
                self.code_texts.add(f"{name}.{key} = {_plain_text_of(value)}")

    def _add_value(self, name: str, value: Any, is_in_file: bool) -> None:
        """Add ``value``, and queue what it refers to. A value that ``is_in_file`` is in the file's digest already."""
        if is_numpy(value):
            value = value.tolist() if value.size <= MAX_ARRAY_SIZE else f"{value.dtype} {value.shape}"
        if not isinstance(value, _PLAIN_TYPES):
            if id(value) in self._visited_values:
                if name and not is_in_file:
                    self.code_texts.add(f"{name} is {self._visited_values[id(value)][0]}")
                return
            self._visited_values[id(value)] = name, value
        members: list[tuple[str, Any]] = []
        if isinstance(value, ModuleType):
            self.module_names.add(value.__name__)
        elif isinstance(value, type | FunctionType):
            members = self._add_definition(name, value, is_in_file)
        elif (contents := _list_members(name, value)) is not None:
            members = contents
        elif isinstance(value, argparse.Namespace):
            self._command_lines.append((name, value))
        elif isinstance(value, _PLAIN_TYPES):
            self.code_texts.add(f"{name} = {_plain_text_of(value)}")
        elif not is_in_file and self._is_own_module(type(value).__module__):
            members = [(f"{name}.", object.__getstate__(value))]
        elif not is_in_file:
            # Arrays and frames of other libraries are data, too.
            text = value.shape if hasattr(value, "shape") else _plain_text_of(value)
            self.code_texts.add(f"{name} = {type(value).__qualname__} {text}")
        if not is_in_file and self._is_own_module(type(value).__module__):
            members.append((name, type(value)))
        self._pending_values += [(*member, is_in_file) for member in members]

    def _add_definition(self, name: str, value: Any, is_in_file: bool) -> list[tuple[str, Any]]:
        """Add a class or function, and return the named values that belong to it."""
        has_file = _has_file(value.__module__)
        if has_file:
            self.module_names.add(value.__module__)
        if name and not is_in_file:
            self.code_texts.add(f"{name} = {value.__module__}:{value.__qualname__}")
        if not self._is_own_module(value.__module__):
            return []
        references = _list_references(value)
        if has_file and value.__module__ != SCRIPT_MODULE:
            self._pending_values += [(*member, True) for member in references if not _may_be_cache(*member)]
            return [member for member in _list_bound_values(value) if not (is_in_file and _may_be_cache(*member))]
        self.code_texts.add(_code_text_of(value))
        if isinstance(value, FunctionType):
            self._names_in_code |= _list_names_in(value.__code__)
        return references + _list_bound_values(value)


def _list_members(name: str, value: Any) -> list[tuple[str, Any]] | None:
    """Return the named values in a container or a wrapper of a function, or None if ``value`` is neither."""
    if isinstance(value, Mapping):
        return [(f"{name}[{_plain_text_of(key)}]", member) for key, member in value.items()]
    if isinstance(value, list | tuple):
        return [(f"{name}[{index}]", member) for index, member in enumerate(value)]
    if isinstance(value, property):
        return [(name, function) for function in (value.fget, value.fset)]
    if isinstance(value, MethodType):
        return [(name, value.__func__), (f"{name}.__self__", value.__self__)]
    if (inner := _unwrap(value)) is not value:
        return [(name, inner), (name, getattr(value, "args", ())), (name, getattr(value, "keywords", {}))]
    return None


def _is_users_module(module_name: str) -> bool:
    """Return whether a module is neither searchlab's nor in the standard library or an installed distribution."""
    path = _path_of(module_name)
    return path is not None and not (
        _is_under(path, CORE_FOLDER) or _is_under(path, _STANDARD_LIBRARY_FOLDER) or _is_installed(path)
    )


def _is_own_module(module_name: str) -> bool:
    """Return whether a module is a user's, or has no file and is not in the standard library."""
    if _has_file(module_name) and module_name != SCRIPT_MODULE:
        return _is_users_module(module_name)
    return top_level_package(module_name) not in sys.stdlib_module_names - {SCRIPT_MODULE}


def _may_be_cache(name: str, value: Any) -> bool:
    """Return whether a name is private and its value may be a cache: texts, such as a kernel's source, are none."""
    has_private_name = name.rpartition(".")[2].startswith("_") and not name.endswith("()")
    return has_private_name and not callable(value) and not isinstance(value, str | bytes)


def _code_text_of(value: Any) -> str:
    return f"{value.__qualname__} {_code_digest(value.__code__) if isinstance(value, FunctionType) else ''}"


def _list_references(value: Any) -> list[tuple[str, Any]]:
    """Return the globals to which a function refers, or the attributes and the bases of a class.

    Attributes of modules count as globals, since a script may set them.
    """
    if isinstance(value, type):
        prefix = value.__qualname__
        variable_names = [name for name in vars(value) if name not in _IGNORED_ATTRIBUTES]
        attributes = [(f"{prefix}.{name}", vars(value)[name]) for name in variable_names]
        return [*attributes, *((f"{prefix}.base", base) for base in value.__bases__)]
    # Names such as __file__ are left out.
    variable_names = sorted(name for name in _list_names_in(value.__code__) if not name.startswith("__"))
    referenced_values = [(name, value.__globals__[name]) for name in variable_names if name in value.__globals__]
    for prefix, module in list(referenced_values):
        if isinstance(module, ModuleType) and _is_own_module(module.__name__):
            module_globals = vars(module)
            defined_names = [name for name in variable_names if name in module_globals]
            referenced_values += [(f"{prefix}.{name}", module_globals[name]) for name in defined_names]
    return referenced_values


def _list_bound_values(value: Any) -> list[tuple[str, Any]]:
    """Return the values that are bound when a function is defined: defaults, attributes and those of its closure."""
    if isinstance(value, type):
        return []
    prefix = value.__qualname__
    values: list[tuple[str, Any]] = [(f"{prefix}()", (value.__defaults__, value.__kwdefaults__))]
    values += [(f"{prefix}.{name}", item) for name, item in vars(value).items()]
    for name, closure_cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            values.append((f"{prefix}.{name}", closure_cell.cell_contents))
    return values


def _list_names_in(code: CodeType) -> set[str]:
    return set(code.co_names).union(
        *(_list_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    )


def _code_digest(code: CodeType) -> str:
    constants = list(code.co_consts)
    may_have_docstring = code.co_flags & _HAS_DOCSTRING if _HAS_DOCSTRING else not code.co_name.startswith("<")
    if may_have_docstring and constants and isinstance(constants[0], str):
        constants = constants[1:]
    return _hash_texts([code.co_code.hex(), *map(_plain_text_of, constants), *code.co_names, *code.co_varnames])


def _plain_text_of(value: Any) -> str:
    """Return a value as text that is the same in every process."""
    if isinstance(value, CodeType):
        return _code_digest(value)
    if isinstance(value, set | frozenset):
        return f"{sorted(map(_plain_text_of, value))}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_plain_text_of, value))})"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _hash_texts(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
