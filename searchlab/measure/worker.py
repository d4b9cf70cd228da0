"""The worker process, which builds programs, passes them to a runner, or calls a function.

A candidate can crash only its own worker. A program runs on this machine or on a device in a fleet.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, assert_never

import msgspec
import numpy as np

from ..costmodel.features import ScheduledFeatures, make_features
from ..errors import InvalidConfig, SearchlabError, shorten_text, text_of
from ..foreign_code import find_error_location
from ..options import plain
from ..records import Failure
from ..space import Config, Space
from ..units import RUNS, cost_of_value
from ..workload import call_with, program_hash
from . import messages
from .cases import make_cases
from .channel import Channel
from .code import compile_to_code, device_of, error_text, load_objects
from .isolation import add_memory_limit, describe_changes, limit_memory, read_process_state
from .messages import Answer, Done, Failed, Ran, Reply, SetUp, Work
from .remote_runner import RemoteRunner
from .runner import Runner


class Workbench:
    """The operations of a worker, and the space, workload or function with which it has been set up."""

    space: Space
    features_by_name: dict[str, ScheduledFeatures]
    runner: Runner
    remote_runner: RemoteRunner
    function: Callable[[dict[str, Any]], Any]
    unit: str

    def __init__(self, channel: Channel, memory_limit_mb: int) -> None:
        self.channel = channel
        self.memory_limit_mb = memory_limit_mb
        self.message_count = 0

    def handle_message(self, message: SetUp | Work) -> None:
        """Do what ``message`` asks, and send the answer."""
        if isinstance(message, SetUp):
            self.send(self.set_up(message))
        elif isinstance(message, messages.RunOn):  # the candidate runs on a fleet device, not in this process
            self.send(self.execute(message))
        elif isinstance(message, messages.Call):  # a function may keep its state, such as data that it has loaded
            limit_memory(self.memory_limit_mb)
            self.send(self.execute(message))
        else:
            limit_memory(self.memory_limit_mb)
            initial_state = read_process_state()
            answer = self.execute(message)
            self.send(answer, describe_changes(initial_state))

    def send(self, answer: Answer, changed_state: str = "") -> None:
        self.channel.send(msgspec.msgpack.encode(Reply(self.message_count, answer, changed_state)))

    def recv(self) -> Any:
        """Return the next message. Raises EOFError if the other end is closed."""
        message = pickle.loads(self.channel.recv())
        self.message_count += 1
        return message

    def execute(self, message: Work) -> Done:
        """Build, run or call what ``message`` asks for, and return the answer."""
        match message:
            case messages.Build(config):
                return self.build(config)
            case messages.Extract(features, configs):
                return self.extract(features, configs)
            case messages.RunProgram(code, best_cost):
                return self.runner.run(partial(load_objects, code.objects), code.packed, best_cost)
            case messages.Call(config, repeat):
                return self.call(config, repeat)
            case messages.Remeasure(codes, rounds):
                return self.runner.remeasure(codes, rounds)
            case messages.RunOn(address, code, best_cost):
                return self.remote_runner.run(lambda: self.send(messages.InputsReceived()), address, code, best_cost)
        assert_never(message)

    def set_up(self, message: SetUp) -> messages.Ready | messages.Broken:
        """Prepare for the work that ``message`` announces."""
        limit_memory(0)  # the limit applies only to candidates
        try:
            match message:
                case messages.SetUpBuilder(pickled):
                    self.space = pickle.loads(pickled)
                    self.features_by_name = {}
                case messages.SetUpFunction(pickled):
                    self.function, self.unit = pickle.loads(pickled)
                case messages.SetUpRunner(workload, settings, target, fleet=None):
                    cases = make_cases(workload, settings.check, message.seed, message.error_factor)
                    self.runner = Runner(workload, settings, device_of(target.kind), cases=cases)
                case messages.SetUpRunner():
                    self.remote_runner = RemoteRunner(message)
        except Exception as error:  # for example, because a plug-in's module cannot be imported
            return messages.Broken(shorten_text(f"{type(error).__name__}: {text_of(error)}"))
        return messages.Ready()

    def build(self, config: Config) -> messages.Built | messages.Skipped | Failed:
        """Schedule and compile a program. In between, send Scheduled and wait for Continue.

        The answer's seconds are CPU time, so that candidates are not charged for other work on this machine.
        """
        start = read_cpu_seconds()
        try:
            module = self.space.schedule(config).mod
        except InvalidConfig as error:
            return Failed("invalid", shorten_text(text_of(error)), read_cpu_seconds() - start)
        except (Exception, SystemExit) as error:
            # Whatever exception a plug-in raises while scheduling, only this trial is to fail.
            text = add_memory_limit(describe_with_line(error, "schedule: "), self.memory_limit_mb)
            return Failed("build_error", text, read_cpu_seconds() - start)
        self.send(messages.Scheduled(program_hash(module)))
        if not self.recv().compile:
            return messages.Skipped()
        try:
            code = compile_to_code(module, self.space.target)
        except Exception as error:  # the compiler may raise any exception, too
            text = add_memory_limit(error_text(error), self.memory_limit_mb)
            return Failed("build_error", text, read_cpu_seconds() - start)
        return messages.Built(code, read_cpu_seconds() - start)

    def call(self, config: Config, repeat: int) -> Ran | Failed:
        """Call the function, and return the costs that it returns."""
        start = time.perf_counter()
        try:
            costs = [cost for _ in range(repeat) for cost in parse_costs(call_with(self.function, config), self.unit)]
        except InvalidConfig as error:
            return Failed("invalid", shorten_text(text_of(error)), time.perf_counter() - start)
        except SearchlabError as error:
            return Failed("run_error", shorten_text(text_of(error)), time.perf_counter() - start)
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            text = add_memory_limit(describe_with_line(error), self.memory_limit_mb)
            failure: Failure = "wrong_answer" if isinstance(error, AssertionError) else "run_error"
            return Failed(failure, text, time.perf_counter() - start)
        return Ran(tuple(costs), False, time.perf_counter() - start)

    def extract(self, name: str, configs: list[Config]) -> messages.Extracted:
        """Return the features called ``name`` of the configs' programs."""
        start = read_cpu_seconds()
        if name not in self.features_by_name:
            features = make_features(name, self.space)
            assert isinstance(features, ScheduledFeatures)
            self.features_by_name[name] = features
        rows = [row.astype(np.float64).tobytes() for row in self.features_by_name[name].extract(configs)]
        return messages.Extracted(rows, read_cpu_seconds() - start)


