"""TVM targets, with the SIMD widths and cache sizes that guided spaces use."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SearchlabError, did_you_mean, first_line, shorten_text
from .machine.cuda import gpu_arch
from .machine.host import available_cores
from .options import checks_arguments

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True)
class Cache:
    """One level of data cache, as seen by a single core.

    Attributes:
        size: The size in bytes.
        line: The size of a line in bytes.
    """

    size: int
    ways: int
    line: int = 64


RECORDED = "recorded"
"""The target kind of tables from other tuners. Nothing is built for it; the workload names the device."""

TARGET_NAMES_BY_WORD = {"gpu": "cuda", "nvidia": "cuda", "cpu": "native", "host": "native", "local": "native"}
"""A mapping from words that users often type to the name of the target that they probably mean."""

SUGGESTED_TRIPLES = ("x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu", "armv7-linux-gnueabihf")
"""The triples that an error message suggests for a CPU of another architecture."""

MAX_VALUES_BY_ATTRIBUTE = {
    "num-cores": 1024,
    "vector-width": 1 << 14,
    "max_num_threads": 1 << 16,
    "thread_warp_size": 1 << 10,
}
"""The largest values of a target's numbers, all of which are at least 1."""

MAX_CACHE_BYTES = 1 << 40
"""The largest size of a cache, in bytes."""

INSTRUCTION_FEATURES = re.compile(
    r"(avx|sse|ssse|fma|f16c|bmi|lzcnt|popcnt|movbe|xop|tbm|gfni|vaes|vpclmul|amx|neon|sve|sme|dotprod|i8mm|bf16|"
    r"fullfp16|fp16fml|lse|rcpc|v\b)"
)
"""LLVM's names of the features for which it generates instructions. Others, such as pku, concern the system alone."""

MAX_NAME_LENGTH = 100
"""The maximum length of the name of a CPU, triple or feature, in characters."""

MAX_SHOWN_FEATURES = 4
"""The maximum number of missing features that a message lists."""

GENERIC_CACHES = (Cache(32 << 10, 8), Cache(512 << 10, 8), Cache(8 << 20, 16))
"""The L1, L2 and L3 caches assumed for an unknown machine; most cores since 2017 have at least these."""

# The caches that one core sees in a common model, by LLVM's name for the CPU. Sources: the Intel 64 and IA-32
# Architectures Optimization Reference Manual, AMD's Software Optimization Guides for families 17h, 19h and 1Ah, and
# Arm's Technical Reference Manuals. Where models differ, a comment names the model.
CPU_CACHES = {
    "haswell": (Cache(32 << 10, 8), Cache(256 << 10, 8), Cache(8 << 20, 16)),
    "skylake": (Cache(32 << 10, 8), Cache(256 << 10, 4), Cache(8 << 20, 16)),
    "skylake-avx512": (Cache(32 << 10, 8), Cache(1 << 20, 16), Cache(39424 << 10, 11)),  # Xeon Platinum 8180
    "cascadelake": (Cache(32 << 10, 8), Cache(1 << 20, 16), Cache(39424 << 10, 11)),  # Xeon Platinum 8280
    "icelake-server": (Cache(48 << 10, 12), Cache(1280 << 10, 20), Cache(60 << 20, 12)),  # Xeon Platinum 8380
    "sapphirerapids": (Cache(48 << 10, 12), Cache(2 << 20, 16), Cache(105 << 20, 15)),  # Xeon Platinum 8480+
    "znver2": (Cache(32 << 10, 8), Cache(512 << 10, 8), Cache(16 << 20, 16)),
    "znver3": (Cache(32 << 10, 8), Cache(512 << 10, 8), Cache(32 << 20, 16)),
    "znver4": (Cache(32 << 10, 8), Cache(1 << 20, 8), Cache(32 << 20, 16)),
    "znver5": (Cache(48 << 10, 12), Cache(1 << 20, 16), Cache(32 << 20, 16)),
    "neoverse-n1": (Cache(64 << 10, 4), Cache(1 << 20, 8), Cache(32 << 20, 16)),  # AWS Graviton2
    "neoverse-v1": (Cache(64 << 10, 4), Cache(1 << 20, 8), Cache(32 << 20, 16)),  # AWS Graviton3
    "cortex-a53": (Cache(32 << 10, 4), Cache(512 << 10, 16)),  # Raspberry Pi 3
    "cortex-a57": (Cache(32 << 10, 2), Cache(2 << 20, 16)),  # NVIDIA Jetson TX1
    "cortex-a72": (Cache(32 << 10, 2), Cache(1 << 20, 16)),  # Raspberry Pi 4
    "cortex-a76": (Cache(64 << 10, 4), Cache(512 << 10, 8), Cache(2 << 20, 16)),  # Raspberry Pi 5
    "carmel": (Cache(64 << 10, 4), Cache(2 << 20, 16), Cache(4 << 20, 16)),  # NVIDIA Jetson AGX Xavier
    "apple-a14": (Cache(128 << 10, 8), Cache(12 << 20, 12, 128)),  # Apple M1, a performance core
    "cortex-m7": (Cache(16 << 10, 4, 32), Cache(512 << 10, 8, 32)),  # STM32H743; instead of an L2, its SRAM: a guess
}
"""The default caches for targets with these CPUs, unless the target is the local machine."""


