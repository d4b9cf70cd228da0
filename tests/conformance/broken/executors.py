"""Executors that each break one rule of the contract, and a sound one."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from searchlab import RunExecutor
from searchlab.options import Count

T = TypeVar("T")


class Sound(RunExecutor):
    """The threads of this process."""

    def __init__(self, exclusive: bool, folder: Path, *, jobs: Count = 2) -> None:
        self.jobs = 1 if exclusive else jobs
        self._pool = ThreadPoolExecutor(self.jobs)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


class TakesAnything(Sound):
    """It ignores misspelt options."""

    def __init__(self, exclusive: bool, folder: Path, **options: Any) -> None:
        super().__init__(exclusive, folder)


class Jobless(Sound):
    """It has no jobs."""

    def __init__(self, exclusive: bool, folder: Path) -> None:
        super().__init__(exclusive, folder)
        self.jobs = 0


class Wordless(Sound):
    """It drops keyword arguments."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._pool.submit(fn, *args)


class Wraps(Sound):
    """It wraps errors."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        def call() -> T:
            try:
                return fn(*args, **kwargs)
            except LookupError:
                raise RuntimeError("a call failed") from None

        return self._pool.submit(call)


class Breaks(RunExecutor):
    """The processes of a standard pool, which is broken once one of them has died."""

    def __init__(self, exclusive: bool, folder: Path) -> None:
        self.jobs = 1
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


class Crowded(Sound):
    """It promises a machine for each call, but has only one for two."""

    one_per_machine = True

    def __init__(self, exclusive: bool, folder: Path) -> None:
        super().__init__(False, folder)


class Hasty(Sound):
    """It does not wait for its calls."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(False, cancel_futures=cancel_futures)


class Abandons(RunExecutor):
    """After an interrupt, it forgets the calls that wait."""

    def __init__(self, exclusive: bool, folder: Path) -> None:
        self.jobs = 1
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._open = True
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if not self._open:
            raise RuntimeError("it is shut down")
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)

        self._calls.put(call)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._open = False
        self._calls.put(None)
        self._thread.join()

    def kill_workers(self) -> None:
        while not self._calls.empty():
            self._calls.get()
        self.shutdown()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class Loses(Sound):
    """It loses what a study's calls return."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if "run" in fn.__module__.split("."):
            return super().submit(bool)  # type: ignore[arg-type]
        return super().submit(fn, *args, **kwargs)


BROKEN: dict[str, list[Any]] = {
    "signature": [TakesAnything],
    "attributes": [Jobless],
    "results": [Wordless],
    "errors": [Wraps],
    "lost-workers": [Breaks],
    "exclusive": [Crowded],
    "shuts-down": [Hasty],
    "kills-workers": [Abandons],
    "same-study": [Loses],
}
