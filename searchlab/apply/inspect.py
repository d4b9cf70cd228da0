"""What a scheduled program becomes on its way to the machine, as text."""

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

    from ..log.result import Best, Result

TEXTS = ("trace", "python", "tir", "lowered", "llvm", "source", "asm")
"""What there is of a program, in the order in which each comes about."""


def text(result: Result, best: Best, what: str) -> str:
    """One of :data:`TEXTS` of the best program of a log. Raises SearchlabError."""
    if what not in TEXTS:
        raise SearchlabError(f"a program has no text {what!r}{did_you_mean(what, TEXTS)}")
    schedule, space = best.schedule(), result.space
    if what == "trace":
        return str(schedule.trace)
    if what == "python":
        title = (
            f"{space.workload} in {result.log.header.space.name}, trial {best.trial.index} of {result.log.path.name}: "
            f"{best.seconds * 1e3:.4g} ms, {best.gflops:.1f} GFLOPS"
        )
        return python_script(schedule, space.workload, space.target, title)
    if what == "tir":
        return str(schedule.mod.script())
    makers = {"lowered": lowered, "llvm": llvm_ir, "source": source, "asm": assembly}
    return makers[what](schedule.mod, space.target)


def lowered(module: tvm.IRModule, target: Target) -> str:
    """The TensorIR that TVM's default pipeline makes of ``module``, as ``tvm.compile`` runs it before code generation.

    The host's code and the kernels are functions of one module still.
    """
    import tvm

    bound = target.tvm if target.kind == "llvm" else tvm.target.Target("llvm")  # the host, as tvm.tirx.build finds it
    module = tvm.tirx.transform.BindTarget(target.tvm.with_host(bound))(module)
    pipeline, _, _ = tvm.tirx.get_default_tir_pipeline(target.tvm)
    with target.tvm:
        return str(pipeline(module).script())


def llvm_ir(module: tvm.IRModule, target: Target) -> str:
    """LLVM IR: of the program, or, where that runs on a GPU, of what launches its kernels. Raises SearchlabError."""
    return str(build(module, target).mod.inspect_source("ll"))


def source(module: tvm.IRModule, target: Target) -> str:
    """What TVM generates: LLVM IR for a CPU, the kernels' C++ for CUDA. Raises SearchlabError."""
    host = build(module, target).mod
    return str(host.imports[0].inspect_source() if host.imports else host.inspect_source("ll"))


def assembly(module: tvm.IRModule, target: Target) -> str:
    """Assembly: of the CPU, or the PTX of the kernels, which takes nvcc or nvrtc. Raises SearchlabError."""
    host = build(module, target).mod
    if not host.imports:
        return str(host.inspect_source("s"))
    if target.kind != "cuda":
        raise SearchlabError(f"TVM gives no assembly of kernels for {target.kind}; look at --show source")
    from tvm.support.nvcc import compile_cuda

    code, arch = str(host.imports[0].inspect_source()), str(target.tvm.attrs["arch"])
    try:
        with target.tvm:
            return bytes(compile_cuda(code, "ptx", arch, compiler=compile_mode())).decode()
    except RuntimeError as error:
        raise SearchlabError(f"the kernels do not compile to PTX: {reason(error)}") from None