@dataclass(frozen=True, eq=False)
class Target:
    """A TVM target and its data caches.

    Attributes:
        spec: The target in TVM's own JSON form, fully resolved.
        caches: The data caches, L1 first.

    Example:
        >>> import searchlab
        >>> target = searchlab.resolve_target({"kind": "llvm", "mcpu": "znver4", "num-cores": 2})
        >>> target.kind, target.cores
        ('llvm', 2)
    """

    spec: dict[str, Any]
    caches: tuple[Cache, ...] = GENERIC_CACHES

    def to_json(self) -> dict[str, Any]:
        """Return a form from which :func:`resolve_target` creates the same target on any machine."""
        return {**self.spec, "caches": [[cache.size, cache.ways, cache.line] for cache in self.caches]}

    @property
    def kind(self) -> str:
        return str(self.spec["kind"])

    @property
    def cores(self) -> int:
        """The number of threads that a program for this target uses."""
        return int(self.spec.get("num-cores", 1))

    @cached_property
    def tvm(self) -> tvm.target.Target:
        import tvm

        spec = self.spec
        if self.kind == "llvm":
            # MetaSchedule divides the work by the number of cores and fails if it is missing.
            spec = {"num-cores": self.cores, **spec}
            if "v" in self._features:
                # For RISC-V's V, TVM makes vectors of any length, and then computes sums of products element by
                # element. Without it, vectors have a fixed length, and LLVM uses the instructions, which are Zve64d's.
                spec = {**spec, "mattr": [*spec.get("mattr", []), "-v"], "vector-width": 8 * self.simd_bytes}
        return tvm.target.Target(spec)

    @cached_property
    def _features(self) -> set[str]:
        return _list_features(self.spec)

    @cached_property
    def is_foreign(self) -> bool:
        """Whether the target is a different kind of machine, for which the local linker does not work."""
        from tvm.target import codegen

        triple = str(codegen.llvm_get_system_triple())
        return bool(self.spec.get("mtriple", triple) != triple)

    @cached_property
    def simd_bytes(self) -> int:
        """The width of a vector register in bytes, or 4 if the CPU has none."""
        from tvm.target import codegen

        if "vector-width" in self.spec:
            return int(self.spec["vector-width"]) // 8
        # llvm_get_vector_width returns 512 for any x86 CPU, even one with only SSE, and 128 for CPUs without vectors.
        # The features are used instead.
        features = self._features
        if "sse2" in features:
            register_bytes = {"avx512f": 64, "avx": 32}
            return next((width for name, width in register_bytes.items() if name in features), 16)
        if vector_bits := [int(match[1]) for name in features if (match := re.fullmatch(r"zvl(\d+)b", name))]:
            return max(vector_bits) // 8
        is_riscv = architecture_of(str(self.spec.get("mtriple"))).startswith("riscv")
        if is_riscv or ("mclass" in features and "mve" not in features):
            return 4
        return int(codegen.llvm_get_vector_width(self.tvm)) // 8

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True)

    def __reduce__(self) -> tuple[Any, ...]:  # without TVM's object, which is created on demand
        return Target, (self.spec, self.caches)


