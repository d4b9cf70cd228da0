"""Policies based on minimisers of functions of real numbers, such as ``scipy.optimize.dual_annealing``.

Such a minimiser calls its function, whereas a policy is asked for configs. It therefore runs in a separate thread,
which waits while the config at a point is measured. Only one of the two runs at a time, so timing has no influence.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

import numpy as np

from searchlab.arrays import Floats
from searchlab.errors import SearchlabError
from searchlab.policy import NeverTwice, private_rng
from searchlab.records import SHORTEST, Trial
from searchlab.space import Config, Space

from .unit_cube import UnitCube

FAILURE_VALUE = 10.0
"""The value of a failed trial; that of a successful one is the logarithm of its cost in seconds."""

MAX_CALLS, MAX_CALLS_WITH_PROGRAMS = 1024, 64
"""The maximum number of consecutive calls for known configs per ask, if no programs must be built and if they must."""

Objective = Callable[[Floats], float]


class Box:
    """The box that a minimiser searches: one dimension for each knob with several choices, all equally wide.

    Source: Kernel Tuner, ``CostFunc.get_bounds_x0_eps`` with scaling. The knob with the most choices spans [0, 1].

    Attributes:
        step: The width of a choice.
        bounds: The lower and upper bound of each dimension.
    """

    def __init__(self, space: Space) -> None:
        self._cube = UnitCube(space)
        choice_counts = np.array(list(self._cube.choice_counts.values()), dtype=float)
        self._is_open = choice_counts > 1
        self.step = float(1 / choice_counts.max(initial=1))
        self._widths = choice_counts[self._is_open] * self.step
        self.bounds = [(0.0, float(width)) for width in self._widths]

    def to_config(self, x: Floats) -> Config:
        """Return the config at a point, which may be outside the box."""
        point = np.full(len(self._is_open), 0.5)
        point[self._is_open] = np.asarray(x) / self._widths
        return self._cube.to_config(point)

    def to_point(self, config: Config) -> Floats:
        """Return the centre of the part of the box that corresponds to a config."""
        return self._cube.to_point(config)[self._is_open] * self._widths


class Minimise(Protocol):
    """Minimises a function over a box, from a starting point, with random numbers from a generator.

    The result must depend only on the arguments, and the function must be called at least once.
    """

    def __call__(self, objective: Objective, /, *, box: Box, start: Floats, rng: np.random.Generator) -> object: ...


class Minimiser(NeverTwice):
    """A policy that proposes the configs for which a minimiser calls its function.

    A minimiser needs each value before its next call. If a batch has several configs, each comes from a separate run
    with different random numbers. Configs that are known are not measured again. A run that ends is followed by
    another. With a warm start, the first run starts from the fastest trial.

    Args:
        minimise: The minimiser.
    """

    def __init__(self, space: Space, *, seed: int, minimise: Minimise) -> None:
        super().__init__(space, seed=seed)
        self._minimise = minimise
        self._box = Box(space)
        self._values: dict[Config, float] = {}
        self._start_config: Config | None = None
        self._run_sequences: list[MinimiserRuns] = []

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        if not self._box.bounds:
            return
        for run_number in range(n):
            if run_number == len(self._run_sequences):
                start = self._start_config if run_number == 0 else None
                self._run_sequences.append(
                    MinimiserRuns(self._minimise, self._box, self.space, self.seed, run_number, start)
                )
            config = self._run_sequences[run_number].find_next_unknown(self._values)
            if config is not None:
                yield config

    def warm_start(self, trials: Sequence[Trial]) -> None:
        super().warm_start(trials)
        self._start_config = min(self.trials, key=lambda trial: trial.cost).config if self.trials else None

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        for trial in trials:
            if trial.config in self.seen:
                cost = max(trial.cost, SHORTEST)
                self._values[trial.config] = math.log(cost) if math.isfinite(cost) else FAILURE_VALUE


class MinimiserRuns:
    """A sequence of runs of a minimiser.

    Args:
        minimise: The minimiser.
        box: The box to search.
        space: The space to search.
        seed: The policy's seed.
        number: The number that distinguishes these runs from others with the same seed.
        start: The config from which the first run starts; None for a random one, like those of later runs.
    """

    def __init__(
        self, minimise: Minimise, box: Box, space: Space, seed: int, number: int, start: Config | None
    ) -> None:
        self._arguments = (minimise, box, space, seed, number, start)
        self._max_calls = MAX_CALLS_WITH_PROGRAMS if space.builds_programs else MAX_CALLS
        self._answered_count = 0  # the number of calls that have returned
        self._configs: Generator[Config, float, None] | None = None

    def find_next_unknown(self, values: Mapping[Config, float]) -> Config | None:
        """Continue while values are known; return the first config without one, or None after many known configs."""
        limit = self._max_calls
        if self._configs is None:
            limit += self._answered_count  # a copy repeats these calls
            self._answered_count = 0
            self._configs = call_minimiser(*self._arguments)
            self._latest_config = next(self._configs)  # the config of the latest call
        for _ in range(limit):
            if self._latest_config not in values:
                return self._latest_config
            self._latest_config = self._configs.send(values[self._latest_config])
            self._answered_count += 1
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_configs": None}


def call_minimiser(
    minimise: Minimise, box: Box, space: Space, seed: int, number: int, start: Config | None
) -> Generator[Config, float, None]:
    """Yield the config of each call in a :class:`MinimiserRuns`, and receive the config's value."""
    for attempt in count():
        rng = private_rng(seed, "minimiser", number, attempt)
        config = start if attempt == 0 and start is not None else space.sample(rng)
        calls = Calls(partial(minimise, box=box, start=box.to_point(config), rng=rng))
        point = calls.wait_for_first()
        if point is None:
            raise SearchlabError("the minimiser ended without calling its function, which it must call at least once")
        while point is not None:
            value = yield box.to_config(point)
            point = calls.answer_and_wait(value)


