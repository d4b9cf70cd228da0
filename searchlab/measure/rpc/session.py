"""Running one program on one device of a fleet in its own session: the worker's side of ``measurer.py``."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import tvm
from tvm import rpc

from ..code import Objects, device_name, reason
from ..messages import Failed, Lost, Ran, SetUpRunner, Unfit
from ..runner import Runner, case_of
from .fleet import LOADER, Address

EXPIRED = "RPCSessionTimeoutError"  # the error of a server that has ended a session because it took too long


class RemoteRunner:
    """Runs programs of one workload, each on the device that the tracker has lent for it."""

    def __init__(self, setup: SetUpRunner) -> None:
        assert setup.fleet is not None
        self.connect_timeout, self.cc = setup.fleet
        self.workload, self.settings, self.target, self.error_factor, _ = setup
        self.case = case_of(self.workload, self.settings.check)

    def run(
        self, connected: Callable[[], None], address: Address, objects: Objects, best: float
    ) -> Ran | Failed | Lost | Unfit:
        """Run a program on the device at ``address`` as :meth:`Runner.run` does.

        Call ``connected`` once the device has the inputs.
        """
        host, port, key = address
        # After this time, the server ends the session by itself.
        session_timeout = self.connect_timeout + self.settings.run_timeout
        try:
            session = rpc.connect(host, port, key, session_timeout=session_timeout)
            device = session.device(device_name(self.target.kind))
            if not device.exist:
                return Unfit(f"the device at {host}:{port} has no {device_name(self.target.kind)} that it can use")
            if self.target.kind == "llvm":
                with contextlib.suppress(AttributeError):  # a server without a thread pool
                    session.get_function("runtime.config_threadpool")(1, self.target.cores)
            runner = Runner(self.workload, self.settings, device, False, self.case, self.error_factor)
            load = self._loader(session, objects)
        except LinkFailed as failed:
            return Failed("build_error", str(failed))
        except Exception as error:
            return Lost(reason(error))
        connected()
        start = time.perf_counter()
        answer = runner.run(load, best)
        if isinstance(answer, Failed) and answer.failure == "run_error":
            if EXPIRED in answer.message:
                return Failed("run_timeout", "the server ended its session", time.perf_counter() - start)
            try:
                session.get_function("tvm.rpc.server.workpath")("")
            except Exception:  # the session does not answer any more
                return Lost(answer.message)
        return answer

    def _loader(self, session: rpc.RPCSession, objects: Objects) -> Callable[[], tvm.runtime.Module]:
        """Return a function that loads ``objects`` on the device; raise LinkFailed if they cannot be linked.

        The server's JIT loads them, or a shared library that is linked here or there.
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
        """Return the name and the bytes of a file with ``objects`` that a plain server can load."""
        from tvm.support import cc, tar

        compiler = self.cc or ("" if self.target.is_foreign else cc.get_cc())
        with tempfile.TemporaryDirectory() as folder:
            files = [str(Path(folder, f"{number}.o")) for number in range(len(objects))]
            for file, data in zip(files, objects, strict=True):
                Path(file).write_bytes(data)
            name = "program.so" if compiler else "program.tar"
            library = Path(folder, name)
            try:
                if compiler:
                    cc.create_shared(str(library), files, cc=compiler)
                else:
                    tar.tar(str(library), files)
            except Exception as error:
                raise LinkFailed(f"linking with {compiler or 'tar'}: {reason(error)}") from None
            return name, library.read_bytes()


class LinkFailed(Exception):
    """A program could not be linked or archived into a file; the text says why."""
