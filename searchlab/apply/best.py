"""Rebuilding a log's best program as a schedule, a module, a compiled program, a text or a library."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SearchlabError, did_you_mean, last_line, warn
from ..files import write_file
from ..log.read import find_logs
from ..log.result import Best, Result, load_log
from ..machine.cuda import choose_compiler
from ..machine.host import start_tvm_threads
from ..measure.code import Objects, compile_program, error_text, link, to_objects
from ..options import checks_arguments
from ..survival import find_crash
from ..target import Target
from ..workload import PACK, Workload, packed_arguments, program_hash
from .kernel import extract_innermost_loop, extract_kernels

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule

EXPORT_SECONDS = 600
"""The time limit for writing an object file, in seconds."""

THREADS_VARIABLE = "TVM_NUM_THREADS"
"""The variable with TVM's number of threads, which TVM reads when it starts them and whenever a program runs."""

TEXT_FORMS = ("trace", "python", "tir", "lowered", "llvm", "source", "kernel", "asm")
"""The textual forms of a program, from its schedule to its assembly."""


class AppliedSchedule(NamedTuple):
    """A log's best schedule and its module, which ``tvm.compile(module, target)`` accepts."""

    schedule: Schedule
    module: tvm.IRModule


class LibraryUse(NamedTuple):
    """Instructions for using an exported library.

    Attributes:
        call_expression: The Python expression that calls it.
        pack_statements: Statements to execute once before the first call, which pack weights.
        environment_setting: An environment variable to set in the calling process; may be empty.
    """

    call_expression: str
    pack_statements: tuple[str, ...]
    environment_setting: str


@checks_arguments
def apply_best(log: str | Path | Result) -> AppliedSchedule:
    """Return a run's best schedule and its module.

    TVM then runs programs in this process with as many threads as the trials used, instead of its default of half of
    the cores, unless ``TVM_NUM_THREADS`` is set.

    Args:
        log: A log's path, or a result.

    Returns:
        The schedule, rebuilt from its config, and the scheduled module. AutoTVM and Ansor return the arguments instead
        of the module; a ``tvm.s_tir.Schedule`` contains them. If ``main`` accepts packed arguments, the module also
        contains the functions that pack them; see :func:`~searchlab.workload.packed_arguments`.

    Raises:
        SearchlabError: If the log has no successful trial, was imported for analysis only, or uses a space that is not
            installed or has changed since.

    Warns:
        SearchlabWarning: If TVM's thread pool is already running with too few threads.

    Example:
        >>> import searchlab, tvm
        >>> schedule, module = searchlab.apply_best("gemm.jsonl")
        >>> executable = tvm.compile(module, target=searchlab.load_log("gemm.jsonl").space.target.tvm)
    """
    result = log if isinstance(log, Result) else load_log(log)
    schedule = result.best.schedule()
    use_threads_of(result.space.target)
    return AppliedSchedule(schedule, schedule.mod)


@checks_arguments
def build_best(best: Best) -> tvm.runtime.Executable:
    """Compile a run's best program for the log's target.

    The program runs with as many threads as the trials used: see :func:`apply_best`.

    Args:
        best: A result's best trial.

    Raises:
        SearchlabError: If the trial's config no longer has a schedule, or if the program does not compile.

    Example:
        >>> import numpy as np, searchlab, tvm
        >>> main = searchlab.build_best(searchlab.load_log("gemm.jsonl").best).jit()["main"]
        >>> a, b, c = (tvm.runtime.tensor(np.ones((32, 32), "float32")) for _ in range(3))
        >>> main(a, b, c)  # the result comes last
        >>> float(c.numpy()[0, 0])
        32.0
    """
    target = best.result.space.target
    executable = _compile(best.schedule().mod, target)
    use_threads_of(target)
    return executable


@checks_arguments
def program_text(best: Best, form: str) -> str:
    """Return a log's best program as text, as ``searchlab best --show FORM`` prints it.

    Args:
        best: A result's best trial.
        form: One of :data:`TEXT_FORMS`. ``lowered`` is the TensorIR from which TVM generates code. ``llvm`` is the LLVM
            IR (for a GPU, that of the host code). ``source`` is the LLVM IR for a CPU and the generated C++ code for
            CUDA. ``kernel`` is its part that takes most of the time: the innermost loop with the most multiplications,
            as assembly, for a CPU, and the kernels without their preamble for CUDA. ``asm`` is assembly for a CPU and
            the kernels' PTX for CUDA, which requires nvcc or nvrtc.

    Raises:
        SearchlabError: If ``form`` is unknown, or if the program does not compile.
    """
    if form not in TEXT_FORMS:
        raise SearchlabError(f"unknown program text {form!r}{did_you_mean(form, TEXT_FORMS)}")
    schedule, target = best.schedule(), best.result.space.target
    module = schedule.mod
    match form:
        case "trace" if schedule.trace is None:
            raise SearchlabError("the space wrote this program without schedule primitives; use --show tir")
        case "trace":
            return str(schedule.trace)
        case "python":
            header, log = best.result.log.header, best.result.log
            script_title = (
                f"{header.workload} in {header.space.name}, trial {best.trial.index} of {log.path.name}: "
                f"{best.seconds * 1e3:.4g} ms, {best.gflops:.1f} {log.unit}"
            )
            return python_script(module, target, script_title)
        case "tir":
            return str(module.script())
        case "lowered":
            return _lower_to_text(module, target)
    executable_module = _compile(module, target).mod
    if form == "llvm" or not executable_module.imports:
        code = str(executable_module.inspect_source("s" if form in ("kernel", "asm") else "ll"))
        return extract_innermost_loop(code) if form == "kernel" else code
    code = str(executable_module.imports[0].inspect_source())
    if form == "asm":
        return _compile_to_ptx(code, target)
    return extract_kernels(code) if form == "kernel" else code