class Calls:
    """The calls that a minimiser makes in a separate thread, which waits for the value of each.

    The thread ends with the minimiser, or when this object is no longer referenced.

    Args:
        minimise: The minimiser, whose only argument is its function.
    """

    def __init__(self, minimise: Callable[[Objective], object]) -> None:
        self._points: SimpleQueue[Floats | BaseException | None] = SimpleQueue()
        self._values: SimpleQueue[float | None] = SimpleQueue()
        thread = Thread(target=_run_minimiser, args=(minimise, self._points, self._values), daemon=True)
        thread.start()
        weakref.finalize(self, _stop_thread, thread, self._values)

    def wait_for_first(self) -> Floats | None:
        """Return the point of the first call, or None if the minimiser ended without one."""
        return self._receive_point()

    def answer_and_wait(self, value: float) -> Floats | None:
        """Return ``value`` to the minimiser; return the point of its next call, or None if it ends."""
        self._values.put(value)
        return self._receive_point()

    def _receive_point(self) -> Floats | None:
        point = self._points.get()
        if isinstance(point, BaseException):
            raise point
        return point


class _Closed(BaseException):  # not an Exception, which a minimiser might catch
    pass


def _stop_thread(thread: Thread, values: SimpleQueue[float | None]) -> None:
    values.put(None)
    thread.join()


def _run_minimiser(
    minimise: Callable[[Objective], object],
    points: SimpleQueue[Floats | BaseException | None],
    values: SimpleQueue[float | None],
) -> None:
    def objective(x: Floats, *_: Any) -> float:
        points.put(np.array(x, dtype=float))
        value = values.get()
        if value is None:
            raise _Closed
        return value

    try:
        minimise(objective)
        points.put(None)
    except _Closed:
        pass
    except BaseException as error:  # raised in the thread that waits for the next call
        points.put(error)
