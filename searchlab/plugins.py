"""Plug-ins by name, from entry points: they are listed from metadata, and imported only when they are named."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar, cast

import msgspec

from .errors import RunEnded, SearchlabError, described, did_you_mean
from .options import SUPPLIED, checked, declared_options

T = TypeVar("T")


class Plugin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The name of a space, policy or cost model, with its options."""

    name: str
    options: dict[str, Any] = {}

    def spelled(self) -> Plugin:
        """The plug-in as a log holds it, a function as ``"module:name"``. Raises SearchlabError for other objects."""
        spelled = {
            name: f"{value.__module__}:{value.__qualname__}" if callable(value) else value
            for name, value in self.options.items()
        }
        try:
            return Plugin(self.name, msgspec.to_builtins(spelled))
        except TypeError as error:
            raise SearchlabError(f"the options of {self.name!r} must be plain values or functions: {error}") from None


PluginSpec = str | Mapping[str, Any] | Plugin | type[Any]
"""How a user names a plug-in: a name, the class, or ``{"name": ..., "options": {...}}`` with one of them."""


@dataclass(frozen=True)
class PluginKind(Generic[T]):
    """A kind of plug-in: its contract, and the group of entry points where the classes that keep it are registered.

    title: its name in messages. positional: searchlab gives this number of parameters of a constructor, the first ones;
    it also gives ``seed`` and ``cost_model``; all others are options.
    """

    title: str
    group: str
    contract: type[T]
    positional: int

    def installed(self) -> dict[str, EntryPoint]:
        """The registered plug-ins by name; nothing is imported."""
        return {point.name: point for point in entry_points_of(self.group)}

    def check_name(self, name: str) -> None:
        """Raise SearchlabError if ``name`` is neither registered nor ``module:Class``; nothing is imported."""
        points = self.installed()
        if name not in points and ":" not in name:
            hint = did_you_mean(name, points)
            raise SearchlabError(
                f"unknown {self.title} {name!r}{hint}{' ' if hint.endswith('?') else '. '}A {self.title} of another "
                f"package must be installed and registered under {self.group!r}"
            )

    def load(self, name: str) -> type[T]:
        """The class registered as ``name``, or the class ``module:Class``. Raises SearchlabError if there is none."""
        self.check_name(name)
        points = self.installed()
        spelled = points[name].value if name in points else name
        loaded = load_attribute(spelled, f"{self.title} {name!r}")
        if not isinstance(loaded, type):
            raise SearchlabError(f"{self.title} {name!r} is {loaded!r}, not a class")
        return cast(type[T], loaded)

    def named(self, spec: PluginSpec) -> tuple[Plugin, type[T]]:
        """The plug-in, by its registered name if it has one, and its class. Raises SearchlabError for a wrong spec."""
        if isinstance(spec, type):
            return Plugin(self.name_of(spec)), spec
        if isinstance(spec, str):
            spec = {"name": spec}
        if isinstance(spec, Plugin):
            spec = {"name": spec.name, "options": spec.options}
        if not isinstance(spec, Mapping) or "name" not in spec or not set(spec) <= {"name", "options"}:
            unknown = [key for key in spec if key not in ("name", "options")] if isinstance(spec, Mapping) else []
            raise SearchlabError(
                f"a {self.title} is given as a name, or as {{'name': ..., 'options': {{...}}}}, not {spec!r}"
                f"{did_you_mean(str(unknown[0]), ('name', 'options')) if unknown else ''}"
            )
        name = spec["name"]
        cls: type[T] = name if isinstance(name, type) else self.load(name)
        return Plugin(self.name_of(cls), dict(spec.get("options", {}))), cls

    def name_of(self, cls: type[Any]) -> str:
        """The name that ``cls`` is registered as, else ``module:Class``."""
        return self._registered(cls) or f"{cls.__module__}:{cls.__qualname__}"

    def _registered(self, cls: type[Any]) -> str:
        spelled = f"{cls.__module__}:{cls.__qualname__}"
        for point in self.installed().values():
            if point.value == spelled or getattr(sys.modules.get(point.module), point.attr or "", None) is cls:
                return point.name
        return ""

    def options_of(self, cls: type[T]) -> dict[str, inspect.Parameter]:
        """The parameters of the constructor that are options, by name; an annotation is evaluated if it is checked."""
        declared = declared_options(cls.__init__)
        parameters = list(inspect.signature(cls).parameters.values())[self.positional :]
        return {
            p.name: p.replace(annotation=declared.get(p.name, p.annotation))
            for p in parameters
            if p.name not in SUPPLIED
        }

    def check_class(self, name: str, cls: type[Any]) -> None:
        """Raise SearchlabError if ``cls`` does not keep the contract of this kind."""
        if not issubclass(cls, self.contract):
            raise SearchlabError(
                f"{self.title} {name!r} is not a searchlab.{self.contract.__name__}: derive its class from that, or "
                f"name one that `searchlab list` shows"
            )

    def check_names(self, name: str, cls: type[T], options: Iterable[str]) -> None:
        """Raise SearchlabError if the constructor of ``cls`` does not take one of ``options``."""
        known = self.options_of(cls)
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values()):
            return
        for option in options:
            if option not in known:
                raise SearchlabError(f"{self.title} {name!r} has no option {option!r}{did_you_mean(option, known)}")

    def check_options(self, name: str, cls: type[T], options: Mapping[str, Any]) -> None:
        """Raise SearchlabError if the constructor of ``cls`` does not take one of ``options``, or not its value."""
        self.check_names(name, cls, options)
        for option, parameter in self.options_of(cls).items():
            if option in options:
                checked(option, options[option], parameter.annotation)

    def make(self, plugin: Plugin, *args: Any, **given: Any) -> T:
        """An instance, with ``args``, ``given`` and its options. Raises SearchlabError for a wrong option."""
        cls = self.load(plugin.name)
        self.check_class(plugin.name, cls)  # before it is called: the name may come from a stranger's file
        self.check_options(plugin.name, cls, plugin.options)
        with self.blamed(cls, "its constructor"):
            return cls(*args, **given, **plugin.options)

    @contextmanager
    def blamed(self, cls: type[Any], doing: str) -> Iterator[None]:
        """Make a SearchlabError, which names the plug-in and the line, of whatever the code of ``cls`` raises.

        A call of ``os._exit`` counts as an error, too. A SearchlabError passes as it is; so do an interrupt, and
        exceptions that searchlab or a test raises to stop a plug-in.

        Args:
            cls: The class of the plug-in.
            doing: The method that is called.
        """
        with _not_exiting():
            try:
                yield
            except SearchlabError:
                raise
            except BaseException as error:
                if _stops(error):
                    raise
                raise self.failure(cls, doing, error) from error

    def failure(self, cls: type[Any], doing: str, error: BaseException) -> SearchlabError:
        """The error that says that ``cls`` raised ``error`` in its method ``doing``, and at which line."""
        where = _line_of(error, cls) or place_of(getattr(cls, doing, cls))
        kind = RunEnded if isinstance(error, PluginExit) else SearchlabError
        return kind(
            f"{self.title} {self.name_of(cls)!r} failed in {doing}: {described(error)} ({where}); "
            f"--traceback shows all of it"
        )

    def registered(self, plugin: Plugin) -> Plugin | None:
        """``plugin`` by its registered name; None if making it would import what no installed package registers.

        That is a class ``module:Class`` of no entry point, or an option ``"module:function"`` of none.
        """
        points = self.installed()
        name = plugin.name
        if name not in points:
            name = next((point.name for point in points.values() if point.value == name), "")
            if not name:
                return None
        return None if names_code(plugin.options) else Plugin(name, plugin.options)

    def of_file(self, plugin: Plugin, path: Path) -> Plugin:
        """``plugin``, which the file at ``path`` names, fit to be made: see :meth:`registered`.

        Raises SearchlabError for any other, except within :func:`trusting`. A name that no package registers imports
        nothing: :meth:`load` says what to install.
        """
        registered = self.registered(plugin)
        if registered is None and not trusts() and (":" in plugin.name or names_code(plugin.options)):
            options = f" with options {plugin.options}" if plugin.options else ""
            raise SearchlabError(
                f"{path} names the {self.title} {plugin.name!r}{options}: code that no installed package registers, "
                f"which would be imported; if you trust this file, add --trust (in Python, with searchlab.trusting():)"
            )
        return registered or plugin