def native_caches(cache_dir: str = "/sys/devices/system/cpu/cpu0/cache") -> tuple[Cache, ...]:
    """Return the local machine's data caches as reported by Linux, or :data:`GENERIC_CACHES` if unavailable."""
    caches_by_level: dict[int, Cache] = {}
    for index_dir in sorted(Path(cache_dir).glob("index*")):
        try:
            if (index_dir / "type").read_text().strip() not in ("Data", "Unified"):
                continue
            size_text = (index_dir / "size").read_text().strip()
            caches_by_level[int((index_dir / "level").read_text())] = Cache(
                int(size_text[:-1]) << {"K": 10, "M": 20, "G": 30}[size_text[-1]],
                int((index_dir / "ways_of_associativity").read_text()),
                int((index_dir / "coherency_line_size").read_text()),
            )
        except (OSError, ValueError, KeyError):
            continue
    caches = [caches_by_level[level] for level in sorted(caches_by_level) if caches_by_level[level].ways > 0]
    return tuple(caches) if len(caches) >= 2 else GENERIC_CACHES


def native_fields() -> dict[str, Any]:
    """Return what ``"native"`` stands for. Its triple allows a different kind of machine to build the same programs."""
    from tvm.target import codegen

    triple, cpu = str(codegen.llvm_get_system_triple()), str(codegen.llvm_get_system_cpu())
    return {"mtriple": triple, "mcpu": cpu, "num-cores": available_cores()}


@checks_arguments
def resolve_target(spec: str | Mapping[str, Any] | Target) -> Target:
    """Return the target that ``spec`` specifies.

    Args:
        spec: ``"native"`` for the local CPU with all its cores; ``"cuda"`` for the local GPU, or for a different one
            if an ``"arch"`` is specified; LLVM's name for a CPU, such as ``"znver4"``; ``"recorded"`` for recorded
            times without programs; or TVM's own JSON form. In JSON, ``"kind"`` may be ``"native"``, for example with
            ``"num-cores": 1``, and ``"caches"`` may list (bytes, ways[, bytes per line]) for each level of data cache,
            L1 first. By default, the caches are the local machine's for ``"native"``, those in CPU_CACHES for a CPU
            listed there, and GENERIC_CACHES otherwise.

    Raises:
        SearchlabError: If the installed TVM cannot build for the target.

    Example:
        >>> import searchlab
        >>> searchlab.resolve_target("znver4").spec["mcpu"]
        'znver4'
    """
    if isinstance(spec, Target):
        return spec
    fields = dict(spec) if isinstance(spec, Mapping) else _parse_text(spec.strip())
    if "kind" not in fields:
        raise SearchlabError(f'target {json.dumps(fields)} has no "kind"; add one, for example {{"kind": "llvm"}}')
    caches = _parse_caches(fields.pop("caches", None))
    if fields["kind"] == "native":
        caches = caches or native_caches()
        fields = {**native_fields(), **fields, "kind": "llvm"}
    if fields["kind"] == "cuda" and "arch" not in fields:
        if (arch := gpu_arch()) is None:
            raise SearchlabError(
                "no CUDA device was found, so the arch to build for is unknown; use a machine with a GPU or, to "
                'inspect programs or use recorded times, specify an arch, for example {"kind": "cuda", "arch": "sm_90"}'
            )
        fields["arch"] = arch
    if fields["kind"] == RECORDED:
        return Target(fields, caches)
    _check_spec(fields)
    return Target(fields, caches or CPU_CACHES.get(str(fields.get("mcpu")), GENERIC_CACHES))


def _parse_text(text: str) -> dict[str, Any]:
    """Return the target that ``text`` specifies, a name, options or JSON, in TVM's JSON form."""
    from tvm.target import Target as TvmTarget

    if text.startswith("{"):
        try:
            return dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise SearchlabError(f"target {text!r} is not valid JSON: {error}") from None
    if text in TvmTarget.list_kinds() or text in ("native", RECORDED):
        return {"kind": text}
    if " " in text:
        return parse_options(text)
    return {"kind": "llvm", "mcpu": text}


