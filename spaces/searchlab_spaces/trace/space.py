"""``trace``: a stochastic trace function as a space, in which a policy chooses the samples.

Source: Shao et al., "Tensor Program Optimization with Probabilistic Programs" (NeurIPS 2022), section 3: a program that
samples its transformations defines the search space. Here each sample is a knob.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.errors import InvalidConfig, SearchlabError, UnsupportedWorkload, first_line
from searchlab.plugins import load_attribute
from searchlab.space import Choose, Config, Knob, Space, Value
from searchlab.target import Target
from searchlab.workload import Workload

from .. import decisions
from ..choice_tree import ChoiceTree
from ..gpu_check import check_gpu

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule
    from tvm.s_tir.meta_schedule.postproc import Postproc

    from .chooser import ChooseSample

TraceFunction = Callable[["Schedule"], None]
"""Schedules the workload's function ``main`` for ``tvm.target.Target.current()``."""

DEFAULT_FUNCTIONS = {
    ("gemm", "llvm"): "searchlab_spaces.trace.cpu:stochastic_schedule_gemm",
    ("batch-matmul", "llvm"): "searchlab_spaces.trace.cpu:stochastic_schedule_batch_matmul",
    ("conv2d", "llvm"): "searchlab_spaces.trace.cpu:stochastic_schedule_conv2d",
    ("gemm", "cuda"): "searchlab_spaces.trace.cuda:stochastic_schedule_mm_cuda",
    ("conv2d", "cuda"): "searchlab_spaces.trace.cuda:stochastic_schedule_conv2d_cuda",
    ("grouped-conv2d", "llvm"): "searchlab_spaces.trace.cpu:stochastic_schedule_grouped_conv2d",
    ("grouped-conv2d", "cuda"): "searchlab_spaces.trace.cuda:stochastic_schedule_conv2d_cuda",
}

MAX_TRIES = 32
"""The number of random programs to try at the start to check that the function supports the workload."""


@lru_cache(maxsize=16)
def _shared_choice_tree(function: TraceFunction, workload: Workload, target: Target) -> ChoiceTree:
    return ChoiceTree()


def _find_choice_tree(function: TraceFunction, workload: Workload, target: Target) -> ChoiceTree:
    """Return the memory that all spaces in this process with the same function, workload and target share."""
    return _shared_choice_tree(function, workload, target) if isinstance(function, Hashable) else ChoiceTree()


def last_sample(sch: Schedule) -> None:
    """Declare that the trace function draws no more samples from ``sch``.

    This is optional. Searches are faster if a function draws its samples first and then calls this, because a policy
    that only requests configs skips the rest of the function. MetaSchedule runs such a function as usual.
    """
    from .chooser import Chooser

    if isinstance(sch, Chooser):
        sch.end_samples()


