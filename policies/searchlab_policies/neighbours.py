"""The neighbourhoods of a config, for local searches: all configs at a Hamming distance of one, or all adjacent ones.

:meth:`searchlab.Space.neighbours` repairs every config that a constraint forbids, so the result may differ in many
knobs. Here, such a config is not a neighbour, as in Kernel Tuner (``Searchspace.get_neighbors``, method ``Hamming``). A
knob that cannot be changed alone, such as a choice of sketch, is changed together with the knobs that depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from searchlab.space import Config, Knob, Space, Value


def vary_knob(
    space: Space, config: Config, knob: Knob, rng: np.random.Generator, values: Iterable[Value] | None = None
) -> Iterator[Config]:
    """Yield ``config`` with each other value of one knob.

    Args:
        space: The space that contains ``config``.
        config: The config whose neighbours to generate.
        knob: One of ``space.knobs(config)``.
        rng: The source of randomness for repairs, if the knob cannot be changed alone.
        values: The values to try, in this order; by default, all choices of the knob.
    """
    can_change_alone, repaired_configs = False, []
    current_values = dict(config.items())  # faster than {**config}, which looks up each key
    for value in knob.choices if values is None else values:
        if value != config[knob.name]:
            changed_config = space.repair({**current_values, knob.name: value}, rng)
            if hamming_distance(config, changed_config) == 1:
                can_change_alone = True
                yield changed_config
            elif not can_change_alone and changed_config != config:
                repaired_configs.append(changed_config)
    if not can_change_alone:
        yield from dict.fromkeys(repaired_configs)


def draw_neighbour(space: Space, config: Config, rng: np.random.Generator) -> Config:
    """Draw a neighbour uniformly; return ``config`` itself if it has none."""
    changes = [(knob, value) for knob in space.knobs(config) for value in knob.choices if value != config[knob.name]]
    for i in rng.permutation(len(changes)).tolist():
        knob, value = changes[i]
        changed_config = next(vary_knob(space, config, knob, rng, [value]), config)
        if hamming_distance(config, changed_config) == 1 or (
            changed_config != config
            and all(hamming_distance(config, change) > 1 for change in vary_knob(space, config, knob, rng))
        ):
            return changed_config
    return config


def draw_adjacent(space: Space, config: Config, rng: np.random.Generator, tries: int = 50) -> Config:
    """Draw uniformly from the configs in which each knob has the same, the previous or the next choice.

    Adjacency follows the order of the knob's choices, whatever the kind of knob. Illegal configs are drawn again. After
    ``tries`` draws, the last one is repaired, which yields ``config`` itself if there is no other. Source: Kernel
    Tuner's ``Searchspace.get_neighbors``, method ``strictly-adjacent``.
    """
    knobs = space.knobs(config)
    positions = [knob.choices.index(config[knob.name]) for knob in knobs]
    candidate = config
    for _ in range(tries):
        values = {}
        for knob, position in zip(knobs, positions, strict=True):
            low, high = max(0, position - 1), min(len(knob.choices), position + 2)
            values[knob.name] = knob.choices[int(rng.integers(low, high))]
        candidate = space.repair(values, rng)
        if candidate != config and candidate == Config.wrap(values):
            break
    return candidate


def draw_neighbours(space: Space, config: Config, neighbourhood: str, n: int, rng: np.random.Generator) -> list[Config]:
    """Draw at most ``n`` distinct neighbours of one of Kernel Tuner's kinds.

    In Kernel Tuner, ``strictly-adjacent`` and ``adjacent`` neighbours differ only if some choices do not occur in any
    config. Here, they are the same.
    """
    draw = draw_neighbour if neighbourhood == "Hamming" else draw_adjacent
    neighbours = dict.fromkeys(draw(space, config, rng) for _ in range(n))
    for _ in range(n):
        if len(neighbours) < n:
            neighbours[draw(space, config, rng)] = None
    neighbours.pop(config, None)
    return list(neighbours)


def perturb(space: Space, config: Config, steps: int, rng: np.random.Generator) -> Config:
    """Take ``steps`` steps from ``config``, each to a random :func:`neighbour`; a knob may change more than once."""
    for _ in range(steps):
        config = draw_neighbour(space, config, rng)
    return config


def hamming_distance(a: Config, b: Config) -> int:
    """Return the Hamming distance: the number of knobs whose values differ, or which only one config has."""
    return len({name for name, _ in a.items() ^ b.items()})


def generate_step_neighbours(space: Space, config: Config, rng: np.random.Generator) -> Iterator[Config]:
    """Yield each neighbour of ``config`` that is one step away along a knob; see :meth:`searchlab.Knob.adjacent`."""
    for knob in space.knobs(config):
        yield from vary_knob(space, config, knob, rng, knob.adjacent(config[knob.name]))


def draw_near(space: Space, config: Config, radius: int, rng: np.random.Generator) -> Config:
    """Draw a config that differs from ``config`` in 1 to ``radius`` knobs, each up to ``radius`` steps away.

    The steps are those of :meth:`searchlab.Knob.adjacent`. A config that a constraint forbids is repaired, and may then
    differ in more knobs.
    """
    knobs = [knob for knob in space.knobs(config) if len(knob.choices) > 1]
    if not knobs:
        return config
    values = dict(config)
    for i in rng.permutation(len(knobs))[: int(rng.integers(1, radius + 1))].tolist():
        for _ in range(int(rng.integers(1, radius + 1))):
            adjacent_choices = knobs[i].adjacent(values[knobs[i].name])
            values[knobs[i].name] = adjacent_choices[int(rng.integers(len(adjacent_choices)))]
    return space.repair(values, rng)
