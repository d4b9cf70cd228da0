"""The best program of a log as text, at each step of its way to the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import SearchlabError, did_you_mean
from ..machine.cuda import compile_mode
from ..measure.code import reason
from ..target import Target
from .best import build
from .script import python_script

if TYPE_CHECKING:
    import tvm

    from ..log.result import Best

TEXTS = ("trace", "python", "tir", "lowered", "llvm", "source", "asm")
"""The names of the texts of a program, from its schedule to its assembly."""


def text_of(best: Best, name: str) -> str:
    """One of :data:`TEXTS` of the best program of a log, as ``searchlab best --show NAME`` prints it.

    Raises SearchlabError if there is no such text, or if the program does not compile.
    """
    if name not in TEXTS:
        raise SearchlabError(f"a program has no text {name!r}{did_you_mean(name, TEXTS)}")
    schedule, space, log = best.schedule(), best.result.space, best.result.log
    if name == "trace":
        return str(schedule.trace)
    if name == "python":
        title = (
            f"{space.workload} in {log.header.space.name}, trial {best.trial.index} of {log.path.name}: "
            f"{best.seconds * 1e3:.4g} ms, {best.gflops:.1f} {log.unit}"
        )
        return python_script(schedule, space.workload, space.target, title)
    if name == "tir":
        return str(schedule.mod.script())
    writers = {"lowered": lowered, "llvm": llvm_ir, "source": source, "asm": assembly}
    return writers[name](schedule.mod, space.target)


def lowered(module: tvm.IRModule, target: Target) -> str:
    """The TensorIR that TVM's default pipeline makes of ``module``: ``tvm.compile`` generates code from it.

    The code of the host and the kernels are still functions of one module.
    """
    import tvm

    bound = target.tvm if target.kind == "llvm" else tvm.target.Target("llvm")  # the host, as tvm.tirx.build finds it
    module = tvm.tirx.transform.BindTarget(target.tvm.with_host(bound))(module)
    pipeline, _, _ = tvm.tirx.get_default_tir_pipeline(target.tvm)
    with target.tvm:
        return str(pipeline(module).script())


def llvm_ir(module: tvm.IRModule, target: Target) -> str:
    """The LLVM IR of the program; for a GPU, of the host code that launches its kernels. Raises SearchlabError."""
    return str(build(module, target).mod.inspect_source("ll"))


def source(module: tvm.IRModule, target: Target) -> str:
    """The code that TVM generates: LLVM IR for a CPU, the kernels' C++ for CUDA. Raises SearchlabError."""
    host = build(module, target).mod
    return str(host.imports[0].inspect_source() if host.imports else host.inspect_source("ll"))


def assembly(module: tvm.IRModule, target: Target) -> str:
    """The assembly for a CPU; for CUDA the PTX of the kernels, which needs nvcc or nvrtc. Raises SearchlabError."""
    host = build(module, target).mod
    if not host.imports:
        return str(host.inspect_source("s"))
    if target.kind != "cuda":
        raise SearchlabError(f"TVM provides no assembly of the kernels for {target.kind}; use --show source")
    from tvm.support.nvcc import compile_cuda

    code, arch = str(host.imports[0].inspect_source()), str(target.tvm.attrs["arch"])
    try:
        with target.tvm:
            return bytes(compile_cuda(code, "ptx", arch, compiler=compile_mode())).decode()
    except RuntimeError as error:
        raise SearchlabError(f"the kernels do not compile to PTX: {reason(error)}") from None
