"""Pruner's search: a static analysis drafts candidates, and a learned cost model selects from them.

Sources: Qiao et al., "Pruner: A Draft-then-Verify Exploration Mechanism to Accelerate Tensor Program Tuning" (ASPLOS
2025, arXiv 2402.02361), and its code, github.com/qiaolian9/Pruner: the symbols in ``feature_psa.cc``, their penalties
in ``psa_model.py``, the search in ``sketch_policy.cc`` and its defaults in ``search_policy.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from searchlab.arrays import Floats
from searchlab.costmodel import BoundCostModel
from searchlab.costmodel.features import COLUMNS_PER_STORE, make_features
from searchlab.options import Count, Natural, UnitInterval
from searchlab.policy import Origin, OwnModel
from searchlab.space import Config, Space
from searchlab.target import Target

from .ansor import Ansor

FLOAT_COLUMNS, INTEGER_COLUMNS = slice(0, 7), slice(7, 14)
"""The columns with a store's numbers of operations."""

VECTOR_COLUMN, UNROLLED_COLUMN, PARALLEL_COLUMN = 18, 29, 40
"""The columns with the product of the lengths of a store's vectorised, unrolled and parallel loops."""

BLOCK_COLUMNS, THREAD_COLUMNS, VIRTUAL_THREAD_COLUMN = slice(50, 53), slice(53, 56), 56
"""The columns with the lengths of a store's loops over blocks, threads and virtual threads of a GPU."""

FIRST_BUFFER_COLUMN, COLUMNS_PER_BUFFER, BUFFERS_PER_STORE = 57, 18, 5
"""The first column about buffers, the number of columns for each buffer, and that of buffers."""

BYTES_COLUMN, UNIQUE_BYTES_COLUMN, LINES_COLUMN, REUSE_BYTES_COLUMN, REUSES_COLUMN = 3, 4, 5, 11, 12
"""A buffer's columns with the bytes that a store accesses, how many of them are distinct, the number of accesses to
cache lines, the bytes accessed between an access and its reuse, and the number of reuses."""

CPU_BANDWIDTHS = 32.0, 16.0, 8.0
"""The bytes per cycle that a core receives from the second, the third and the next levels of memory."""

GPU_REGISTERS, WARP_SIZE, WARPS_AT_ONCE, OPERATIONS_PER_BYTE = 128, 32, 4, 25.0
"""The registers per thread, the threads per warp, the warps that a multiprocessor executes at once, and how many
operations a GPU executes while it reads a byte (Pruner's Titan V has 14,900 GFLOPS and 651 GB/s)."""


