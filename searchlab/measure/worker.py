"""What a worker process does: builds programs, or runs them. A candidate can crash nothing but this process."""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, assert_never

from ..costmodel.features import ScheduledFeatures, make_features
from ..errors import InvalidConfig
from ..space import Config, Space
from ..workload import Workload
from .code import Objects, compile_program, device_of, load_objects, program_hash, reason, to_objects
from .memory import limit_memory, with_limit
from .messages import (
    Answer,
    Broken,
    Build,
    Built,
    CheckProgram,
    Drawn,
    Extract,
    Extracted,
    Failed,
    Ready,
    Remeasure,
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
)
from .runner import Runner, case_of

if TYPE_CHECKING:
    from .rpc.session import RemoteRunner


class Workbench:
    """The space or the workload that a worker was set up with, and the work that it does with it."""

    space: Space
    features: dict[str, ScheduledFeatures]
    workload: Workload
    runner: Runner
    remote: RemoteRunner

    def __init__(self, connection: Connection, memory_limit_mb: int) -> None:
        self.connection = connection
        self.memory_limit_mb = memory_limit_mb

    def answer(self, message: SetUp | Work) -> Answer:
        if isinstance(message, SetUp):
            return self.set_up(message)
        limit_memory(self.memory_limit_mb)
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
                return self.remote.run(self.connection, address, objects, best)
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
            return Broken(f"{type(error).__name__}: {error}")
        return Ready()

    def build(self, config: Config) -> Built | Skipped | Failed:
        """Schedule and compile. In between it sends Scheduled, and goes on unless it is told to skip.

        The seconds of a build are those of the CPU: other work on this machine is not charged to a candidate.
        """
        start = cpu_seconds()
        try:
            module = self.space.schedule(config).mod
        except InvalidConfig as error:
            return Failed("invalid", str(error), cpu_seconds() - start)
        except Exception as error:
            # Anything may come out of a plug-in's schedule; it is this trial's failure and nobody else's.
            text = with_limit(f"schedule: {type(error).__name__}: {error}", self.memory_limit_mb)
            return Failed("build_error", text, cpu_seconds() - start)
        scheduling = cpu_seconds() - start
        self.connection.send(Scheduled(program_hash(module)))
        if isinstance(self.connection.recv(), Skip):
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
        return Extracted(self.features[name].extract(configs), cpu_seconds() - start)

    def check(self, objects: Objects, seed: int) -> Right | Failed:
        limit_memory(0)  # the inputs and the reference are no candidate either
        case = case_of(self.workload, True, seed)
        limit_memory(self.memory_limit_mb)
        self.connection.send(Drawn())
        return self.runner.check(partial(load_objects, objects), case)


def cpu_seconds() -> float:
    """Seconds of CPU that this process and its children, such as nvcc, have taken."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def work(connection: Connection, memory_limit_mb: int) -> None:
    """Answer the messages of ``connection`` until its other end is closed."""
    # A plug-in may print as much as it likes; printing to a pipe that is full would raise an exception.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open to the end
    connection.send(Started())
    workbench = Workbench(connection, memory_limit_mb)
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        connection.send(workbench.answer(message))
