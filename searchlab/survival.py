"""Trying a call in a fork of this process, because libraries may crash or never return on damaged data."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import warnings
from collections.abc import Callable

TIMEOUT_SECONDS = 10
"""The time limit of a call, in seconds."""


def find_crash(call: Callable[[], object], timeout_seconds: int = TIMEOUT_SECONDS) -> str:
    """Call ``call`` in a fork of this process, and return how it ended the fork, or "" if it returned.

    Its exceptions are ignored, because the caller then calls it again.

    Args:
        call: A function that may end its process.
        timeout_seconds: The time limit, in seconds.

    Example:
        >>> import os, signal
        >>> find_crash(lambda: os.kill(os.getpid(), signal.SIGSEGV)), find_crash(lambda: 1 / 0)
        ('it crashes (SIGSEGV)', '')
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads of NumPy's BLAS are not copied
        child_pid = os.fork()
    if child_pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where TVM and Python report a crash
            faulthandler.disable()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
            signal.alarm(timeout_seconds)
            # If a library ends the process, it first ends what this thread owns. That may be TVM's pool of threads, for
            # which it would wait for ever, since a fork has no other threads.
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        finally:
            os._exit(0)
    _, wait_status = os.waitpid(child_pid, 0)
    if not os.WIFSIGNALED(wait_status):
        exit_code = os.WEXITSTATUS(wait_status)  # that of a library that ends the process
        return f"it ends the process with exit code {exit_code}" if exit_code else ""
    signal_number = os.WTERMSIG(wait_status)
    return (
        f"it takes more than {timeout_seconds} s"
        if signal_number == signal.SIGALRM
        else f"it crashes ({signal.Signals(signal_number).name})"
    )
