"""The settings for each kind of measurement, specified under ``measure`` in a study file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import SearchlabError
from ..schema import convert
from ..workload import Function, Workload, split_workload_name
from .function import FunctionSettings
from .local import LocalSettings
from .rpc import RpcSettings
from .table import TableSettings

__all__ = ["FunctionSettings", "LocalSettings", "RpcSettings", "Settings", "TableSettings", "add_kind", "settings_for"]

Settings = LocalSettings | FunctionSettings | RpcSettings | TableSettings


def add_kind(measure: Any, workloads: Iterable[str]) -> Any:
    """Return ``measure`` with the kind that follows from the workloads, if it is a mapping that specifies none.

    The kind remains missing if a key belongs to a kind that never follows from a workload, such as a table's ``path``.
    """
    if not isinstance(measure, Mapping) or "kind" in measure:
        return measure
    is_called = any(split_workload_name(text.strip())[0] == "python" for text in workloads)
    default_settings = FunctionSettings if is_called else LocalSettings
    other_keys = {*RpcSettings.__struct_fields__, *TableSettings.__struct_fields__} - {*LocalSettings.__struct_fields__}
    if measure.keys() & other_keys:
        return measure
    return {"kind": default_settings.__struct_config__.tag, **measure}


def settings_for(workload: Workload | None, measure: Settings | Mapping[str, Any] | None) -> Settings:
    """Return the settings for measuring ``workload``, or the programs of a model if it is None.

    Raises SearchlabError if ``measure`` is invalid or its kind cannot measure the workload.
    """
    is_called = isinstance(workload, Function)
    if measure is None:
        return FunctionSettings() if is_called else LocalSettings()
    if isinstance(measure, Mapping):
        measure = add_kind(dict(measure), [] if workload is None else [str(workload)])
        settings: Settings = convert(measure, Settings, "measure")
    else:
        settings = measure
    if settings.replays or is_called == isinstance(settings, FunctionSettings):
        return settings
    kind = settings.identity()["kind"]
    if is_called:
        raise SearchlabError(f'{workload} is called, not built, so use measure.kind = "function" instead of "{kind}"')
    subject = "a model" if workload is None else workload
    raise SearchlabError(f'{subject} is not a function, so measure.kind cannot be "{kind}"; use "local"')
