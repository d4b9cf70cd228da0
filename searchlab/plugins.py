"""Look-up of plug-ins by name. They are listed from package metadata, and are imported only when requested."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

import msgspec

from .errors import SearchlabError, describe, did_you_mean
from .foreign_code import (
    convert_foreign_errors,
    find_definition,
    find_error_location,
    find_raise_location,
    top_level_package,
)
from .options import SUPPLIED, check_option, declared_options, plain

PluginT = TypeVar("PluginT")


class Plugin(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A plug-in with options.

    Attributes:
        name: A registered name, or ``module:Class``.
        options: The options to pass to its constructor.
    """

    name: str
    options: dict[str, Any] = {}

    @property
    def title(self) -> str:
        """Its name in figures and tables: of ``module:Class``, only the class."""
        attribute = self.name.rpartition(":")[2] if ":" in self.name else ""
        return attribute.rpartition(".")[2] or self.name

    def to_spec(self) -> Plugin:
        """Return the plug-in as logs record it, with plain values as options; a function becomes ``"module:name"``.

        Raises:
            SearchlabError: If an option is neither a plain value nor a function.
        """
        try:
            return Plugin(self.name, msgspec.to_builtins(self.options, enc_hook=_name_function))
        except TypeError as error:
            raise SearchlabError(f"the options of {self.name!r} must be plain values or functions: {error}") from None


def _name_function(option: Any) -> str:
    """Return ``"module:name"`` for a function or class. Raises TypeError if ``option`` is neither."""
    if not callable(option):
        raise TypeError(f"{option!r:.200} is neither")
    return make_reference(option)


PluginSpec = str | Mapping[str, Any] | Plugin | type[Any]
"""How users specify a plug-in: a name, ``"module:Class"``, a class, or ``{"name": ..., "options": {...}}``."""


