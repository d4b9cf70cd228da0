"""The worker process, which builds or runs programs. Candidates cannot crash any other process."""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
from functools import partial
from typing import Any, assert_never

import msgspec
import numpy as np

from ..costmodel.features import ScheduledFeatures, make_features
from ..errors import InvalidConfig, cut, text_of
from ..space import Config, Space
from ..workload import Workload, program_hash
from . import messages
from .code import Objects, compile_program, device_of, load_objects, reason, to_objects
from .isolation import Watch, limit_memory, with_limit
from .messages import Answer, Done, Failed, Reply, SetUp, Work
from .process import Channel
from .runner import RemoteRunner, Runner, case_of


class Workbench:
    """The space or workload with which a worker is set up, and the operations on it."""

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
        elif isinstance(message, messages.RunOn):  # the candidate runs on a device
            self.send(self.answer(message))
        else:
            limit_memory(self.memory_limit_mb)
            watch = Watch()
            answer = self.answer(message)
            self.send(answer, watch.changed())

    def send(self, answer: Answer, changed: str = "") -> None:
        self.channel.send(msgspec.msgpack.encode(Reply(self.received, answer, changed)))

    def recv(self) -> Any:
        """Return the next message. Raises EOFError if the other end is closed."""
        message = pickle.loads(self.channel.recv())
        self.received += 1
        return message

    def answer(self, message: Work) -> Done:
        match message:
            case messages.Build(config):
                return self.build(config)
            case messages.Extract(features, configs):
                return self.extract(features, configs)
            case messages.RunProgram(objects, best):
                return self.runner.run(partial(load_objects, objects), best)
            case messages.CheckProgram(objects, seed):
                return self.check(objects, seed)
            case messages.Remeasure(programs, rounds):
                return self.runner.remeasure([partial(load_objects, objects) for objects in programs], rounds)
            case messages.RunOn(address, objects, best):
                return self.remote.run(lambda: self.send(messages.Begun()), address, objects, best)
        assert_never(message)

    def set_up(self, message: SetUp) -> messages.Ready | messages.Broken:
        limit_memory(0)  # the limit applies only to candidates
        try:
            match message:
                case messages.SetUpBuilder(data):
                    self.space = pickle.loads(data)
                    self.features = {}
                case messages.SetUpRunner(workload, settings, target, error_factor, None):
                    self.workload = workload
                    self.runner = Runner(workload, settings, device_of(target.kind), error_factor=error_factor)
                case messages.SetUpRunner():
                    self.remote = RemoteRunner(message)
        except Exception as error:  # for example, because a plug-in's module cannot be imported
            return messages.Broken(cut(f"{type(error).__name__}: {text_of(error)}"))
        return messages.Ready()

    def build(self, config: Config) -> messages.Built | messages.Skipped | Failed:
        """Schedule and compile a program. In between, send Scheduled and wait for Continue.

        The answer's seconds are CPU time, so that candidates are not charged for other work on this machine.
        """
        start = cpu_seconds()
        try:
            module = self.space.schedule(config).mod
        except InvalidConfig as error:
            return Failed("invalid", cut(text_of(error)), cpu_seconds() - start)
        except Exception as error:
            # A plug-in's schedule may raise any exception, which must fail only this trial.
            text = with_limit(cut(f"schedule: {type(error).__name__}: {text_of(error)}"), self.memory_limit_mb)
            return Failed("build_error", text, cpu_seconds() - start)
        scheduling = cpu_seconds() - start
        self.send(messages.Scheduled(program_hash(module)))
        if not self.recv().compile:
            return messages.Skipped()
        start = cpu_seconds()
        try:
            objects = to_objects(compile_program(module, self.space.target))
        except Exception as error:  # the compiler may raise any exception, too
            text = with_limit(reason(error), self.memory_limit_mb)
            return Failed("build_error", text, scheduling + cpu_seconds() - start)
        return messages.Built(objects, scheduling + cpu_seconds() - start)

    def extract(self, name: str, configs: list[Config]) -> messages.Extracted:
        start = cpu_seconds()
        if name not in self.features:
            features = make_features(name, self.space)
            assert isinstance(features, ScheduledFeatures)
            self.features[name] = features
        rows = [row.astype(np.float64).tobytes() for row in self.features[name].extract(configs)]
        return messages.Extracted(rows, cpu_seconds() - start)

    def check(self, objects: Objects, seed: int) -> messages.Right | Failed:
        limit_memory(0)  # the limit does not apply to the inputs and the reference
        case = case_of(self.workload, True, seed)
        limit_memory(self.memory_limit_mb)
        self.send(messages.Begun())
        return self.runner.check(partial(load_objects, objects), case)


def cpu_seconds() -> float:
    """Return the CPU time used by this process and its children, such as nvcc."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def work(channel: Channel, memory_limit_mb: int) -> None:
    """Answer the messages on ``channel`` until its other end is closed."""
    # A plug-in may print any amount of text, and printing to a full pipe would raise an exception.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open to the end
    workbench = Workbench(channel, memory_limit_mb)
    workbench.send(messages.Started())
    while True:
        try:
            message = workbench.recv()
        except EOFError:
            return
        workbench.reply(message)
