"""``knob-template``: a hand-written schedule with open parameters, as in AutoTVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from searchlab.errors import InvalidConfig, SearchlabError, UnsupportedWorkload
from searchlab.space import Config, Value
from searchlab.target import Target
from searchlab.workload import Workload

from ..gpu_check import check_gpu
from .knobs import INDEPENDENCE_REQUIREMENT, TemplateConfig, TemplateKnob
from .multi_filter import FilteredProduct, MultiFilter
from .registry import TemplateFunction, find_template

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

DEFAULT_TEMPLATES = {
    ("gemm", "llvm"): "gemm_cpu",
    ("batch-matmul", "llvm"): "batch_matmul_cpu",
    ("conv2d", "llvm"): "conv2d_cpu",
    ("gemm", "cuda"): "gemm_cuda",
    ("conv2d", "cuda"): "conv2d_no_batching",
    ("grouped-conv2d", "llvm"): "grouped_conv2d_cpu",
    ("grouped-conv2d", "cuda"): "grouped_conv2d_cuda",
}
"""The default template for each op and target kind."""


class KnobTemplate(FilteredProduct):
    """A hand-written schedule with open parameters, as in AutoTVM.

    The space is the product of the knobs that the template defines. ``print(space)`` and ``space.index_of(config)``
    produce the same text and index as AutoTVM. A template's ``multi_filter`` excludes configs; indices remain those of
    the product.

    Args:
        template: A function ``(config, schedule, target)`` that defines knobs and applies them, its location as
            ``"module:function"``, or the name of a registered template. The default is the built-in template for the
            workload and the target. Raises UnsupportedWorkload if the template does not support them.
    """

    axes: tuple[TemplateKnob, ...]

    def __init__(self, workload: Workload, target: Target, *, template: str | TemplateFunction = "") -> None:
        if not template and (workload.op, target.kind) not in DEFAULT_TEMPLATES:
            supported = ", ".join(f"{op} on {kind}" for op, kind in DEFAULT_TEMPLATES)
            raise UnsupportedWorkload(
                f"knob-template has no built-in template for {workload.op} on {target.kind} (only for {supported}); "
                f'pass your own with the option template = "module:function"'
            )
        self.template = find_template(template or DEFAULT_TEMPLATES[workload.op, target.kind])
        self.template.check(workload, target)
        super().__init__(workload, target, ())
        try:
            config, _ = self._instantiate(None)
        except InvalidConfig as error:
            raise SearchlabError(
                f"template {self.template.name!r} must be valid with every knob at its first choice: {error}"
            ) from None
        self.axes = tuple(config.knobs.values())
        self.filter = MultiFilter(self.axes, config.filter) if config.filter else None

    def schedule(self, config: Mapping[str, Value]) -> Schedule:
        self.knobs(config)
        template_config, schedule = self._instantiate(config)
        if tuple(template_config.knobs.values()) != self.axes:
            raise SearchlabError(f"template {self.template.name!r}: {INDEPENDENCE_REQUIREMENT}")
        if "gpu" in self.target.tvm.keys:
            check_gpu(schedule.mod, self.target)
        return schedule

    def _instantiate(self, choices: Mapping[str, Value] | None) -> tuple[TemplateConfig, Schedule]:
        from tvm.s_tir import Schedule, ScheduleError

        from ..unchecked import Unchecked

        # The type checks of TVM's Python methods run only once, with the first choices.
        schedule = (Schedule if choices is None else Unchecked)(self.workload.module)
        config = TemplateConfig(schedule, choices)
        try:
            self.template.function(config, schedule, self.target)
        except ScheduleError as error:
            # TVM prints the complete program before the reason.
            reason = str(error).rpartition("Error message: ")[2].strip().splitlines()[0]
            raise InvalidConfig(f"the template cannot be applied: {reason}") from None
        return config, schedule.copy()

    # --- AutoTVM's form -----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """Return the space as ``tvm.autotvm`` prints it."""
        knobs = "".join(f"  {i:2d} {knob.name}: {knob}\n" for i, knob in enumerate(self.axes))
        return f"ConfigSpace (len={self.size()}, range_length={self.range_length}, space_map=\n{knobs})"

    def show(self, config: Config) -> str:
        """Return ``config`` as ``tvm.autotvm`` prints it: the knobs, None for the code hash, and the index."""
        entity = self.to_entity(config)
        return f"{[(name, value) for name, _, value in entity['entity']]},None,{entity['index']}"

    def to_entity(self, config: Config) -> dict[str, Any]:
        """Return ``config`` in the form of ``tvm.autotvm``'s logs. Raises InvalidConfig if it is not in the space."""
        entity = [[knob.name, knob.code, knob.to_entity(config[knob.name])] for knob in self.knobs(config)]  # type: ignore[attr-defined]
        return {"index": self.index_of(config), "code_hash": None, "entity": entity}

    def from_entity(self, entity: Mapping[str, Any]) -> Config:
        """Return the config that an ``entity`` from a ``tvm.autotvm`` log describes; its index is ignored.

        Raises:
            InvalidConfig: If the config is not in this space.
        """
        knobs_by_name = {knob.name: knob for knob in self.axes}
        values = {}
        for name, code, value in entity["entity"]:
            if name not in knobs_by_name or knobs_by_name[name].code != code:
                raise InvalidConfig(f"the entity sets knob {name!r} ({code}), which this space does not have")
            values[name] = knobs_by_name[name].from_entity(value)
        config = Config(values)
        self.knobs(config)
        return config
