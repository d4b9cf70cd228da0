"""Times CUDA programs, cuBLAS and cuDNN in turn with CUDA events; cuda.py starts it in a separate process.

Before each reading, the L2 cache is flushed by writing four times as much memory. The GPU executes in order, and
flushing takes longer than launching a kernel. A reading therefore includes only the time on the GPU, not TVM's or
PyTorch's time on the CPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from timing import arguments, build, leave_folder

from searchlab.errors import first_line
from searchlab.machine.cuda import gpu_arch, gpu_name
from searchlab.space import SPACES, Config
from searchlab.target import Target, resolve_target
from searchlab.workload import Conv2d, Gemm, Workload, parse_workload

if TYPE_CHECKING:
    import torch

SLICE_MS = 20.0  # approximate time per side and round
READINGS = (3, 100)  # minimum and maximum readings per side and round
REST_SECONDS = 3.0  # long enough for an idle GPU to reduce its clocks

FLUSHES = 4
"""The amount of memory to write before a reading, as a multiple of the L2 cache's size."""

FLOAT32 = 1e-4
"""The maximum of ``|result - expected| / |expected|`` (Frobenius norm). Float32 reaches about 1e-6, Winograd's
algorithms about 1e-5 (Lavin and Gray, CVPR 2016), and TF32, with 10 bits of mantissa, about 3e-4."""

Run = Callable[[], object]
"""Launches one run without waiting for it."""