def python_script(module: tvm.IRModule, target: Target, title: str) -> str:
    """Return a Python script that defines ``module`` and its ``target`` and needs only TVM.

    Args:
        module: The scheduled module.
        target: The target for which the program is compiled.
        title: The text of the script's first comment.

    Raises:
        SearchlabError: If TVM cannot read its own text of the module, which is the case for some tensor intrinsics.
    """
    import tvm

    module_text = str(module.script())
    try:
        is_same = program_hash(tvm.script.from_source(module_text)) == program_hash(module)
    except Exception:  # TVM's parser may raise anything
        is_same = False
    if not is_same:
        raise SearchlabError("TVM cannot read this program back from Python; use --show tir or --show trace")
    module_literal = repr(module_text) if "'''" in module_text or "\\" in module_text else f"'''\n{module_text}\n'''"
    target_spec, threads_statement = target.spec, ""
    if target.kind == "llvm":
        target_spec = {"num-cores": target.cores, **target_spec}
        setdefault = f'os.environ.setdefault("{THREADS_VARIABLE}", "{target.cores}")'
        threads_statement = f"import os\n\n{setdefault}  # as in the trials\n\n"
    return f"""\
# {" ".join(title.split())}
# Written by searchlab; it needs only TVM (apache-tvm {tvm.__version__}).
{threads_statement}import tvm

module = tvm.script.from_source({module_literal})
target = tvm.target.Target({target_spec!r})  # tvm.compile(module, target=target) builds the program
"""


def _lower_to_text(module: tvm.IRModule, target: Target) -> str:
    """Return the output of TVM's default pipeline, which keeps host code and kernels in one module."""
    import tvm

    # The host is the one that tvm.tirx.build chooses.
    host_target = target.tvm if target.kind == "llvm" else tvm.target.Target("llvm")
    module = tvm.tirx.transform.BindTarget(target.tvm.with_host(host_target))(module)
    pipeline, _, _ = tvm.tirx.get_default_tir_pipeline(target.tvm)
    with target.tvm:
        return str(pipeline(module).script())


def _compile_to_ptx(kernels: str, target: Target) -> str:
    if target.kind != "cuda":
        raise SearchlabError(f"TVM provides no kernel assembly for {target.kind}; use --show source")
    from tvm.support.nvcc import compile_cuda

    try:
        with target.tvm:
            arch = str(target.tvm.attrs["arch"])
            return bytes(compile_cuda(kernels, "ptx", arch, compiler=choose_compiler())).decode()
    except RuntimeError as error:
        raise SearchlabError(f"the kernels do not compile to PTX: {error_text(error)}") from None


def _compile(module: tvm.IRModule, target: Target) -> tvm.runtime.Executable:
    """Compile ``module`` in the same way as trials. Raises SearchlabError if compilation fails."""
    try:
        return compile_program(module, target)
    except SearchlabError:
        raise
    except Exception as error:  # the compiler may raise anything
        raise SearchlabError(f"the program does not compile for {target.kind}: {error_text(error)}") from None


_own_thread_setting = ""
"""The value to which :func:`use_threads_of` has set ``TVM_NUM_THREADS``, or an empty string if it has not set it."""


def use_threads_of(target: Target) -> None:
    """Make TVM run programs for ``target`` in this thread with as many threads as their trials used.

    ``TVM_NUM_THREADS`` remains set, including for processes that this one starts later, because TVM reads it when it
    starts its thread pool and whenever a program runs. Nothing changes if the user has set the variable, or if the
    target is a GPU or a different kind of machine. If TVM's pool is already running with fewer threads, a
    SearchlabWarning is issued, since TVM never enlarges it.
    """
    global _own_thread_setting
    if target.kind != "llvm" or target.is_foreign or os.environ.get(THREADS_VARIABLE, "") != _own_thread_setting:
        return
    os.environ[THREADS_VARIABLE] = _own_thread_setting = str(target.cores)
    thread_count = start_tvm_threads()
    if thread_count < target.cores:
        warn(
            f"the trials ran with {target.cores} threads, but programs in this process run with {thread_count}, "
            f"because TVM's threads are already running; set {THREADS_VARIABLE}={target.cores} before this process "
            f"first uses TVM"
        )


