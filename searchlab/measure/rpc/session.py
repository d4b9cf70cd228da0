"""Running one program on one device of a fleet, in a session of its own: a worker's side of ``rpc.py``."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import tvm
from tvm import rpc

from ...target import Target
from ...workload import Workload
from ..code import Objects, device_name, reason
from ..contract import RunSettings
from ..runner import Runner, case_of
from .tracker import Address

LOADER = "searchlab.load"
"""What a server of `searchlab fleet` loads object files with, given the memory limit in MB and the files."""

EXPIRED = "RPCSessionTimeoutError"
"""What a server says of a session that it has ended for its length."""


class RemoteRunner:
    """Runs programs of one workload on whatever device is lent for each."""

    def __init__(
        self, workload: Workload, settings: RunSettings, target: Target, connect_timeout: float, cc: str
    ) -> None:
        self.workload = workload
        self.settings = settings
        self.target = target
        self.connect_timeout = connect_timeout
        self.cc = cc
        self.case = case_of(workload, settings.check)

    def run(self, connection: Connection, address: Address, objects: Objects, best: float) -> tuple[Any, ...]:
        """What :meth:`Runner.run` gives; or ``("lost", text)`` where the device, or the session, is gone.

        In between it sends ``("connected",)``: the device has the inputs, and the time of the program begins.
        """
        host, port, key = address
        # A server that hears no more of us ends the session by itself.
        session_timeout = self.connect_timeout + self.settings.run_timeout
        try:
            session = rpc.connect(host, port, key, session_timeout=session_timeout)
            device = session.device(device_name(self.target.kind))
            if not device.exist:
                return "unfit", f"the device at {host}:{port} has no {device_name(self.target.kind)} that it can use"
            if self.target.kind == "llvm":
                with contextlib.suppress(AttributeError):  # a server without a thread pool
                    session.get_function("runtime.config_threadpool")(1, self.target.cores)
            runner = Runner(self.workload, self.settings, device, local=False, case=self.case)
            load = self._loader(session, objects)
        except LinkFailed as failed:
            return "failed", "build_error", str(failed), 0.0
        except Exception as error:
            return "lost", reason(error)
        connection.send(("connected",))
        start = time.perf_counter()
        answer = runner.run(load, best)
        if answer[:2] == ("failed", "run_error"):
            text = answer[2]
            if EXPIRED in text:
                return "failed", "run_timeout", "the server ended its session", time.perf_counter() - start
            try:
                session.get_function("tvm.rpc.server.workpath")("")
            except Exception:  # nothing comes back from there any more
                return "lost", text
        return answer

    def _loader(self, session: rpc.RPCSession, objects: Objects) -> Callable[[], tvm.runtime.Module]:
        """What loads ``objects`` there: the server's JIT, or else a shared library linked here, or else linked there.

        Raises LinkFailed.
        """
        try:
            load = session.get_function(LOADER)
        except AttributeError:  # a plain server of TVM
            name, data = self._library(objects)

            def upload() -> tvm.runtime.Module:
                session.upload(bytearray(data), name)
                return session.load_module(name)

            return upload
        limit = self.settings.memory_limit_mb if self.target.kind == "llvm" else 0
        return partial(load, limit, *map(bytearray, objects))

    def _library(self, objects: Objects) -> tuple[str, bytes]:
        """The name and the bytes of a file that holds ``objects``, as a plain server loads it."""
        from tvm.support import cc, tar

        compiler = self.cc or ("" if self.target.is_foreign else cc.get_cc())
        with tempfile.TemporaryDirectory() as folder:
            files = [str(Path(folder, f"{number}.o")) for number in range(len(objects))]
            for file, data in zip(files, objects, strict=True):
                Path(file).write_bytes(data)
            name = "program.so" if compiler else "program.tar"
            made = Path(folder, name)
            try:
                if compiler:
                    cc.create_shared(str(made), files, cc=compiler)
                else:
                    tar.tar(str(made), files)
            except Exception as error:
                raise LinkFailed(f"linking with {compiler or 'tar'}: {reason(error)}") from None
            return name, made.read_bytes()


class LinkFailed(Exception):
    """A program that could not be made a file of; the text says why."""
