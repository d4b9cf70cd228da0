from __future__ import annotations

import pickle
import platform
from pathlib import Path

import pytest

from searchlab.errors import SearchlabError
from searchlab.machine.host import available_cores
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.target import (
    CPU_CACHES,
    GENERIC_CACHES,
    Cache,
    Target,
    check_runs_here,
    native_caches,
    resolve_target,
)


def test_native_is_this_cpu_with_all_its_cores(native: Target) -> None:
    assert native.kind == "llvm" and native.cores >= 1 and native.simd_bytes >= 16
    assert [cache.size for cache in native.caches] == sorted(cache.size for cache in native.caches)


@pytest.mark.parametrize(("cpu", "simd_bytes"), [("haswell", 32), ("skylake-avx512", 64), ("nehalem", 16)])
def test_simd_width_follows_the_cpu(cpu: str, simd_bytes: int) -> None:
    assert resolve_target(cpu).simd_bytes == simd_bytes


@pytest.mark.parametrize(
    ("triple", "cpu", "simd_bytes"),
    [
        ("riscv64-unknown-linux-gnu", "sifive-x280", 64),
        ("riscv64-unknown-linux-gnu", "sifive-u74", 4),  # has no vectors
        ("thumbv7em-none-eabihf", "cortex-m7", 4),  # nor has this one
        ("thumbv8.1m.main-none-eabihf", "cortex-m55", 16),
        ("aarch64-linux-gnu", "neoverse-n1", 16),
    ],
)
def test_simd_width_follows_a_cpu_of_another_kind(triple: str, cpu: str, simd_bytes: int) -> None:
    assert resolve_target({"kind": "llvm", "mtriple": triple, "mcpu": cpu}).simd_bytes == simd_bytes


def test_a_microcontroller_has_small_caches() -> None:
    l1, memory = resolve_target({"kind": "llvm", "mtriple": "thumbv7em-none-eabihf", "mcpu": "cortex-m7"}).caches
    assert (l1.size, l1.ways, l1.line) == (16 << 10, 4, 32)
    assert memory.size == 512 << 10