class CudaRuntime:
    """Memory and events of the CUDA runtime that TVM uses, on the default stream, on which TVM and PyTorch run.

    Attributes:
        library: The functions of libcudart.
        flush_bytes: The number of bytes to write before each reading.
    """

    def __init__(self, flush_bytes: int, library: Any = None) -> None:
        self.library = library or ctypes.CDLL("libcudart.so.13")
        self.flush_bytes = ctypes.c_size_t(flush_bytes)
        self.memory = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(self.memory), self.flush_bytes)

    def call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self.library, name)(*arguments):
            raise RuntimeError(f"{name} ended with CUDA error {code}")

    def readings(self, run: Run, count: int, flush: bool = True) -> list[float]:
        """Return the milliseconds of each of ``count`` runs."""
        pairs = [(self._event(), self._event()) for _ in range(count)]
        try:
            for start, end in pairs:
                if flush:
                    self.call("cudaMemsetAsync", self.memory, 0, self.flush_bytes, None)
                self.call("cudaEventRecord", start, None)
                run()
                self.call("cudaEventRecord", end, None)
            self.call("cudaDeviceSynchronize")
            return [self._between(start, end) for start, end in pairs]
        finally:
            for event in (event for pair in pairs for event in pair):
                self.library.cudaEventDestroy(event)

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.call("cudaEventCreate", ctypes.byref(event))
        return event

    def _between(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        milliseconds = ctypes.c_float()
        self.call("cudaEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value


def time_in_turns(sides: Mapping[str, Run], runtime: CudaRuntime, rounds: int) -> dict[str, list[float]]:
    """Return each side's milliseconds in each round, as medians of readings. Rounds start with different sides."""
    names = list(sides)
    counts = {}
    for name, run in sides.items():
        milliseconds = statistics.median(runtime.readings(run, READINGS[0]))  # also raises the clocks
        counts[name] = max(READINGS[0], min(READINGS[1], int(SLICE_MS / max(milliseconds, 1e-3))))
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            times[name].append(statistics.median(runtime.readings(sides[name], counts[name])))
        names = names[1:] + names[:1]
    return times


def rows_of(workload: Workload, times: Mapping[str, list[float]], library: set[str]) -> list[dict[str, Any]]:
    """Return a row for each side. Its ratio is the median of the fastest ``library`` side's time divided by its own."""
    library_times = np.min([times[name] for name in times if name in library] or [[np.nan]], axis=0)
    rows = []
    for side, milliseconds in times.items():
        low, median, high = (float(value) for value in np.percentile(milliseconds, [25, 50, 75]))
        ratio = float(np.median(library_times / np.array(milliseconds)))
        row = {"side": side, "ms": median, "ms_quartiles": [low, high], "gflops": workload.flops / median / 1e6}
        rows.append({**row, "ratio": None if np.isnan(ratio) else ratio})
    return rows


def program(space: str, workload: Workload, target: Target, config: Config) -> Run:
    """Return a launcher for the program of ``config``. Raises AssertionError if its result differs from numpy's."""
    program, args = build(space, workload, target, config, arguments(workload, target))
    main = program["main"]
    main(*args)
    rtol, atol = workload.tolerance()
    expected = workload.reference(workload.inputs())
    np.testing.assert_allclose(args[-1].numpy(), expected, rtol=rtol, atol=atol, err_msg=space)
    return lambda: main(*args)


def library_sides(workload: Workload) -> dict[str, Run]:
    """Return a launcher for cuBLAS or cuDNN through PyTorch: no TF32, the same layout, cuDNN's fastest algorithm."""
    import torch

    for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
        backend.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    inputs = [torch.from_numpy(array).cuda() for array in workload.inputs().values()]
    expected = workload.reference(workload.inputs())
    sides = _cudnn(workload, *inputs) if isinstance(workload, Conv2d) else _cublas(workload, *inputs)
    for name, run in sides.items():
        with torch.inference_mode():
            result = run().double().cpu().numpy()  # cuDNN chooses its algorithm here
        off = float(np.linalg.norm(result - expected) / np.linalg.norm(expected))
        if not off < FLOAT32:
            raise AssertionError(f"{name} is off by {off:.1e}: it is not float32")
    return {name: _without_gradients(run) for name, run in sides.items()}


def _cublas(workload: Workload, a: torch.Tensor, b: torch.Tensor, *bias: torch.Tensor) -> dict[str, Any]:
    import torch

    def run() -> torch.Tensor:
        result = torch.addmm(bias[0], a, b) if bias else torch.mm(a, b)
        return result.relu_() if workload.relu else result

    return {"cuBLAS": run}


def _cudnn(workload: Conv2d, data: torch.Tensor, weight: torch.Tensor, *bias: torch.Tensor) -> dict[str, Any]:
    import torch

    geometry = (workload.stride, workload.padding, workload.dilation)
    offset = bias[0] if bias else None

    def run() -> torch.Tensor:
        result = torch.nn.functional.conv2d(data, weight, offset, *geometry)
        return result.relu_() if workload.relu else result

    if not workload.relu:
        return {"cuDNN": run}
    # This is a single kernel if cuDNN has one; otherwise, it is no slower than two.
    return {"cuDNN": run, "cuDNN fused": lambda: torch.cudnn_convolution_relu(data, weight, offset, *geometry, 1)}


def _without_gradients(run: Callable[[], torch.Tensor]) -> Run:
    import torch

    return torch.inference_mode()(run)


def compare(task: Mapping[str, Any], runtime: CudaRuntime) -> dict[str, Any]:
    """Return the ``rows`` and, for each side without a row, its ``problems``."""
    workload, target = parse_workload(task["workload"]), resolve_target("cuda")
    assert isinstance(workload, Conv2d | Gemm)
    sides: dict[str, Run] = {}
    problems: dict[str, str] = {}
    library: dict[str, Run] = {}
    for space, config in task["configs"].items():
        try:
            sides[space] = program(space, workload, target, Config(config))
        except Exception as error:  # a failure affects only its side, unless it breaks the process
            problems[space] = f"{type(error).__name__}: {first_line(error)}"
    if has_torch():
        try:
            library = library_sides(workload)
        except Exception as error:
            problems["library"] = f"{type(error).__name__}: {first_line(error)}"
    times = time_in_turns({**sides, **library}, runtime, task["rounds"])
    return {"rows": rows_of(workload, times, set(library)), "problems": problems}


def machine(runtime: CudaRuntime) -> dict[str, Any]:
    """Describe this machine."""
    import tvm

    version, device = ctypes.c_int(), tvm.cuda(0)
    runtime.call("cudaDriverGetVersion", ctypes.byref(version))
    return {
        "gpu": gpu_name(),
        "arch": gpu_arch(),
        "multiprocessors": int(device.multi_processor_count),
        "l2_bytes": device.l2_cache_size_bytes,
        "driver_cuda": version.value,
        "tvm": tvm.__version__,
        "torch": torch_version(),
    }


def caches(task: Mapping[str, Any], runtime: CudaRuntime) -> dict[str, Any]:
    """Time a random program of the space ``trace`` after a rest, with a flushed and with a warm L2 cache."""
    workload, target = parse_workload(task["workload"]), resolve_target("cuda")
    plugin, _ = SPACES.resolve("trace")
    config = first_valid(SPACES.make(plugin, workload, target))
    run = program("trace", workload, target, config)
    time.sleep(REST_SECONDS)
    first, *later_readings = runtime.readings(run, READINGS[1])
    warm = statistics.median(runtime.readings(run, READINGS[1], flush=False))
    return {
        "config": config.to_json(),
        "ms_after_rest": first,
        "ms_flushed": statistics.median(later_readings),
        "ms_warm": warm,
    }


def first_valid(space: Any, seed: int = 0) -> Config:
    """Return a random config that the GPU can run. Raises InvalidConfig if none is found."""
    from searchlab.errors import InvalidConfig

    rng = np.random.default_rng(seed)
    for _ in range(1000):
        config: Config = space.sample(rng)
        try:
            space.schedule(config)
        except InvalidConfig as error:
            why = error
        else:
            return config
    raise why


def has_torch() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def torch_version() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return str(torch.__version__)


def main() -> None:
    import tvm

    leave_folder()
    task = json.loads(sys.argv[sys.argv.index("--worker") + 1])
    runtime = CudaRuntime(FLUSHES * (tvm.cuda(0).l2_cache_size_bytes or 64 << 20))
    match task["kind"]:
        case "machine":
            answer = machine(runtime)
        case "caches":
            answer = caches(task, runtime)
        case _:
            answer = compare(task, runtime)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