_GROUPS = ("searchlab.spaces", "searchlab.policies", "searchlab.costmodels", "searchlab.templates")
_trusts: ContextVar[bool] = ContextVar("trusts", default=False)


@contextmanager
def trusting(yes: bool = True) -> Iterator[None]:
    """Within this context, import plug-ins that a file names although no installed package registers them.

    Args:
        yes: False changes nothing.

    Example:
        >>> import searchlab
        >>> with searchlab.trusting():
        ...     space = searchlab.load_log("gemm.jsonl").space
    """
    token = _trusts.set(yes or trusts())
    try:
        yield
    finally:
        _trusts.reset(token)


def trusts() -> bool:
    """Whether this is within :func:`trusting`."""
    return _trusts.get()


def names_code(value: Any) -> bool:
    """Whether ``value``, the options of a plug-in, holds at any depth a ``"module:function"`` of no entry point."""
    if isinstance(value, dict):
        return any(names_code(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(names_code(item) for item in value)
    return isinstance(value, str) and ":" in value and not _is_registered(value)


def _is_registered(spelled: str) -> bool:
    return any(point.value == spelled for group in _GROUPS for point in entry_points_of(group))


def entry_points_of(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, in order; read again if Python's path, or a directory on it, has changed."""
    return _read_entry_points(group, tuple((path, _changed(path)) for path in sys.path))


@functools.cache
def _read_entry_points(group: str, where: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=group)))


def _changed(path: str) -> int:
    """When the directory ``path`` was changed last, in nanoseconds; 0 if it is none."""
    try:
        return os.stat(path or ".").st_mtime_ns
    except (OSError, ValueError):
        return 0


def load_attribute(spelled: str, title: str) -> Any:
    """The object that ``module:name`` names. Raises SearchlabError, which calls it ``title``, if there is none."""
    module, _, attribute = spelled.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SearchlabError(f"{title} cannot be loaded: {error}; is its package installed?") from None
    except (Exception, SystemExit) as error:  # the module may do anything as it is imported
        raise SearchlabError(
            f"{title} cannot be loaded: its module {module} cannot be imported: {described(error)}, raised at "
            f"{_place(error)}"
        ) from error


class PluginExit(Exception):
    """A plug-in has called ``os._exit``, which would end the process as if all were done."""


_calling = threading.local()
_exit = os._exit


def _guarded_exit(status: int) -> NoReturn:
    if getattr(_calling, "process", None) == os.getpid():
        raise PluginExit(f"it called os._exit({status})")
    _exit(status)  # of a child process, or of nobody's plug-in


@contextmanager
def _not_exiting() -> Iterator[None]:
    """Within, ``os._exit`` raises PluginExit in this thread of this process."""
    os._exit = _guarded_exit
    before = getattr(_calling, "process", None)
    _calling.process = os.getpid()
    try:
        yield
    finally:
        _calling.process = before


def _stops(error: BaseException) -> bool:
    """Whether ``error`` was raised to stop a plug-in, by a signal, by searchlab or by pytest, and not by it."""
    if isinstance(error, Exception | SystemExit):
        return False
    return isinstance(error, KeyboardInterrupt | GeneratorExit) or _package(type(error).__module__) in (
        "searchlab", "_pytest",
    )  # fmt: skip


def place_of(function: Any) -> str:
    """The file and the line where a function of a plug-in is defined; empty where that is not known."""
    try:
        return f"{inspect.getsourcefile(function)}, line {inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):
        return ""


def _place(error: BaseException) -> str:
    """Where in the source ``error`` arose."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}"


def _line_of(error: BaseException, cls: type[Any]) -> str:
    """The file and the line where ``error`` arose: in the code of a plug-in rather than in a library that it calls.

    Empty where no line of the plug-in was executed, as where it gave an object of the wrong kind.
    """
    libraries = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    frames = list(traceback.walk_tb(error.__traceback__))
    packages = [_package(str(frame.f_globals.get("__name__", ""))) for frame, _ in frames]
    files = [frame.f_code.co_filename for frame, _ in frames]
    outside = ("<frozen", *libraries)
    foreign = [i for i, file in enumerate(files) if packages[i] != "searchlab" and not file.startswith(outside)]
    own = [i for i, package in enumerate(packages) if package == _package(cls.__module__)]
    if not (foreign or own):
        return ""
    deepest = (foreign or own)[-1]
    return f"{files[deepest]}, line {frames[deepest][1]}"


def _package(module: str) -> str:
    return module.partition(".")[0]