@dataclass(frozen=True)
class PluginKind(Generic[PluginT]):
    """A kind of plug-in, such as policies.

    Attributes:
        title: The name used in messages.
        group: The entry-point group in which its classes are registered.
        contract: The base class.
        positional: The number of constructor parameters before the options.
    """

    title: str
    group: str
    contract: type[PluginT]
    positional: int

    def entry_points_by_name(self) -> dict[str, EntryPoint]:
        """Return the entry points of the registered plug-ins, by name, without importing the plug-ins."""
        return {point.name: point for point in list_entry_points(self.group)}

    def check_name(self, name: str) -> None:
        """Raise SearchlabError if ``name`` is neither a registered name nor ``module:Class``; nothing is imported."""
        points = self.entry_points_by_name()
        if name not in points and ":" not in name:
            hint = did_you_mean(name, points)
            raise SearchlabError(
                f"unknown {self.title} {name!r}{hint}{' ' if hint.endswith('?') else '. '}Each {self.title} of "
                f"another package must be installed and registered under {self.group!r}"
            )

    def load(self, name: str) -> type[PluginT]:
        """Import a class by its registered name or as ``module:Class``. Raises SearchlabError if that fails."""
        self.check_name(name)
        point = self.entry_points_by_name().get(name)
        value = load_attribute(point.value if point else name, f"{self.title} {name!r}")
        if not isinstance(value, type):
            hint = f"; to tune a function, write 'python:{name}'" if self.title == "workload" else ""
            raise SearchlabError(f"{self.title} {name!r} must be a class, not {value!r}{hint}")
        return cast(type[PluginT], value)

    def resolve(self, spec: PluginSpec) -> tuple[Plugin, type[PluginT]]:
        """Return the plug-in and the class that ``spec`` specifies. Raises SearchlabError if ``spec`` is invalid."""
        if isinstance(spec, Plugin):
            spec = {"name": spec.name, "options": spec.options}
        elif isinstance(spec, str | type):
            spec = {"name": spec}
        keys = spec if isinstance(spec, Mapping) else {}
        unknown_keys = [key for key in keys if key not in ("name", "options")]
        name, options = keys.get("name"), plain(keys.get("options", {}))
        if (
            unknown_keys
            or not isinstance(name, str | type)
            or not isinstance(options, Mapping)
            or not all(isinstance(option, str) for option in options)
        ):
            hint = did_you_mean(str(unknown_keys[0]), ("name", "options")) if unknown_keys else ""
            raise SearchlabError(
                f"a {self.title} must be a name or {{'name': ..., 'options': {{...}}}}, not {spec!r:.200}{hint}"
            )
        cls: type[PluginT] = name if isinstance(name, type) else self.load(name)
        return Plugin(self.name_of(cls), dict(options)), cls

    def name_of(self, cls: type[Any]) -> str:
        """Return the name under which ``cls`` is registered, or ``module:Class`` if it is not registered."""
        reference = make_reference(cls)
        for point in self.entry_points_by_name().values():
            if point.value == reference or getattr(sys.modules.get(point.module), point.attr or "", None) is cls:
                return point.name
        return reference

    def options_of(self, cls: type[PluginT]) -> dict[str, inspect.Parameter]:
        """Return the parameters that are options, by name; annotations that can be checked are evaluated."""
        options = declared_options(cls.__init__)
        parameters = list(inspect.signature(cls).parameters.values())[self.positional :]
        return {
            p.name: p.replace(annotation=options.get(p.name, p.annotation))
            for p in parameters
            if p.name not in SUPPLIED
        }

    def unspecified_options(self, cls: type[PluginT], options: Collection[str]) -> dict[str, Any]:
        """Return the defaults of the options of ``cls`` that are not among ``options``, as plain data or text."""
        defaults: dict[str, Any] = {}
        for name, parameter in self.options_of(cls).items():
            if name not in options and parameter.default is not inspect.Parameter.empty:
                try:
                    defaults[name] = msgspec.json.decode(msgspec.json.encode(parameter.default))
                except (TypeError, ValueError):
                    defaults[name] = repr(parameter.default)
        return defaults

    def check_class(self, name: str, cls: type[Any]) -> None:
        """Raise SearchlabError if ``cls`` does not derive from the contract."""
        if not issubclass(cls, self.contract):
            raise SearchlabError(
                f"{self.title} {name!r} is not a searchlab.{self.contract.__name__}; derive it from that class, or "
                f"choose one that `searchlab list` shows"
            )

    def check_names(self, name: str, cls: type[PluginT], options: Iterable[str]) -> None:
        """Raise SearchlabError if any of the names in ``options`` is not an option of ``cls``."""
        parameters = self.options_of(cls)
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
            return
        for option in options:
            if option not in parameters:
                raise SearchlabError(
                    f"{self.title} {name!r} has no option {option!r}{did_you_mean(option, parameters)}"
                )

    def check_options(self, plugin: Plugin, cls: type[PluginT]) -> None:
        """Raise SearchlabError if ``cls`` does not have an option of ``plugin`` or does not accept its value."""
        self.check_names(plugin.name, cls, plugin.options)
        for option, parameter in self.options_of(cls).items():
            if option in plugin.options:
                check_option(option, plugin.options[option], parameter.annotation)

    def make(self, plugin: Plugin, *args: Any, **kwargs: Any) -> PluginT:
        """Instantiate ``plugin`` with ``args``, ``kwargs`` and its options. Raises SearchlabError if this fails."""
        cls = self.load(plugin.name)
        if (untrusted_path := _find_untrusted_path()) and find_unregistered_code(plugin.options):
            raise _make_untrusted_error(untrusted_path, f"{self.title} {plugin.name!r} with options {plugin.options}")
        self.check_class(plugin.name, cls)  # before it is called, because the name may come from an untrusted file
        self.check_options(plugin, cls)
        with self.convert_errors(cls, "its constructor"):
            return cls(*args, **kwargs, **plugin.options)

    @contextmanager
    def convert_errors(self, cls: type[Any], method: str) -> Iterator[None]:
        """Convert any exception that the plug-in raises to a SearchlabError that names the plug-in and the line.

        A call to ``os._exit`` is also reported as an error. SearchlabErrors, interrupts, and the exceptions that
        searchlab or pytest raises to stop a plug-in are not converted.

        Args:
            cls: The plug-in's class.
            method: The name of the method being called.
        """
        with convert_foreign_errors(lambda error: self.failure(cls, method, error)):
            yield

    def failure(self, cls: type[Any], method: str, error: BaseException) -> SearchlabError:
        """Return an error which states that ``method`` of ``cls`` raised ``error``, and on which line."""
        location = find_error_location(error, cls) or find_definition(getattr(cls, method, cls))
        return SearchlabError(
            f"{self.title} {self.name_of(cls)!r} failed in {method}: {describe(error)} ({location}); "
            f"--traceback shows the traceback"
        )


