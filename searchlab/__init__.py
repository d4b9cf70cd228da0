"""searchlab compares strategies that search for fast tensor programs.

``import searchlab`` imports neither TVM nor any plug-in; each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import analysis as analysis
    from . import apply as apply
    from . import conformance as conformance
    from .analysis import Comparison, compare
    from .apply import apply_best, apply_history_best, build_best
    from .costmodel import BoundCostModel, CostModel
    from .errors import InvalidConfig, SearchlabError, UnsupportedSpace, UnsupportedWorkload
    from .executors.contract import RunExecutor
    from .log.result import Result, Results, load_log
    from .model import ScheduledTask, Scheduler
    from .model.tasks import tasks_of
    from .model.tune import tune_model
    from .plugins import trust_plugins
    from .policy import NeverTwice, Policy
    from .records import Measurement, Trial
    from .run.study import Study
    from .run.tune import tune
    from .space import Config, Knob, ProductSpace, Space
    from .tables.build import build_table
    from .target import Target, resolve_target
    from .workload import Workload, conv2d, gemm, maximize, minimize, parse_workload

    __version__: str

_NAMES_BY_MODULE = {
    "analysis": ("Comparison", "compare"),
    "apply": ("apply_best", "apply_history_best", "build_best"),
    "costmodel": ("CostModel", "BoundCostModel"),
    "errors": ("InvalidConfig", "SearchlabError", "UnsupportedSpace", "UnsupportedWorkload"),
    "executors.contract": ("RunExecutor",),
    "model": ("ScheduledTask", "Scheduler"),
    "model.tasks": ("tasks_of",),
    "model.tune": ("tune_model",),
    "plugins": ("trust_plugins",),
    "policy": ("NeverTwice", "Policy"),
    "records": ("Measurement", "Trial"),
    "log.result": ("Result", "Results", "load_log"),
    "space": ("Config", "Knob", "ProductSpace", "Space"),
    "run.study": ("Study",),
    "run.tune": ("tune",),
    "tables.build": ("build_table",),
    "target": ("Target", "resolve_target"),
    "workload": ("Workload", "conv2d", "gemm", "maximize", "minimize", "parse_workload"),
}
_MODULE_BY_NAME = {name: module_name for module_name, names in _NAMES_BY_MODULE.items() for name in names}
_PACKAGES = ("analysis", "apply", "conformance")

__all__ = [
    "BoundCostModel",
    "Comparison",
    "Config",
    "CostModel",
    "InvalidConfig",
    "Knob",
    "Measurement",
    "NeverTwice",
    "Policy",
    "ProductSpace",
    "Result",
    "Results",
    "RunExecutor",
    "ScheduledTask",
    "Scheduler",
    "SearchlabError",
    "Space",
    "Study",
    "Target",
    "Trial",
    "UnsupportedSpace",
    "UnsupportedWorkload",
    "Workload",
    "__version__",
    "apply_best",
    "apply_history_best",
    "build_best",
    "build_table",
    "compare",
    "conv2d",
    "gemm",
    "load_log",
    "maximize",
    "minimize",
    "parse_workload",
    "resolve_target",
    "tasks_of",
    "trust_plugins",
    "tune",
    "tune_model",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("searchlab")
    if name in _PACKAGES:
        return import_module(f".{name}", __name__)
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module 'searchlab' has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_BY_NAME[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__, *_PACKAGES]
