"""Run programs on the devices of a fleet, through TVM's RPC."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import tvm
from tvm import rpc
from tvm.support import cc

from .cases import make_cases
from .code import Code, Objects, device_name, error_text, link
from .fleet import LOADER_FUNCTION, Address
from .messages import DeviceLost, DeviceUnfit, Failed, Ran, SetUpRunner
from .runner import Runner

SESSION_TIMEOUT_ERROR = "RPCSessionTimeoutError"
"""What a server reports when it ends a session that took too long."""


class RemoteRunner:
    """Runs programs for one workload, each on the device that the tracker has lent for it."""

    def __init__(self, setup: SetUpRunner) -> None:
        assert setup.fleet is not None
        self.fleet = setup.fleet
        self.workload = setup.workload
        self.settings = setup.settings
        self.target = setup.target
        self.cases = make_cases(self.workload, self.settings.check, error_factor=setup.error_factor)

    def run(
        self, on_connected: Callable[[], None], address: Address, code: Code, best_cost: float
    ) -> Ran | Failed | DeviceLost | DeviceUnfit:
        """Run a program on the device at ``address`` in the same way as :meth:`Runner.run`.

        ``on_connected`` is called once the device has received the inputs.
        """
        host, port, key = address
        # The server ends the session by itself after this time.
        session_timeout = self.fleet.connect_timeout + self.settings.run_timeout
        try:
            session = rpc.connect(host, port, key, session_timeout=session_timeout)
            device = session.device(device_name(self.target.kind))
            if not device.exist:
                return DeviceUnfit(f"the device at {host}:{port} has no usable {device_name(self.target.kind)}")
            if self.target.kind == "llvm":
                with contextlib.suppress(AttributeError):  # the server has no thread pool
                    session.get_function("runtime.config_threadpool")(1, self.target.cores)
            runner = Runner(self.workload, self.settings, device, is_local=False, cases=self.cases)
            load = self._make_loader(session, code.objects)
        except Exception as error:
            return DeviceLost(error_text(error))
        if isinstance(load, Failed):
            return load
        on_connected()
        start = time.perf_counter()
        answer = runner.run(load, code.packed, best_cost)
        if isinstance(answer, Failed) and answer.failure == "run_error":
            if SESSION_TIMEOUT_ERROR in answer.message:
                return Failed("run_timeout", "the server ended its session", time.perf_counter() - start)
            try:
                session.get_function("tvm.rpc.server.workpath")("")
            except Exception:  # the session no longer answers
                return DeviceLost(answer.message)
        return answer

    def _make_loader(self, session: rpc.RPCSession, objects: Objects) -> Callable[[], tvm.runtime.Module] | Failed:
        """Return a function that loads ``objects`` on the device, or Failed if they cannot be linked.

        If the server has a JIT linker, it loads the object files. Otherwise, they are linked into a shared library,
        here or on the device.
        """
        try:
            load_objects = session.get_function(LOADER_FUNCTION)
        except AttributeError:  # a plain TVM server
            return self._make_library_loader(session, objects)
        memory_limit_mb = self.settings.memory_limit_mb if self.target.kind == "llvm" else 0
        return partial(load_objects, memory_limit_mb, *map(bytearray, objects))

    def _make_library_loader(
        self, session: rpc.RPCSession, objects: Objects
    ) -> Callable[[], tvm.runtime.Module] | Failed:
        compiler = self.fleet.compiler or ("" if self.target.is_foreign else cc.get_cc())
        with tempfile.TemporaryDirectory() as folder:
            library_path = Path(folder, "program.so" if compiler else "program.tar")
            try:
                link(objects, library_path, compiler)
            except Exception as error:
                return Failed("build_error", f"cannot link with {compiler or 'tar'}: {error_text(error)}")
            library_bytes = bytearray(library_path.read_bytes())

        def load() -> tvm.runtime.Module:
            session.upload(library_bytes, library_path.name)
            return session.load_module(library_path.name)

        return load