_ENTRY_POINT_GROUPS = (
    "searchlab.workloads",
    "searchlab.spaces",
    "searchlab.policies",
    "searchlab.costmodels",
    "searchlab.templates",
)
_trusts: ContextVar[bool] = ContextVar("trusts", default=False)
_names_from: ContextVar[str] = ContextVar("names_from", default="")

USER = ""
"""The argument of :func:`names_from` for names that the user has specified."""


@contextmanager
def trust_plugins(yes: bool = True) -> Iterator[None]:
    """Return a context manager within which files may import plug-ins that no installed package registers.

    Args:
        yes: Whether to allow this. False leaves the current setting unchanged.

    Example:
        >>> import searchlab
        >>> with searchlab.trust_plugins():
        ...     space = searchlab.load_log("gemm.jsonl").space
    """
    token = _trusts.set(yes or trusts())
    try:
        yield
    finally:
        _trusts.reset(token)


def trusts() -> bool:
    """Return whether a :func:`trust_plugins` context is active."""
    return _trusts.get()


@contextmanager
def names_from(path: str | Path) -> Iterator[None]:
    """Return a context manager within which the names of plug-ins come from a file or directory, or from the USER.

    Everything that reads names from a file must load them within this context: only code of installed packages that
    register plug-ins is imported there, unless :func:`trust_plugins` is active.
    """
    token = _names_from.set(str(path))
    try:
        yield
    finally:
        _names_from.reset(token)


def _find_untrusted_path() -> str:
    """Return the file or directory that names come from, or "" if they come from the user or are trusted."""
    return "" if trusts() else _names_from.get()


def make_reference(definition: Any) -> str:
    """Return the name ``"module:name"`` of a class or function."""
    return f"{definition.__module__}:{definition.__qualname__}"


def is_registered(reference: str) -> bool:
    """Return whether ``"module:name"`` is a registered plug-in, or belongs to a package that registers plug-ins.

    Of searchlab itself, only registered plug-ins count.
    """
    registered_references = [point.value for group in _ENTRY_POINT_GROUPS for point in list_entry_points(group)]
    packages = {top_level_package(value.partition(":")[0]) for value in registered_references} - {"searchlab"}
    return reference in registered_references or top_level_package(reference.partition(":")[0]) in packages


def find_unregistered_code(option: Any) -> list[str]:
    """Return all strings ``"module:name"`` in an option, at any depth, whose code no installed package registers."""
    return [
        value
        for value in _flatten_option(option)
        if isinstance(value, str) and ":" in value and not is_registered(value)
    ]


def import_attribute(reference: str, title: str) -> Any:
    """Import and return the object ``"module:name"``, which may be in the current directory.

    This is the only place where code is imported by name. Names that come from a file (see :func:`names_from`) must be
    registered, and the object must be defined in the module that is named.

    Args:
        reference: The name of the object.
        title: What the object is, for the error message, such as ``"space 'acme:Tiles'"``.

    Raises:
        SearchlabError: If the name comes from a file and is not registered.
        Exception: Any exception that the import raises.
    """
    module, _, attribute = reference.partition(":")
    untrusted_path = _find_untrusted_path()
    if untrusted_path and not is_registered(reference):
        raise _make_untrusted_error(untrusted_path, title)
    if not untrusted_path:
        _add_current_directory(top_level_package(module))
    value = getattr(importlib.import_module(module), attribute)
    if untrusted_path and getattr(value, "__module__", None) != module:
        raise _make_untrusted_error(untrusted_path, title)
    return value


def _make_untrusted_error(path: str, title: str) -> SearchlabError:
    """Return the error that the file ``path`` refers to code, called ``title``, which is not registered."""
    return SearchlabError(
        f"{path} refers to the {title}, which would import code that no installed package registers; if you trust this "
        f"file, add --trust (in Python, use `with searchlab.trust_plugins():`)"
    )