class Pruner(Ansor, own_model=OwnModel("pack-sum", "per-store")):
    """Pruner's search: evolution on a static analysis drafts programs, and a cost model selects from their neighbours.

    For each batch, a population of random programs evolves for a few generations, guided by the time that
    :class:`SymbolAnalyzer` estimates for a program without any measurement. The best programs are the draft. The draft,
    random programs and the best measured programs are the first generation of Ansor's search, which ends after fewer
    generations than Ansor's. The first batches, before the cost model is trained, are random programs from the draft.

    To learn from other workloads, as with Pruner's momentum adaptation, use a warm start and the cost model
    ``pretrained``, which moves from a model of these workloads to one of this run. Pruner measures 10 programs per
    round.

    Args:
        drafted: The number of programs in the draft.
        draft_generations: The number of generations to breed for the draft.
        n_startup: The number of programs to measure before the cost model is used. Ignored if the model was trained on
            other runs (a warm start).
        population: The number of random programs in the initial population, and of programs in each generation.
        generations: The number of generations to breed with the cost model.
        measured_ratio: The maximum number of best measured programs to add to the first generation, as a fraction of
            ``population``.
        mutation_prob: The probability of mutating one knob of a child.
        epsilon: The fraction of the batch that is drawn from the first generation, rounded down.
        predictions: The maximum number of distinct configs to predict for a batch, as for Ansor.
        multiprocessors: The number of a GPU's multiprocessors.
    """

    origin = Origin(
        "Pruner",
        "2025",
        "Qiao et al., Pruner, ASPLOS 2025, arXiv 2402.02361; github.com/qiaolian9/Pruner",
        "relative",
        (
            "the analysis uses Ansor's features of programs, as the cost model does, so a draft saves no features",
            "Pruner is for GPUs; on CPUs, the symbols are vector lanes, cores, registers and the traffic of caches",
            "on GPUs, registers are those of unrolled loops, and arithmetic is on shared memory if anything is copied",
            "the cost model is Ansor's boosted trees instead of a transformer over data flows",
            "trees have no weights to average, so momentum adaptation is left to the cost model pretrained",
            "the draft is made for every batch instead of every other one; untrained, batches are drawn from the draft",
            "otherwise as ansor: the space, its mutations, and when two programs are the same",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        cost_model: BoundCostModel,
        drafted: Count = 512,
        draft_generations: Natural = 2,
        n_startup: Count = 10,
        population: Count = 1536,
        generations: Natural = 1,
        measured_ratio: UnitInterval = 0.1,
        mutation_prob: UnitInterval = 0.85,
        epsilon: UnitInterval = 0.1,
        predictions: Count | None = None,
        multiprocessors: Count = 80,
    ) -> None:
        super().__init__(
            space,
            seed=seed,
            cost_model=cost_model,
            n_startup=n_startup,
            population=population,
            generations=generations,
            measured_ratio=measured_ratio,
            mutation_prob=mutation_prob,
            epsilon=epsilon,
            predictions=predictions,
        )
        self.drafted = drafted
        self.draft_generations = draft_generations
        has_own_features = cost_model.features.name == "per-store"
        self._features = cost_model.features if has_own_features else make_features("per-store", space)
        self._analyzer = SymbolAnalyzer(space.target, multiprocessors)

    def search(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        if self._is_ready():
            return super().search(n, rng)
        draft = self._draft([self.space.sample(rng) for _ in range(self.population)], rng)
        return [draft[i] for i in rng.permutation(len(draft))]

    def _make_first_generation(self, rng: np.random.Generator) -> list[Config]:
        first_generation = super()._make_first_generation(rng)
        return list(dict.fromkeys([*self._draft(first_generation[: self.population], rng), *first_generation]))

    def _draft(self, population: Sequence[Config], rng: np.random.Generator) -> list[Config]:
        """Return the new programs for which the analysis estimates the shortest times (``GeneratePotentialSpace``)."""
        return self._evolve(population, self.drafted, self.draft_generations, self._estimate, rng)

    def _estimate(self, configs: Sequence[Config]) -> Floats:
        """Return the reciprocals of the estimated times of ``configs``, of shape (n,); 0 without a program."""
        return self._analyzer(self._features(configs))


class SymbolAnalyzer:
    """Estimates how fast programs are from their features alone.

    The time of each store in a program is the longer one of the times for its arithmetic and for its memory accesses,
    and the times of all stores are added up. Arithmetic takes place at the machine's peak rate, reduced by penalties:
    for vector lanes or threads of a warp that idle, for cores or multiprocessors that idle at the end, for more values
    than there are registers, and for few operations per access.

    Args:
        target: The target of the programs.
        multiprocessors: The number of multiprocessors, if the target is a GPU.
    """

    def __init__(self, target: Target, multiprocessors: int = 80) -> None:
        self._target = target
        self._multiprocessors = multiprocessors
        self._estimate_times = self._estimate_cpu_cycles if target.kind == "llvm" else self._estimate_gpu_times

    def __call__(self, rows: Floats) -> Floats:
        """Return the reciprocals of the estimated times, of shape (n,), given features of shape (n, stores * 164)."""
        stores = rows.reshape(len(rows), -1, COLUMNS_PER_STORE)
        is_store = ~np.isnan(stores[:, :, 0])
        columns = np.where(is_store[:, :, None], np.rint(np.exp2(np.nan_to_num(stores)) - 1), 0.0)
        times = np.where(is_store, self._estimate_times(columns), 0.0).sum(axis=1)
        reciprocals: Floats = np.divide(1.0, times, out=np.zeros(len(rows)), where=times > 0)
        return reciprocals

    def _estimate_cpu_cycles(self, stores: Floats) -> Floats:
        """Return the number of cycles for each of ``stores``, of shape (n, stores, 164)."""
        lanes = max(1, self._target.simd_bytes // 4)
        vector, unrolled = np.maximum(stores[:, :, VECTOR_COLUMN], 1), np.maximum(stores[:, :, UNROLLED_COLUMN], 1)
        registers = unrolled * np.ceil(vector / lanes)
        available_registers = 32 if self._target.simd_bytes == 64 else 16
        cores = self._target.cores * compute_utilization(
            np.maximum(stores[:, :, PARALLEL_COLUMN], 1), self._target.cores
        )
        rate = 2 * lanes * compute_utilization(vector, lanes) * cores / np.maximum(registers / available_registers, 1)
        arithmetic = count_operations(stores) * compute_reuse_penalty(stores) / rate
        buffers = split_buffers(stores)
        footprint = buffers[..., UNIQUE_BYTES_COLUMN].sum(axis=-1, keepdims=True)
        line = self._target.caches[0].line
        accessed_bytes = np.maximum(buffers[..., BYTES_COLUMN], line * buffers[..., LINES_COLUMN])
        reused_bytes = accessed_bytes / np.maximum(buffers[..., REUSES_COLUMN], 1)
        memory = np.zeros(arithmetic.shape)
        for cache, bandwidth in zip(self._target.caches, CPU_BANDWIDTHS, strict=False):
            missed_bytes = np.where(buffers[..., REUSE_BYTES_COLUMN] <= cache.size, reused_bytes, accessed_bytes)
            missed_bytes = np.where(footprint <= cache.size, buffers[..., UNIQUE_BYTES_COLUMN], missed_bytes)
            memory += missed_bytes.sum(axis=-1) / bandwidth
        cycles: Floats = np.maximum(arithmetic, memory / cores)
        return cycles

    def _estimate_gpu_times(self, stores: Floats) -> Floats:
        """Return the time for each of ``stores``, of shape (n, stores, 164), in operations at the peak rate."""
        blocks, threads = (
            np.maximum(stores[:, :, loop_columns], 1).prod(axis=-1) for loop_columns in (BLOCK_COLUMNS, THREAD_COLUMNS)
        )
        warps = np.ceil(threads / WARP_SIZE)
        has_few_blocks = blocks < self._multiprocessors
        units = blocks * np.where(has_few_blocks, np.minimum(warps, WARPS_AT_ONCE), 1)
        slots = self._multiprocessors * np.where(has_few_blocks, WARPS_AT_ONCE, 1)
        registers = np.maximum(stores[:, :, [VECTOR_COLUMN, UNROLLED_COLUMN, VIRTUAL_THREAD_COLUMN]], 1).prod(axis=-1)
        rate = (
            compute_utilization(threads, WARP_SIZE)
            * compute_utilization(units, slots)
            / np.maximum(registers / GPU_REGISTERS, 1)
        )
        operation_count = count_operations(stores)
        copied_bytes = split_buffers(stores)[..., BYTES_COLUMN].max(axis=-1)
        times: Floats = np.where(
            operation_count > 0,
            operation_count * compute_reuse_penalty(stores) / rate,
            copied_bytes * OPERATIONS_PER_BYTE,
        )
        return times


def count_operations(stores: Floats) -> Floats:
    """Return the number of floating-point operations or, without any, of integer operations, of shape (n, stores)."""
    floats, integers = stores[:, :, FLOAT_COLUMNS].sum(axis=-1), stores[:, :, INTEGER_COLUMNS].sum(axis=-1)
    count: Floats = np.where(floats > 0, floats, integers)
    return count


def split_buffers(stores: Floats) -> Floats:
    """Return the columns about buffers, of shape (n, stores, buffers, columns)."""
    columns = stores[:, :, FIRST_BUFFER_COLUMN : FIRST_BUFFER_COLUMN + BUFFERS_PER_STORE * COLUMNS_PER_BUFFER]
    buffers: Floats = columns.reshape(*stores.shape[:2], BUFFERS_PER_STORE, COLUMNS_PER_BUFFER)
    return buffers


def compute_reuse_penalty(stores: Floats) -> Floats:
    """Return the factor by which few operations per byte slow arithmetic down, between 1 and 2."""
    buffers = split_buffers(stores)
    reused_bytes = (buffers[..., BYTES_COLUMN] / np.maximum(buffers[..., REUSES_COLUMN], 1)).sum(axis=-1)
    penalty: Floats = 1 + 1 / (1 + count_operations(stores) / np.maximum(reused_bytes, 1))
    return penalty


def compute_utilization(work: Floats, slots: Floats | int) -> Floats:
    """Return the fraction of ``slots`` that is used if as many as possible are used at a time for ``work``."""
    fraction: Floats = work / (np.ceil(work / slots) * slots)
    return fraction
