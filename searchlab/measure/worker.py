"""What a worker process does: builds programs, or runs them. A candidate can crash nothing but this process."""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from ..costmodel.features import ScheduledFeatures, make_features
from ..errors import InvalidConfig, cut, text_of
from ..space import Config, Space
from ..workload import Workload
from .channel import Channel
from .code import Objects, compile_program, device_of, load_objects, program_hash, reason, to_objects
from .isolation import limit_memory, with_limit
from .messages import (
    Answer,
    Broken,
    Build,
    Built,
    CheckProgram,
    Connected,
    Done,
    Drawn,
    Extract,
    Extracted,
    Failed,
    Ready,
    Remeasure,
    Reply,
    Right,
    RunOn,
    RunProgram,
    Scheduled,
    SetUp,
    SetUpBuilder,
    SetUpRunner,
    SetUpSessions,
    Skip,
    Skipped,
    Started,
    Work,
    encoded,
)
from .runner import Runner, case_of
from .state import Watch

if TYPE_CHECKING:
    from .rpc.session import RemoteRunner


class Workbench:
    """The space or the workload that a worker was set up with, and the work that it does with it."""

    space: Space
    features: dict[str, ScheduledFeatures]
    workload: Workload
    runner: Runner
    remote: RemoteRunner

    def __init__(self, channel: Channel, memory_limit_mb: int) -> None:
        self.channel = channel
        self.memory_limit_mb = memory_limit_mb
        self.received = 0

    def reply(self, message: SetUp | Work) -> None:
        if isinstance(message, SetUp):
            self.send(self.set_up(message))
        elif isinstance(message, RunOn):  # the candidate runs on a device
            self.send(self.answer(message))
        else:
            limit_memory(self.memory_limit_mb)
            watch = Watch()
            answer = self.answer(message)
            self.send(answer, watch.changed())

    def send(self, answer: Answer, changed: str = "") -> None:
        self.channel.send(encoded(Reply(self.received, answer, changed)))

    def recv(self) -> Any:
        """The next message. Raises EOFError if there is none."""
        message = pickle.loads(self.channel.recv())
        self.received += 1
        return message

    def answer(self, message: Work) -> Done:
        match message:
            case Build(config):
                return self.build(config)
            case Extract(features, configs):
                return self.extract(features, configs)
            case RunProgram(objects, best):
                return self.runner.run(partial(load_objects, objects), best)
            case CheckProgram(objects, seed):
                return self.check(objects, seed)
            case Remeasure(programs, rounds):
                return self.runner.remeasure([partial(load_objects, objects) for objects in programs], rounds)
            case RunOn(address, objects, best):
                return self.remote.run(lambda: self.send(Connected()), address, objects, best)
        assert_never(message)

    def set_up(self, message: SetUp) -> Ready | Broken:
        limit_memory(0)  # what is set up now is no candidate
        try:
            match message:
                case SetUpBuilder(data):
                    self.space = pickle.loads(data)
                    self.features = {}
                case SetUpRunner(workload, settings, kind, error_factor):
                    self.workload = workload
                    self.runner = Runner(workload, settings, device_of(kind), error_factor=error_factor)
                case SetUpSessions():
                    from .rpc.session import RemoteRunner  # it imports TVM's RPC, which no other worker needs

                    self.remote = RemoteRunner(message)
        except Exception as error:  # the code of a plug-in may not even import here
            return Broken(cut(f"{type(error).__name__}: {text_of(error)}"))
        return Ready()

    def build(self, config: Config) -> Built | Skipped | Failed:
        """Schedule and compile. In between it sends Scheduled, and goes on unless it is told to skip.

        The seconds of a build are those of the CPU: other work on this machine is not charged to a candidate.
        """
        start = cpu_seconds()
        try:
            module = self.space.schedule(config).mod
        except InvalidConfig as error:
            return Failed("invalid", cut(text_of(error)), cpu_seconds() - start)
        except Exception as error:
            # Anything may come out of a plug-in's schedule; it is this trial's failure and nobody else's.
            said = cut(f"schedule: {type(error).__name__}: {text_of(error)}")
            text = with_limit(said, self.memory_limit_mb)
            return Failed("build_error", text, cpu_seconds() - start)
        scheduling = cpu_seconds() - start
        self.send(Scheduled(program_hash(module)))
        if isinstance(self.recv(), Skip):
            return Skipped()
        start = cpu_seconds()
        try:
            objects = to_objects(compile_program(module, self.space.target))
        except Exception as error:  # likewise anything out of the compiler
            text = with_limit(reason(error), self.memory_limit_mb)
            return Failed("build_error", text, scheduling + cpu_seconds() - start)
        return Built(objects, scheduling + cpu_seconds() - start)

    def extract(self, name: str, configs: list[Config]) -> Extracted:
        start = cpu_seconds()
        if name not in self.features:
            features = make_features(name, self.space)
            assert isinstance(features, ScheduledFeatures)
            self.features[name] = features
        rows = [row.astype(np.float64).tobytes() for row in self.features[name].extract(configs)]
        return Extracted(rows, cpu_seconds() - start)

    def check(self, objects: Objects, seed: int) -> Right | Failed:
        limit_memory(0)  # the inputs and the reference are no candidate either
        case = case_of(self.workload, True, seed)
        limit_memory(self.memory_limit_mb)
        self.send(Drawn())
        return self.runner.check(partial(load_objects, objects), case)


def cpu_seconds() -> float:
    """Seconds of CPU that this process and its children, such as nvcc, have taken."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def work(channel: Channel, memory_limit_mb: int) -> None:
    """Answer the messages of ``channel`` until its other end is closed."""
    # A plug-in may print as much as it likes; printing to a pipe that is full would raise an exception.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open to the end
    workbench = Workbench(channel, memory_limit_mb)
    workbench.send(Started())
    while True:
        try:
            message = workbench.recv()
        except EOFError:
            return
        workbench.reply(message)