def _add_current_directory(package: str) -> None:
    """Append the current directory to ``sys.path`` if ``package`` is there and nowhere else."""
    try:
        directory = os.getcwd()
    except FileNotFoundError:  # it has been removed
        return
    if package in sys.modules or directory in sys.path or "" in sys.path:
        return
    is_here = os.path.isfile(os.path.join(directory, f"{package}.py")) or os.path.isdir(
        os.path.join(directory, package)
    )
    if is_here and importlib.util.find_spec(package) is None:
        sys.path.append(directory)
        importlib.invalidate_caches()


def search_path() -> str:
    """Return the PYTHONPATH with which ``python -P`` finds the modules that this process finds, in the same order.

    Without ``-P``, Python looks in the current directory first, where any file could hide an installed module.
    """
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


def iterate_functions(options: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the functions and classes among the values of options, at any depth, loading those given by name."""
    for leaf in reversed([*_flatten_option(options)]):  # digests depend on this order
        if callable(leaf) and hasattr(leaf, "__module__"):
            yield leaf
        elif isinstance(leaf, str) and ":" in leaf and leaf.partition(":")[0] in sys.modules:
            with suppress(SearchlabError):
                yield load_attribute(leaf, "an option")


def _flatten_option(option: Any) -> Iterator[Any]:
    """Yield the values in an option, at any depth, that are neither lists nor mappings."""
    if isinstance(option, Mapping):
        option = list(option.values())
    if isinstance(option, list | tuple):
        for item in option:
            yield from _flatten_option(item)
    else:
        yield option


def list_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return a group's entry points, sorted. They are cached until ``sys.path`` or a directory on it changes."""
    return _read_entry_points(group, tuple((path, _modification_time(path)) for path in sys.path))


@functools.cache
def _read_entry_points(group: str, modification_times: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=group)))


def _modification_time(path: str) -> int:
    try:
        return os.stat(path or ".").st_mtime_ns
    except (OSError, ValueError):
        return 0


def load_attribute(reference: str, title: str) -> Any:
    """Import and return the object ``module:name``. Raises SearchlabError, which calls the object ``title``."""
    module = reference.partition(":")[0]

    def make_error(error: BaseException) -> SearchlabError:
        if module.endswith(".py"):
            name = module.removesuffix(".py").replace("/", ".")
            return SearchlabError(f"{title} cannot be loaded: use the name of the module, {name!r}, not of its file")
        if module == "__main__":
            return SearchlabError(
                f"{title} cannot be loaded, because it was defined in a script or a notebook; move it to a module"
            )
        if isinstance(error, AttributeError) and module in sys.modules:
            public_names = [name for name in vars(sys.modules[module]) if not name.startswith("_")]
            hint = did_you_mean(reference.partition(":")[2], public_names)
            return SearchlabError(f"{title} cannot be loaded: {module} does not define it{hint}")
        if isinstance(error, ImportError | AttributeError):
            return SearchlabError(
                f"{title} cannot be loaded: {error}; install its package, or run the command where its file is"
            )
        return SearchlabError(
            f"{title} cannot be loaded: importing its module {module} raised {describe(error)} at "
            f"{find_raise_location(error)}"
        )

    with convert_foreign_errors(make_error):
        return import_attribute(reference, title)


def execute_file(path: Path) -> ModuleType:
    """Execute a Python file and return its module. Raises SearchlabError if there is no such file or it fails.

    A file that is named in another file (see :func:`names_from`) is executed only within :func:`trust_plugins`.
    """
    if untrusted_path := _find_untrusted_path():
        raise _make_untrusted_error(untrusted_path, f"file {str(path)!r}")
    module_name = f"searchlab_file_{path.stem}"
    specification = importlib.util.spec_from_file_location(module_name, path)
    if not path.is_file() or specification is None or specification.loader is None:
        raise SearchlabError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(specification)
    sys.modules[module_name] = module  # where TVMScript looks for the source
    with convert_foreign_errors(
        lambda error: SearchlabError(f"{path} cannot be executed: {describe(error)} at {find_raise_location(error)}")
    ):
        specification.loader.exec_module(module)
    return module
