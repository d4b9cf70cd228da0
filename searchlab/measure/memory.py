"""How much memory a candidate may take: a limit that the kernel enforces, so that no candidate makes it swap."""

from __future__ import annotations

import resource
from pathlib import Path

_SIGNS = ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory")
"""The words by which Python, C++, LLVM and the C library say that memory was refused."""


def limit_memory(megabytes: int) -> None:
    """Let this process take so much more memory than it has now; 0 takes the limit away.

    The limit is RLIMIT_DATA. It counts private writable memory, also of threads and of mapped files. It does not count
    address space that is only reserved; a JIT and the runtime of CUDA reserve gigabytes.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = hard
    if megabytes:
        *_, data, _ = Path("/proc/self/statm").read_text().split()  # in pages: proc(5)
        soft = int(data) * resource.getpagesize() + (megabytes << 20)
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def with_limit(text: str, megabytes: int, held: int = 0) -> str:
    """``text`` of a failure; with the limit, where memory was refused or the process held as much as the limit."""
    if megabytes and (held >= megabytes or any(sign in text for sign in _SIGNS)):
        return f"{text}; a candidate may take {megabytes} MB of memory (memory_limit_mb)"
    return text