# --- libraries --------------------------------------------------------------------------------------------------------


def export_library(log_paths: Sequence[Path], library_path: Path) -> LibraryUse:
    """Build a log's best program as a shared library or an object file, which TVM can load without searchlab.

    The function ``main`` accepts the workload's tensors in order and writes the result to the last one. If the program
    uses packed weights, the library also contains a function ``pack_NAME`` that packs them. The tensors must be aligned
    to 64 bytes, as those from ``tvm.runtime.tensor`` are. The program does not check this, and crashes with SIGSEGV on
    unaligned NumPy arrays. A shared library is linked by the compiler that TVM finds. An object file needs no compiler
    and can be loaded with tvm_ffi_orcjit.

    Args:
        log_paths: A log, or a directory that contains a single log.
        library_path: The file to write, ``*.so`` or ``*.o``.

    Raises:
        SearchlabError: If there is not exactly one log, or if the program cannot be built, linked or written.
    """
    logs = [log for path in log_paths for log in find_logs(path)]
    if len(logs) != 1:
        raise SearchlabError(
            f"a library can contain only one program, but {len(logs)} logs were given; pass a single log"
        )
    if library_path.suffix not in (".so", ".o"):
        raise SearchlabError(f"unsupported library file {library_path}; choose a *.so or *.o file as --out")
    if library_path.exists():
        raise SearchlabError(f"{library_path} already exists; choose a different file as --out")
    result = load_log(logs[0])
    schedule, target = result.best.schedule(), result.space.target
    compiler = _find_linker(target) if library_path.suffix == ".so" else ""
    executable = _compile(schedule.mod, target)
    if crash := find_crash(lambda: to_objects(executable), EXPORT_SECONDS):  # LLVM ends a process that cannot write
        raise SearchlabError(
            f"cannot write {library_path}: {crash} in LLVM; check the limits on memory and on the size of files"
        )
    objects = to_objects(executable)
    try:
        if compiler:
            _link(objects, library_path, compiler)
        elif len(objects) > 1:
            raise SearchlabError(
                f"a program for {target.kind} consists of more than one object file; export it to *.so"
            )
        else:
            write_file(library_path, objects[0])
    except OSError as error:
        raise SearchlabError(f"cannot write {library_path}: {error.strerror or error}") from None
    loader = "tvm.runtime" if compiler else "tvm_ffi_orcjit.default_session()"
    library_expression = f"{loader}.load_module({json.dumps(str(library_path), ensure_ascii=False)})"
    environment_setting = f"{THREADS_VARIABLE}={target.cores}" if target.kind == "llvm" else ""
    return _describe_use(schedule.mod, result.space.workload, library_expression, environment_setting)


def _describe_use(
    module: tvm.IRModule, workload: Workload, library_expression: str, environment_setting: str
) -> LibraryUse:
    packed, arguments, pack_statements = packed_arguments(module), [], []
    for name in workload.shapes:
        packed_variables = {f"{name}_packed{i or ''}": argument for i, argument in enumerate(packed.get(name, ()))}
        pack_statements += [
            f'{variable} = tvm.runtime.empty({argument.shape}, "{argument.dtype}")'
            for variable, argument in packed_variables.items()
        ]
        if packed_variables:
            pack_statements.append(f'{library_expression}["{PACK}{name}"]({", ".join([name, *packed_variables])})')
        arguments += list(packed_variables) or [name]
    call_expression = f'{library_expression}["main"]({", ".join(arguments)})'
    return LibraryUse(call_expression, tuple(pack_statements), environment_setting)


def _find_linker(target: Target) -> str:
    from tvm.support import cc

    if target.is_foreign:
        raise SearchlabError(
            f"the program is for {target.spec.get('mtriple')}, for which this machine's compiler cannot link; "
            f"export it to *.o, which needs no compiler"
        )
    if not (compiler := cc.get_cc()):
        raise SearchlabError(
            "no C compiler was found to link a shared library; put gcc or clang on PATH, or export to *.o, which needs "
            "no compiler"
        )
    return str(compiler)


def _link(objects: Objects, library_path: Path, compiler: str) -> None:
    library_path.touch()  # raises a clear error if it cannot be written
    try:
        link(objects, library_path, compiler)
    except Exception as error:  # the compiler may fail in any way
        library_path.unlink(missing_ok=True)
        raise SearchlabError(
            f"{compiler} cannot link {library_path}: {last_line(error)}; export to *.o, which needs no compiler"
        ) from None
