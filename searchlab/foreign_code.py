"""Calls of code that is not searchlab's: its errors, its location in files, and interrupts while it runs."""

from __future__ import annotations

import inspect
import os
import signal
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from .errors import SearchlabError


def top_level_package(module_name: str) -> str:
    """Return the name of the package that contains a module, without those of its subpackages."""
    return module_name.partition(".")[0]


@contextmanager
def convert_foreign_errors(make_error: Callable[[BaseException], SearchlabError]) -> Iterator[None]:
    """Convert any exception that foreign code raises to the SearchlabError that ``make_error`` returns for it.

    SearchlabErrors, and the exceptions that searchlab or pytest raises to stop foreign code, are not converted. An
    interrupt remains one even if the code, or TVM, has replaced it.
    """
    with note_interrupts() as interrupts:
        previous_count = len(interrupts)
        try:
            yield
        except BaseException as error:
            if len(interrupts) > previous_count and not isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            if isinstance(error, SearchlabError) or _is_stop(error):
                raise
            raise make_error(error) from error
        if len(interrupts) > previous_count:
            raise KeyboardInterrupt


_interrupts: list[int] | None = None
"""The list that the outermost :func:`note_interrupts` has yielded."""


@contextmanager
def note_interrupts() -> Iterator[list[int]]:
    """Yield a list to which each signal is added that arrives in this context and has a handler in Python.

    If a callback of TVM raises KeyboardInterrupt, TVM raises a RuntimeError without text instead. Within another such
    context, nothing is changed, which takes no time.
    """
    global _interrupts
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield []
        return
    if _interrupts is not None:
        yield _interrupts
        return
    interrupts = _interrupts = []
    handlers = {signal_number: signal.getsignal(signal_number) for signal_number in (signal.SIGINT, signal.SIGTERM)}

    def record_interrupt(signal_number: int, frame: FrameType | None) -> None:
        interrupts.append(signal_number)
        handler = handlers[signal.Signals(signal_number)]
        if callable(handler):
            handler(signal_number, frame)

    for signal_number, handler in handlers.items():
        if callable(handler):
            signal.signal(signal_number, record_interrupt)
    try:
        yield interrupts
    finally:
        _interrupts = None
        for signal_number, handler in handlers.items():
            if signal.getsignal(signal_number) is record_interrupt:
                signal.signal(signal_number, handler)


def _is_stop(error: BaseException) -> bool:
    """Return whether ``error`` was raised by a signal, searchlab or pytest in order to stop a plug-in."""
    if isinstance(error, Exception | SystemExit):
        return False
    return isinstance(error, KeyboardInterrupt | GeneratorExit) or top_level_package(type(error).__module__) in (
        "searchlab",
        "_pytest",
    )


def find_definition(function: Any) -> str:
    """Return the ``file:line`` where a function is defined, or an empty string if unknown."""
    try:
        return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):
        return ""


def find_raise_location(error: BaseException) -> str:
    """Return the ``file:line`` where ``error`` was raised."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def find_error_location(error: BaseException, cls: type[Any]) -> str:
    """Return the ``file:line`` of the innermost call in a plug-in's own code, ignoring the libraries that it calls.

    The result is empty if no line of the plug-in was executed, for example because it returned an object of the wrong
    type.
    """
    library_prefixes = ("<frozen", *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")))
    plugin_packages = {top_level_package(base.__module__) for base in cls.__mro__} - {
        "builtins",
        "abc",
        "searchlab",
        "typing",
    }
    foreign_location = plugin_location = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        package, file_path = top_level_package(str(frame.f_globals.get("__name__", ""))), frame.f_code.co_filename
        exists = file_path.startswith("<") or os.path.isfile(file_path)  # TVM adds frames for its C++ code
        if exists and package != "searchlab" and not file_path.startswith(library_prefixes):
            foreign_location = f"{file_path}:{line}"
        if package in plugin_packages:
            plugin_location = f"{file_path}:{line}"
    return foreign_location or plugin_location