def describe_with_line(error: BaseException, prefix: str = "") -> str:
    """Return an error's type, its text, and the ``file:line`` of the user's code that raised it, if any did."""
    source_line = find_error_location(error, object)
    suffix = f" ({source_line})" if source_line else ""
    return shorten_text(f"{prefix}{type(error).__name__}: {text_of(error)}{suffix}")


def parse_costs(returned_value: Any, unit: str) -> list[float]:
    """Return the costs of what a function has returned: a number, several repeats, or either as ``{"seconds": ...}``.

    Raises SearchlabError if it has returned anything else.
    """
    value = plain(returned_value)
    key = "seconds" if unit == RUNS else "value"
    if isinstance(value, Mapping):
        value = value.get(key)
    costs = []
    for number in value if isinstance(value, list) and value else [value]:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise SearchlabError(
                f"the function returned {returned_value!r:.200}; it must return {key}: a number, a list of numbers, or "
                f"a mapping with the key {key!r}"
            )
        costs.append(cost_of_value(number, unit))
        if not 1e-15 < costs[-1] < 1e15:  # the limits of logs
            requirement = "values must be finite"
            if unit == RUNS:
                requirement = "costs must be positive and finite; for other numbers, use searchlab.minimize or maximize"
            raise SearchlabError(f"the function returned {returned_value!r:.200}; {requirement}")
    return costs


def read_cpu_seconds() -> float:
    """Return the CPU time used by this process and its children, such as nvcc."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def work(channel: Channel, memory_limit_mb: int) -> None:
    """Answer messages from ``channel`` until its other end is closed."""
    # A plug-in may print any amount of text, and printing to a full pipe would raise an exception.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends
    workbench = Workbench(channel, memory_limit_mb)
    workbench.send(messages.Started())
    while True:
        try:
            message = workbench.recv()
        except EOFError:
            return
        workbench.handle_message(message)