@pytest.mark.parametrize(
    "spec",
    [
        "native",
        "znver4",
        {"kind": "native", "num-cores": 1},
        '{"kind": "llvm", "mcpu": "haswell", "num-cores": 4, "caches": [[32768, 8], [262144, 4, 64]]}',
        {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"},
    ],
)
def test_a_target_survives_json_and_pickle(spec: object) -> None:
    target = resolve_target(spec)  # type: ignore[arg-type]
    assert resolve_target(target.to_json()) == target == pickle.loads(pickle.dumps(target))


@pytest.mark.parametrize("cpu", CPU_CACHES)
def test_known_cpus_can_be_built_for_and_bring_their_caches(cpu: str) -> None:
    arm = cpu.startswith(("neoverse", "cortex", "carmel", "apple"))
    triple = "thumbv7em-none-eabihf" if cpu == "cortex-m7" else f"{'aarch64' if arm else 'x86_64'}-linux-gnu"
    target = resolve_target({"kind": "llvm", "mcpu": cpu, "mtriple": triple})
    assert target.caches == CPU_CACHES[cpu]
    for cache in target.caches:  # a power of two of sets, unless the L3 is in slices, one a core
        sets = cache.size // (cache.ways * cache.line)
        assert sets * cache.ways * cache.line == cache.size
        assert sets & (sets - 1) == 0 or cache is target.caches[2]
    assert [cache.size for cache in target.caches] == sorted(cache.size for cache in target.caches)


def test_specified_caches_precede_recorded_and_generic_ones() -> None:
    caches = [[32768, 8], [262144, 4]]
    assert resolve_target({"kind": "llvm", "mcpu": "znver4", "caches": caches}).caches[1] == Cache(262144, 4)
    assert resolve_target("nehalem").caches == GENERIC_CACHES


def test_cores_and_caches_can_be_specified() -> None:
    target = resolve_target({"kind": "native", "num-cores": 1, "caches": [[32768, 8], [262144, 4]]})
    assert target.cores == 1
    assert target.caches == (Cache(32768, 8), Cache(262144, 4))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("znver44", "unknown target CPU 'znver44'; did you mean 'znver4'"),
        ("vulkan", "the installed TVM cannot build for target 'vulkan'"),
        ({"kind": "lvm"}, "unknown target 'lvm'; did you mean 'llvm'"),
        ({"mcpu": "znver4"}, 'has no "kind"'),
        ('{"kind": ', "is not valid JSON"),
        ({"kind": "llvm", "nonsense": 1}, "nonsense"),
        ({"kind": "llvm", "caches": [[1]]}, "caches"),
        ({"kind": "llvm", "caches": "big"}, "caches"),
        ({"kind": "llvm", "caches": [[10**15, 8], [10**15, 8]]}, "caches"),
        *(({"kind": "llvm", "num-cores": cores}, "from 1 to") for cores in (0, -1, 4096, 10**9, True, 2.0, "2")),
        ({"kind": "llvm", "vector-width": 0}, "from 1 to"),
        *(
            ({"kind": "llvm", "mtriple": triple}, "triple")
            for triple in ("aarch46-linux-gnu", "nonsense", 5, "", "a\n")
        ),
        ({"kind": "cuda", "arch": "sm_90", "host": {"kind": "llvm", "mtriple": "aarch46-linux-gnu"}}, "aarch46"),
        ({"kind": "cuda", "arch": "sm_90", "host": "llvm -mtriple=aarch46-linux-gnu"}, "aarch46"),
        ({"kind": "llvm", "mcpu": "help"}, "unknown target CPU 'help'"),
        ({"kind": "llvm", "mcpu": ["znver4"]}, "mcpu must be a name"),
        ({"kind": "llvm", "mcpu": "x" * 100_000}, r"^.{,300}$"),
        ({"kind": "llvm", "mcpu": "skylake", "mattr": ["+avx512vnnii"]}, "no feature 'avx512vnnii'"),
        ({"kind": "llvm", "mattr": "+avx"}, "must be a list of features"),
        ({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "pentium3"}, "64-bit"),
        ({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "apple-m1"}, '"mtriple": "aarch64-linux-gnu"'),
        ("llvm znver4", "'znver4' is not an option"),
        ("-mcpu=znver4 llvm", "does not start with its kind"),
    ],
)
def test_what_cannot_be_built_for_is_refused(spec: object, message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        resolve_target(spec)  # type: ignore[arg-type]


def test_caches_are_read_from_the_files_of_linux(tmp_path: Path) -> None:
    for index, (level, kind, size, ways) in enumerate(
        [(1, "Data", "48K", 12), (1, "Instruction", "32K", 8), (2, "Unified", "1M", 16)]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, value in (
            ("level", level),
            ("type", kind),
            ("size", size),
            ("ways_of_associativity", ways),
            ("coherency_line_size", 64),
        ):
            (folder / name).write_text(f"{value}\n")
    assert native_caches(str(tmp_path)) == (Cache(48 << 10, 12), Cache(1 << 20, 16))
    assert native_caches(str(tmp_path / "absent")) == GENERIC_CACHES


@pytest.mark.parametrize("cpu", ["apple-m1", "cobalt-100"])
def test_cpus_that_llvm_accepts_but_does_not_list(cpu: str) -> None:
    assert resolve_target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": cpu}).spec["mcpu"] == cpu


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("llvm -mcpu=core-avx2", {"kind": "llvm", "mcpu": "core-avx2"}),
        ("llvm --num-cores=16", {"kind": "llvm", "num-cores": 16}),
        (" llvm -mcpu haswell -num-cores 4 ", {"kind": "llvm", "mcpu": "haswell", "num-cores": 4}),
        ("llvm -keys=cpu -mattr=+avx2,+fma", {"kind": "llvm", "keys": ["cpu"], "mattr": ["+avx2", "+fma"]}),
    ],
)
def test_the_older_form_of_targets_is_translated(text: str, spec: dict[str, object]) -> None:
    assert resolve_target(text) == resolve_target(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"mtriple": "riscv64-linux-gnu"}, "do not run on this machine"),
        ({"mtriple": "x86_64-apple-macos" if platform.machine() == "x86_64" else "aarch64-apple-macos"}, "do not run"),
        ({"num-cores": available_cores() + 1}, "cores, but only"),
    ],
)
def test_a_target_that_this_machine_cannot_run_is_refused(spec: dict[str, object], message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        LocalMeasurer(LocalSettings(), resolve_target({"kind": "llvm", **spec}), {}, 1)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 features")
def test_missing_instructions_are_named_before_measuring(native: Target) -> None:
    check_runs_here(native)
    with pytest.raises(SearchlabError, match="CPU has no .*amx"):
        check_runs_here(resolve_target({**native.spec, "mattr": ["+amx-fp8", "+amx-movrs"]}))
