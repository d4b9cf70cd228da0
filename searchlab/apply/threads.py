"""The threads of a program: TVM takes half of the logical cores by default, and trials run with all."""

from __future__ import annotations

import os
import warnings

from ..errors import SearchlabWarning
from ..machine.host import start_tvm_threads
from ..target import Target

THREADS = "TVM_NUM_THREADS"
"""What TVM reads when its pool of threads starts, and whenever a program runs."""
_ours = ""
"""What we have set it to; empty if we have not."""


def use_threads_of(target: Target) -> None:
    """Have programs for ``target`` run in this thread with as many threads of TVM's pool as their trials had.

    ``TVM_NUM_THREADS`` stays set, also for processes that this one starts later. Nothing changes where the user has set
    it, nor for a GPU or another machine. Warns (SearchlabWarning) if the
    pool runs already and is smaller: TVM never makes it larger.
    """
    global _ours
    if target.kind != "llvm" or target.is_foreign or os.environ.get(THREADS, "") != _ours:
        return
    # It stays: TVM reads it again whenever a program runs, and would give half of the cores to it.
    os.environ[THREADS] = _ours = str(target.cores)
    threads = start_tvm_threads()
    if threads < target.cores:
        warnings.warn(
            f"the trials ran with {target.cores} threads, and programs run with {threads} here, since TVM's threads "
            f"started before; set {THREADS}={target.cores} before this process runs anything with TVM",
            SearchlabWarning,
            stacklevel=3,
        )