class Trace(Space):
    """A stochastic trace function, as in MetaSchedule, which samples while it schedules; each sample is a knob.

    The knob for tiling loop ``j`` is called ``tile_j``, the one for the location of block ``pad`` is ``location_pad``,
    and a choice among candidates is ``pick``; a second knob with the same name becomes ``tile_j_2``. Only legal choices
    are offered, so every config is canonical. Samples with a given ``decision`` are not knobs, and probabilities only
    determine which candidates are offered. A config is invalid if the function raises ScheduleError or ValueError after
    the config's choices, or if a GPU cannot run its program. Raises UnsupportedWorkload if the function does not
    support the workload.

    Args:
        function: A function, or its location as ``"module:function"``; the default is the built-in function for the
            workload and target. It is called with a schedule of the workload whenever choices that it has not yet seen
            are requested, so later choices may depend on earlier ones. It must do nothing but schedule: the same
            choices must lead to the same program. A search is faster if the function draws all samples first and then
            calls ``searchlab_spaces.trace.last_sample``.
    """

    builds_programs = True

    def __init__(self, workload: Workload, target: Target, *, function: str | TraceFunction = "") -> None:
        super().__init__(workload, target)
        if not function and (workload.op, target.kind) not in DEFAULT_FUNCTIONS:
            supported = ", ".join(f"{op} on {kind}" for op, kind in DEFAULT_FUNCTIONS)
            raise UnsupportedWorkload(
                f"trace has no built-in function for {workload.op} on {target.kind} (only for {supported}); "
                f'pass your own with the option function = "module:function"'
            )
        self.function = function or DEFAULT_FUNCTIONS[workload.op, target.kind]
        loaded_function: Any = self.function
        if isinstance(loaded_function, str):
            if not all(loaded_function.partition(":")):
                raise SearchlabError(f'trace function {loaded_function!r} must have the form "module:function"')
            loaded_function = load_attribute(loaded_function, f"trace function {loaded_function!r}")
        if not callable(loaded_function):
            raise SearchlabError(f"trace function {self.function!r} must be a function that accepts a schedule")
        self._run_function: TraceFunction = loaded_function
        self._choice_tree = _find_choice_tree(self._run_function, workload, target)
        self._check_support()

    def decide(self, choose: Choose) -> Config:
        return self._choice_tree.choose_config(choose, self._ask_for_knobs, f"trace function {self._function_name!r}")

    def _ask_for_knobs(self, choose: Choose) -> None:
        from .chooser import AllSamplesDrawn

        # If the function fails, the choices made so far are still a config; `schedule` reports why it is invalid.
        with suppress(_FunctionFailed, AllSamplesDrawn):
            self._run(lambda knob, _: choose(knob), samples_only=True)

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        knobs = self._choice_tree.knobs(config)
        return super().knobs(config) if knobs is None else knobs  # if anything is wrong, super() reports it

    def schedule(self, config: Mapping[str, Value]) -> Schedule:
        self.knobs(config)
        try:
            schedule = self._run(lambda knob, _: config[knob.name])
        except _FunctionFailed as failure:
            raise InvalidConfig(f"{self._function_name} fails: {failure}") from None
        return self._check_limits(schedule)

    def canonical(self, config: Mapping[str, Value]) -> Config:
        """Return ``config``, because TVM changes no legal choice. Raises InvalidConfig if it is not a member."""
        self.knobs(config)
        return Config(config)

    def draw(self, seed: int) -> Schedule:
        from .chooser import RandomSchedule

        try:
            schedule = self._apply_function(
                RandomSchedule(self.workload.module, seed=seed, error_render_level="fast")
            ).copy()
        except (RuntimeError, ValueError) as error:
            raise InvalidConfig(f"{self._function_name} fails: {first_line(error)}") from None
        return self._check_limits(schedule)

    def config_of(self, schedule: Schedule) -> Config:
        """Return the config of the samples in ``schedule``'s trace. Raises InvalidConfig if it is not a member.

        The config's program may differ from ``schedule`` if the function uses a sample for anything but arguments of
        TVM's primitives. A trace whose decisions were changed keeps the steps that followed from the old decisions.
        """
        trace = schedule.trace
        samples = [inst for inst in trace.insts if inst.kind.name in decisions.SAMPLING_INSTRUCTIONS]
        values = [decisions.to_value(inst.kind.name, inst.attrs, trace.get_decision(inst)) for inst in samples]
        items: list[tuple[str, Value]] = []

        def read(knob: Knob, position: int) -> Value:
            value = values[position] if position < len(values) else None
            if value is None or value not in knob.choices:
                raise InvalidConfig(f"knob {knob.name!r} cannot be {value!r} after the earlier choices")
            items.append((knob.name, value))
            return value

        try:
            self._run(read)
        except _FunctionFailed as failure:
            raise InvalidConfig(f"{self._function_name} fails: {failure}") from None
        return Config(items)

    def postprocessing(self) -> tuple[tvm.target.Target, Sequence[Postproc]]:
        return self.target.tvm, ()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._choice_tree = _find_choice_tree(self._run_function, self.workload, self.target)

    @property
    def _function_name(self) -> str:
        name = self.function
        return name if isinstance(name, str) else f"{name.__module__}:{getattr(name, '__qualname__', name)}"

    def _run(self, choose: ChooseSample, *, samples_only: bool = False) -> Schedule:
        """Run the function with these choices. Raises _Failed if the function cannot continue.

        With ``samples_only``, it also raises Sampled after the last sample if the function declares which it is.
        """
        from .chooser import Chooser

        is_choosing = False

        def record_choosing(knob: Knob, position: int) -> Value:
            nonlocal is_choosing
            is_choosing = True
            value = choose(knob, position)
            is_choosing = False
            return value

        try:
            return self._apply_function(
                Chooser(self.workload.module, record_choosing, samples_only=samples_only)
            ).copy()  # plain
        except (RuntimeError, ValueError) as error:  # TVM's ScheduleError is a RuntimeError; failed checks are either
            if is_choosing:  # the caller's `choose` failed, not the function
                raise
            raise _FunctionFailed(first_line(error)) from None

    def _apply_function(self, sch: Schedule) -> Schedule:
        with self.target.tvm:
            self._run_function(sch)
        return sch

    def _check_limits(self, schedule: Schedule) -> Schedule:
        """Return ``schedule``. Raises InvalidConfig if its program exceeds the limits of a GPU."""
        if "gpu" in self.target.tvm.keys:
            check_gpu(schedule.mod, self.target)
        return schedule

    def _check_support(self) -> None:
        """Raise UnsupportedWorkload if neither the first choices nor random ones lead to a program."""
        rng = np.random.default_rng(0)

        def first(knob: Knob, _: int) -> Value:
            return knob.choices[0]

        def draw(knob: Knob, _: int) -> Value:
            return knob.choices[int(rng.integers(len(knob.choices)))]

        for choose in [first] + [draw] * MAX_TRIES:
            try:
                self._run(choose)
                return
            except _FunctionFailed as failure:
                reason = str(failure)
        raise UnsupportedWorkload(
            f"trace function {self._function_name!r} yields no program for {self.workload} on {self.target.kind}: "
            f"{reason}"
        )


class _FunctionFailed(Exception):
    """A trace function cannot continue; the message says why."""
