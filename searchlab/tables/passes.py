"""Timing a table's programs in passes, in different random orders, so that drift does not look like effects of knobs.

A pass times all programs, in blocks. The sentinel, a program of median speed, is timed repeatedly between the programs
of each block, and blocks that deviate are timed again. Finally, the fastest programs are timed in turn, so that the
optimum does not depend on a lucky reading. All readings are kept in a journal, from which a later build can resume.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ..errors import SearchlabError
from ..log.format import Passes
from ..log.journal import Journal, read_journal
from ..measure.contract import CannotMeasure, Remeasurer
from ..records import Trial
from ..space import Space

BLOCK_SIZE = 32
"""The number of programs in a block."""

SENTINEL_INTERVAL = 8
"""The number of programs between two readings of the sentinel."""

MAX_DEVIATION = 0.10
"""The maximum relative deviation in a block, of the sentinel or of the programs in the median."""

MAX_TRIES = 8
"""The number of tries, in each of which all blocks that deviate are timed again, before timing stops with an error."""

FINAL_SHARE = 0.02
"""The fraction of the programs that are timed again in turn at the end, because they are the fastest."""

FINAL_ROUNDS = 48
"""How often each of the fastest programs is timed."""

FINAL_PASS = -1
"""The index of the pass over the fastest programs."""


class BlockKey(NamedTuple):
    """The place of a block: the index of its pass, from 0 or :data:`FINAL_PASS`, and its index in the pass, from 0."""

    pass_index: int
    block_index: int


FINAL_KEY = BlockKey(FINAL_PASS, 0)
"""The place of the only block of the pass over the fastest programs."""

OnBlock = Callable[[str, int, int], None]
"""A function called after each block with a description, the number of blocks done, and the total number of blocks."""


class Block(
    msgspec.Struct,
    frozen=True,
    rename={"pass_index": "pass", "block_index": "number", "failure_messages": "failed"},
):
    """A line of the journal: the readings from one block. If a block has several lines, the last one counts.

    Attributes:
        pass_index: The index of the pass; see :class:`BlockKey`.
        block_index: The index of the block in the pass.
        time: When it began, in seconds since the epoch.
        sentinel: The sentinel's median seconds in this block.
        seconds: The readings of each program; empty if it failed.
        failure_messages: The message of each program that failed, by its index in the block.
        programs: The hashes of the programs.
    """

    pass_index: int
    block_index: int
    time: float
    sentinel: float
    seconds: tuple[tuple[float, ...], ...]
    failure_messages: dict[int, str] = {}
    programs: tuple[str, ...] = ()

    @property
    def key(self) -> BlockKey:
        return BlockKey(self.pass_index, self.block_index)


@dataclass(frozen=True)
class ProgramReadings:
    """The readings of a program.

    Attributes:
        measured_at: When each reading was taken, in seconds since the start of the first pass.
        failure_message: The message, if the program failed.
    """

    seconds: tuple[float, ...] = ()
    measured_at: tuple[float, ...] = ()
    failure_message: str = ""


@dataclass
class PassTimer:
    """The timing of programs in passes. Raises SearchlabError if the journal is damaged or is for other programs.

    Attributes:
        trials: The successful trials, all with different programs.
        pass_count: The number of passes.
        readings_per_block: The number of readings of a program in a block; their median is one of its times in the
            table.
        seed: The seed for the orders.
        path: The path of the journal.
        repeated_block_count: The number of blocks that were timed again.
    """

    space: Space
    trials: Sequence[Trial]
    pass_count: int
    readings_per_block: int
    seed: int
    path: Path
    blocks: dict[BlockKey, Block] = field(default_factory=dict)
    repeated_block_count: int = 0

    def __post_init__(self) -> None:
        for block in read_journal(self.path, Block)[1]:
            expected_trials = None if block.pass_index == FINAL_PASS else self.list_block_trials(block.key)
            if expected_trials is not None and block.programs != self._list_hashes(expected_trials):
                raise SearchlabError(f"{self.path} contains timings for other programs; remove it and run this again")
            self.repeated_block_count += block.key in self.blocks
            self.blocks[block.key] = block

    @property
    def sentinel(self) -> Trial:
        """The trial of median cost."""
        return sorted(self.trials, key=lambda trial: trial.cost)[len(self.trials) // 2]

    def list_block_trials(self, key: BlockKey) -> list[Trial]:
        """Return the trials of a block that belongs to a pass over all programs."""
        order = np.random.default_rng([self.seed, key.pass_index]).permutation(len(self.trials))
        return [self.trials[i] for i in order[key.block_index * BLOCK_SIZE : (key.block_index + 1) * BLOCK_SIZE]]

    def time(self, measurer: Remeasurer, on_block: OnBlock = lambda *_: None) -> None:
        """Time the blocks that are missing from the journal, repeat those that deviate, and time the fastest programs.

        Raises SearchlabError if timings do not stabilise. A later call continues from the journal.
        """
        blocks_per_pass = math.ceil(len(self.trials) / BLOCK_SIZE)
        pass_keys = [
            BlockKey(pass_index, block_index)
            for pass_index in range(self.pass_count)
            for block_index in range(blocks_per_pass)
        ]
        with closing(Journal(self.path, Block)) as journal:
            for done_count, key in enumerate(pass_keys, 1):
                if key not in self.blocks:
                    self._time_block(measurer, journal, key)
                on_block(f"pass {key.pass_index + 1} of {self.pass_count}", done_count, len(pass_keys))
            self._repeat_until_steady(measurer, journal, pass_keys, on_block)

    def _repeat_until_steady(
        self, measurer: Remeasurer, journal: Journal[Block], pass_keys: Sequence[BlockKey], on_block: OnBlock
    ) -> None:
        """Repeat the blocks of passes that deviate and, once none does, time the fastest programs in turn.

        Raises SearchlabError if any block still deviates after :data:`MAX_TRIES` tries.
        """
        deviating_keys: list[BlockKey] = []
        for _ in range(MAX_TRIES):
            repeated_keys = self.find_deviating_blocks(pass_keys)
            for done_count, key in enumerate(repeated_keys, 1):
                self._time_block(measurer, journal, key)
                on_block("blocks that deviated, again", done_count, len(repeated_keys))
            deviating_keys = self.find_deviating_blocks(pass_keys)
            if not deviating_keys:
                self._time_fastest(measurer, journal)
                on_block("the fastest, in turn", 1, 1)
                # The last block may have moved the overall median.
                deviating_keys = self.find_deviating_blocks([*pass_keys, FINAL_KEY])
            if not deviating_keys:
                return
        ratios = [self.blocks[key].sentinel / self._usual_sentinel_seconds for key in deviating_keys]
        raise SearchlabError(
            f"the machine is not steady: after {MAX_TRIES} tries, {len(deviating_keys)} of {len(self.blocks)} blocks "
            f"still deviate, by a factor of up to {max(ratios, key=lambda ratio: abs(math.log(ratio))):.2f} from "
            f"the usual times; run this again when the machine is idle to repeat only these blocks"
        )

    def _time_fastest(self, measurer: Remeasurer, journal: Journal[Block]) -> None:
        """Time the fastest programs in turn, unless their readings are in the journal and do not deviate."""
        fastest = self.find_fastest()
        final = self.blocks.get(FINAL_KEY)
        is_current = final is not None and final.programs == self._list_hashes(fastest)
        if not is_current or self.find_deviating_blocks([FINAL_KEY]):
            self._time_block(measurer, journal, FINAL_KEY, fastest)

    def find_fastest(self) -> list[Trial]:
        """Return the trials of the fastest 2 % of the programs, but at least five, by their median over the passes."""
        seconds = self._collect_pass_readings()
        working = [trial for trial in self.trials if not seconds[trial.measurement.program].failure_message]
        working.sort(key=lambda trial: statistics.median(seconds[trial.measurement.program].seconds))
        return working[: max(5, math.ceil(FINAL_SHARE * len(self.trials)))]

    def find_deviating_blocks(self, keys: Iterable[BlockKey]) -> list[BlockKey]:
        """Return the blocks in ``keys`` in which the sentinel or, in the median, the programs deviate too much.

        The sentinel is compared with its median over all blocks, and a program with its median over all passes.
        """
        usual_sentinel_seconds = self._usual_sentinel_seconds
        readings_by_program = self._collect_pass_readings()
        usual_seconds = {
            program: statistics.median(r.seconds) for program, r in readings_by_program.items() if r.seconds
        }
        return [
            key
            for key in keys
            if abs(self.blocks[key].sentinel / usual_sentinel_seconds - 1) > MAX_DEVIATION
            or abs(_compute_median_ratio(self.blocks[key], usual_seconds) - 1) > MAX_DEVIATION
        ]

    @property
    def _usual_sentinel_seconds(self) -> float:
        return statistics.median(block.sentinel for block in self.blocks.values())

    def collect_readings(self) -> dict[str, ProgramReadings]:
        """Return each program's readings by hash: those from the passes or, for the fastest, those taken in turn."""
        result = self._collect_pass_readings()
        final = self.blocks[FINAL_KEY]
        for index, program in enumerate(final.programs):
            if index not in final.failure_messages:
                parts = np.array_split(final.seconds[index], self.pass_count)  # as many values as other programs have
                seconds = tuple(_round_to_five_digits(float(np.median(part))) for part in parts)
                result[program] = ProgramReadings(seconds, (round(final.time - self._start, 1),) * self.pass_count)
        return result

    def summarize(self) -> Passes:
        """Return the facts about the passes that the table's header records."""
        final = self.blocks[FINAL_KEY]
        blocks = sorted(self.blocks.values(), key=lambda block: block.time)
        sentinel = tuple((round(block.time - self._start, 1), block.sentinel) for block in blocks)
        return Passes(
            count=self.pass_count,
            block_size=BLOCK_SIZE,
            sentinel_readings=sentinel,
            repeated_block_count=self.repeated_block_count,
            finalist_count=len(final.programs),
            round_count=FINAL_ROUNDS,
        )

    @property
    def _start(self) -> float:
        return min(block.time for block in self.blocks.values())

    def _collect_pass_readings(self) -> dict[str, ProgramReadings]:
        timed_readings: dict[str, list[tuple[float, float]]] = {}
        failure_messages: dict[str, str] = {}
        for key, block in sorted(self.blocks.items()):
            if key.pass_index == FINAL_PASS or key.pass_index >= self.pass_count:
                continue
            for index, program in enumerate(block.programs):
                if index in block.failure_messages:
                    failure_messages[program] = block.failure_messages[index]
                else:
                    seconds = _round_to_five_digits(statistics.median(block.seconds[index]))
                    measured_at = round(block.time - self._start, 1)
                    timed_readings.setdefault(program, []).append((seconds, measured_at))
        results = {
            program: ProgramReadings(tuple(seconds for seconds, _ in readings), tuple(at for _, at in readings))
            for program, readings in timed_readings.items()
        }
        return results | {program: ProgramReadings(failure_message=text) for program, text in failure_messages.items()}

    def _time_block(
        self, measurer: Remeasurer, journal: Journal[Block], key: BlockKey, trials: Sequence[Trial] | None = None
    ) -> None:
        """Time a block and write it to the journal. Pass ``trials`` for a block that does not belong to a pass."""
        rounds = self.readings_per_block if trials is None else FINAL_ROUNDS
        trials = self.list_block_trials(key) if trials is None else trials
        start_time = time.time()
        failure_messages: dict[int, str] = {}
        try:
            seconds, sentinel_seconds = self._take_readings(measurer, trials, rounds)
        except CannotMeasure:  # time each program alone to find out which one fails
            seconds, sentinel_seconds = [], []
            for index, trial in enumerate(trials):
                try:
                    readings, sentinel_readings = self._take_readings(measurer, [trial], rounds)
                except CannotMeasure as error:
                    readings, sentinel_readings = [()], self._take_readings(measurer, [], rounds)[1]
                    failure_messages[index] = str(error)
                seconds += readings
                sentinel_seconds += sentinel_readings
        block = Block(
            *key,
            round(start_time, 2),
            _round_to_five_digits(statistics.median(sentinel_seconds)),
            tuple(tuple(map(_round_to_five_digits, values)) for values in seconds),
            failure_messages,
            self._list_hashes(trials),
        )
        self.repeated_block_count += key in self.blocks
        self.blocks[key] = block
        journal.append(block)

    def _take_readings(
        self, measurer: Remeasurer, trials: Sequence[Trial], rounds: int
    ) -> tuple[list[tuple[float, ...]], list[float]]:
        """Return the readings of each of ``trials``, and the readings of the sentinel between them.

        Raises CannotMeasure if one of ``trials`` fails, and SearchlabError if the sentinel does.
        """
        sequence = [self.sentinel]
        for start in range(0, len(trials), SENTINEL_INTERVAL):
            sequence += [*trials[start : start + SENTINEL_INTERVAL], self.sentinel]
        try:
            seconds = list(measurer.remeasure(self.space, sequence, rounds))
        except CannotMeasure as error:
            if trials:
                raise
            raise SearchlabError(
                f"the sentinel program now fails ({error}); remove {self.path.parent} and rebuild the table"
            ) from None
        sentinel_seconds = [value for values in seconds[:: SENTINEL_INTERVAL + 1] for value in values]
        if len(trials) % SENTINEL_INTERVAL:
            sentinel_seconds += seconds[-1]
        return [values for i, values in enumerate(seconds[:-1]) if i % (SENTINEL_INTERVAL + 1)], sentinel_seconds

    @staticmethod
    def _list_hashes(trials: Sequence[Trial]) -> tuple[str, ...]:
        return tuple(trial.measurement.program for trial in trials)


def _compute_median_ratio(block: Block, usual_seconds: Mapping[str, float]) -> float:
    """Return the median ratio of the times in ``block`` to the usual times of the same programs."""
    ratios = [
        statistics.median(seconds) / usual_seconds[program]
        for program, seconds in zip(block.programs, block.seconds, strict=True)
        if seconds and program in usual_seconds
    ]
    return statistics.median(ratios or [1.0])


def _round_to_five_digits(seconds: float) -> float:
    """Return ``seconds`` in five digits, which changes the value by at most a tenth of the noise."""
    return float(f"{seconds:.5g}")
