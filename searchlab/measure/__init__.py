"""Measuring configs: the contract, and the settings of each kind of measurer as a study file spells them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from ..records import Measurement
from ..space import Config, Space
from ..target import Target, available_cores

Cache = MutableMapping[str, Measurement]
"""Measurements by program hash, of one target and one protocol: what need not be measured again."""


class LocalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="local"):
    """Measure in worker processes on this machine.

    A program is run ``number`` times a repeat, more often where that takes less than ``min_repeat_ms``, and
    ``repeat`` times over. Timeouts are in seconds. ``workers`` build processes, or one a core if 0.
    """

    number: int = 1
    repeat: int = 3
    min_repeat_ms: int = 10
    build_timeout: float = 15.0
    run_timeout: float = 15.0
    check: bool = True
    workers: int = 0

    def __post_init__(self) -> None:
        for name, least in (("number", 1), ("repeat", 1), ("min_repeat_ms", 0), ("workers", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("build_timeout", "run_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0 seconds, not {getattr(self, name)}")


class TableSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="table"):
    """Answer from recorded logs: a file, a directory of logs, or several of them, relative to the study file."""

    path: str | list[str]


Settings = LocalSettings | TableSettings


class Measurer(ABC):
    """Measures configs; a context manager, since it may hold processes."""

    workers: int = 1
    """How many programs are built at the same time."""

    @abstractmethod
    def measure(self, space: Space, configs: Sequence[Config]) -> Iterator[Measurement]:
        """One measurement a config, in order, each as soon as it is there.

        A failure of the config is a Measurement; an exception is a failure of the measurer.
        """

    def close(self) -> None:
        """Let go of every process; the measurer is not used again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def protocol(settings: Settings) -> dict[str, Any]:
    """What of ``settings`` decides the numbers that come out: the log's ``measure``."""
    fields: dict[str, Any] = msgspec.to_builtins(settings)
    fields.pop("workers", None)
    return fields


def make_measurer(settings: Settings, target: Target, cache: Cache, base: Path = Path()) -> Measurer:
    """The measurer for ``settings``; ``base`` is what a table's relative path starts from."""
    if isinstance(settings, TableSettings):
        from .table import TableMeasurer

        paths = [settings.path] if isinstance(settings.path, str) else settings.path
        return TableMeasurer([base / path for path in paths])
    from .local import LocalMeasurer

    return LocalMeasurer(settings, target, cache, settings.workers or available_cores())