def parse_options(text: str) -> dict[str, Any]:
    """Convert a target in TVM's older form, such as ``llvm -mcpu=znver4 -num-cores 4``, to TVM's JSON form.

    Raises:
        SearchlabError: If the text does not have this form.
    """
    kind, *words = text.split() or [""]
    if not kind or kind.startswith("-"):
        raise SearchlabError(f"target {text!r} does not start with its kind, for example llvm")
    target: dict[str, Any] = {"kind": kind}
    while words:
        option = words.pop(0)
        name, equals_sign, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not name:
            raise SearchlabError(
                f'target {text!r}: {option!r} is not an option; use the form {{"kind": "llvm", "mcpu": "znver4"}}'
            )
        if not equals_sign and words and not words[0].startswith("-"):
            equals_sign, value = "=", words.pop(0)
        if name in ("keys", "libs", "mattr"):
            target[name] = value.split(",")
        elif not equals_sign:
            target[name] = True
        else:
            target[name] = int(value) if value.isdecimal() and value.isascii() else value
    return target


def _parse_caches(levels: Any) -> tuple[Cache, ...]:
    try:
        caches = tuple(Cache(*(int(number) for number in level)) for level in levels or ())
    except (TypeError, ValueError, OverflowError):
        caches = ()
    is_valid = len(caches) >= 2 and all(1 <= size <= MAX_CACHE_BYTES for cache in caches for size in astuple(cache))
    if levels and not is_valid:
        raise SearchlabError(f'target: "caches" must be [[bytes, ways], ...] for L1, L2, etc., not {levels!r}')
    return caches


def _check_spec(spec: dict[str, Any]) -> None:
    """Raise SearchlabError if TVM does not recognise ``spec`` or has no code generator for it."""
    import tvm
    from tvm.target import Target as TvmTarget

    kind = str(spec["kind"])
    valid_kinds = [str(name) for name in TvmTarget.list_kinds()]
    if kind not in valid_kinds:
        raise SearchlabError(f"unknown target {kind!r}{did_you_mean(kind, ['native', *valid_kinds])}")
    if tvm.get_global_func(f"target.build.{kind}", allow_missing=True) is None:
        raise SearchlabError(f"the installed TVM cannot build for target {kind!r}: its wheel lacks that code generator")
    for name, max_value in MAX_VALUES_BY_ATTRIBUTE.items():
        if name in spec and not (type(spec[name]) is int and 1 <= spec[name] <= max_value):
            raise SearchlabError(f"target: {name} must be a whole number from 1 to {max_value}, not {spec[name]!r}")
    if kind == "llvm":
        _check_cpu(spec)
    if spec.get("host") is not None:
        _check_spec(_parse_host(spec["host"]))
    try:
        TvmTarget(spec)
    except Exception as error:  # TVM may raise anything
        raise SearchlabError(f"target {json.dumps(spec)}: {first_line(error)}") from None


def _parse_host(spec: Any) -> dict[str, Any]:
    """Return the target of the host, which may be a nested target or a name, in JSON form."""
    fields = parse_options(spec) if isinstance(spec, str) else spec
    if not isinstance(fields, Mapping) or "kind" not in fields:
        raise SearchlabError(f'target: host must be a target with a "kind", not {spec!r}')
    return dict(fields)


def _check_cpu(spec: Mapping[str, Any]) -> None:
    """Raise SearchlabError if LLVM does not know the triple or the CPU of ``spec``, for which it may crash."""
    from tvm.target import codegen
    from tvm_ffi import get_global_func

    for name in ("mtriple", "mcpu"):
        if name in spec and not _is_valid_name(spec[name]):
            value = shorten_text(repr(spec[name]), MAX_NAME_LENGTH)
            raise SearchlabError(f"target: {name} must be a name of 1 to {MAX_NAME_LENGTH} characters, not {value}")
    triple = str(spec.get("mtriple") or codegen.llvm_get_system_triple())
    try:
        get_global_func("codegen.llvm_target_enabled")(json.dumps({"kind": "llvm", "mtriple": triple}))
    except Exception:  # an error of TVM's that is no Python class
        architectures = [str(name) for name in codegen.llvm_get_targets()]
        hint = did_you_mean(triple.partition("-")[0], architectures)
        raise SearchlabError(f"unknown target triple {triple!r}{hint}") from None
    if "mcpu" in spec:
        _check_mcpu(spec["mcpu"], triple)
    if architecture_of(triple) == "x86_64" and "mcpu" in spec and "64bit" not in _list_features(spec):
        raise SearchlabError(f"target CPU {spec['mcpu']!r} has no 64-bit instructions, but the triple is {triple!r}")
    _check_features(spec)


