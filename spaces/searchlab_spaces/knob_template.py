"""``knob-template``: a hand-written schedule with its numbers left open, as in AutoTVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from searchlab.errors import InvalidConfig, SearchlabError, UnsupportedWorkload
from searchlab.space import ProductSpace, Value
from searchlab.target import Target
from searchlab.workload import Workload

from .knobs import TemplateConfig

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

Template = Callable[[TemplateConfig, "Schedule", Target], None]
"""Defines its knobs on the config and applies them to the schedule of the workload's ``main``."""

TEMPLATES = {
    ("gemm", "llvm"): "searchlab_spaces.templates_cpu:gemm",
    ("conv2d", "llvm"): "searchlab_spaces.templates_cpu:conv2d",
}


class KnobTemplate(ProductSpace):
    """The space of a template: the product of its knobs.

    template: ``"module:function"``, or the built-in one for the workload and target if empty.
    """

    def __init__(self, workload: Workload, target: Target, *, template: str = "") -> None:
        if not template and (workload.op, target.kind) not in TEMPLATES:
            known = ", ".join(f"{op} on {kind}" for op, kind in TEMPLATES)
            raise UnsupportedWorkload(
                f"knob-template has no template for {workload.op} on {target.kind} (only {known}); "
                f'give your own as the option template = "module:function"'
            )
        self.template = template or TEMPLATES[workload.op, target.kind]
        super().__init__(workload, target, ())
        config, _ = self._instantiate(None)
        self.axes = tuple(config.knobs)

    def schedule(self, config: Mapping[str, Value]) -> Schedule:
        from tvm.s_tir import ScheduleError

        self.knobs(config)
        try:
            return self._instantiate(config)[1]
        except ScheduleError as error:
            raise InvalidConfig(f"the template cannot be applied: {str(error).strip().splitlines()[0]}") from None

    def _instantiate(self, chosen: Mapping[str, Value] | None) -> tuple[TemplateConfig, Schedule]:
        from tvm.s_tir import Schedule

        module, _, name = self.template.partition(":")
        try:
            function: Template = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise SearchlabError(f"template {self.template!r} cannot be loaded: {error}") from None
        config, schedule = TemplateConfig(chosen), Schedule(self.workload.module)
        function(config, schedule, self.target)
        return config, schedule