def _is_valid_name(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= MAX_NAME_LENGTH


def _check_mcpu(cpu: str, triple: str) -> None:
    from tvm.target import Target as TvmTarget
    from tvm.target import codegen

    if not codegen.llvm_is_valid_cpu(cpu, triple):
        meant_target = TARGET_NAMES_BY_WORD.get(cpu.lower())
        valid_triple = next((name for name in SUGGESTED_TRIPLES if codegen.llvm_is_valid_cpu(cpu, name)), None)
        tvm_target = TvmTarget({"kind": "llvm", "mtriple": triple})
        cpu_names = [str(name) for name in codegen.llvm_get_cpu_archlist(tvm_target)]
        hint = f"; did you mean {meant_target!r}?" if meant_target else did_you_mean(cpu, cpu_names)
        hint = f' for {triple}; it is known with "mtriple": "{valid_triple}"' if valid_triple else hint
        raise SearchlabError(f"unknown target CPU {cpu!r}{hint}")


def _check_features(spec: Mapping[str, Any]) -> None:
    """Raise SearchlabError if LLVM would ignore any of the features in ``mattr``."""
    features = spec.get("mattr", [])
    is_list = isinstance(features, list)
    if not is_list or not all(_is_valid_name(name) and name[0] in "+-" and name[1:] for name in features):
        raise SearchlabError(
            'target: mattr must be a list of features such as "+avx512vnni", not '
            f"{shorten_text(repr(features), MAX_NAME_LENGTH)}"
        )
    added_features = {name[1:] for name in features if name.startswith("+")}
    if added_features and (unknown_features := added_features - _list_features(spec)):
        raise SearchlabError(f"target: LLVM knows no feature {min(unknown_features)!r} of this CPU")


def architecture_of(triple: str) -> str:
    """Return the architecture in ``triple``, under the same name for all of its spellings."""
    name = triple.partition("-")[0].lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def _list_features(spec: Mapping[str, Any]) -> set[str]:
    """Return LLVM's names of the features of the CPU in ``spec``, including those in ``mattr``."""
    from tvm.target import Target as TvmTarget
    from tvm.target import codegen

    fields = {name: spec[name] for name in ("kind", "mtriple", "mcpu", "mattr") if name in spec}
    return {str(name) for name in codegen.llvm_get_cpu_features(TvmTarget(fields))}


def check_runs_here(target: Target) -> None:
    """Raise SearchlabError if programs for ``target``, which is for a CPU, would crash or be slowed down here."""
    from tvm.target import codegen
    from tvm_ffi import get_global_func

    spec, own_triple = target.spec, str(codegen.llvm_get_system_triple())
    target_triple = str(spec.get("mtriple") or own_triple)
    has_same_system = ("linux" in target_triple) == ("linux" in own_triple)
    if architecture_of(target_triple) != architecture_of(own_triple) or not has_same_system:
        raise SearchlabError(
            f"programs for {target_triple!r} do not run on this machine ({own_triple}); measure on a machine where "
            f"they do, for example through a fleet"
        )
    supported_by_feature = get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")().items()
    unsupported = {str(name) for name, is_supported in supported_by_feature if not is_supported}
    missing_features = sorted(name for name in _list_features(spec) & unsupported if INSTRUCTION_FEATURES.match(name))
    if missing_features:
        raise SearchlabError(
            f"programs for the CPU {spec.get('mcpu', 'generic')!r} do not run on this machine, whose CPU has no "
            f"{', '.join(missing_features[:MAX_SHOWN_FEATURES])}; use the target native, or measure on a machine with "
            f"that CPU"
        )
    if target.cores > available_cores():
        raise SearchlabError(
            f"the target has {target.cores} cores, but only {available_cores()} are available on this machine; reduce "
            f"num-cores, or measure on a machine with enough cores"
        )
