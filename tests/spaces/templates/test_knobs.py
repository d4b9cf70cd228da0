"""Splits, orders and annotations: what AutoTVM's policies list, in its order, and how it prints and writes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm.s_tir import Schedule

from searchlab.errors import InvalidConfig, SearchlabError
from searchlab.workload import gemm
from searchlab_spaces.templates.choices import list_gpu_bindings, list_interval_orders, list_splits, merge
from searchlab_spaces.templates.knobs import SplitKnob, TemplateConfig, TemplateKnob
from searchlab_spaces.tiles import list_divisors

extents = st.integers(1, 600)
parts = st.integers(1, 4)


def define_knob(define: Callable[[TemplateConfig, list[Any]], object], m: int = 12) -> TemplateKnob:
    """The one knob that ``define`` makes of the loops of a GEMM of m x 8 x 6."""
    sch = Schedule(gemm(m, 8, 6).module)
    cfg = TemplateConfig(sch)
    define(cfg, sch.get_loops(sch.get_sblock("gemm")))
    (knob,) = cfg.knobs.values()
    return knob


@given(extents, parts)
def test_factors_are_all_the_exact_splits_in_autotvm_s_order(extent: int, num_outputs: int) -> None:
    tiles = list_splits(extent, num_outputs)
    assert all(math.prod(tile) == extent for tile in tiles)
    assert len(set(tiles)) == len(tiles)
    # The innermost part varies slowest: reversed, and without the outermost, tiles are in lexicographic order.
    assert tiles == sorted(tiles, key=lambda tile: tile[:0:-1])
    # As many as there are ways to hand out each prime's exponent: stars and bars.
    primes = [p for p in list_divisors(extent) if len(list_divisors(p)) == 2]
    exponents = [max(e for e in range(1, 11) if extent % p**e == 0) for p in primes]
    assert len(tiles) == math.prod(math.comb(e + num_outputs - 1, num_outputs - 1) for e in exponents)


@given(st.integers(1, 100), st.integers(2, 3), st.sampled_from(["power2", "verbose"]), st.integers(1, 64))
def test_other_policies_waste_less_than_one_iteration(extent: int, num_outputs: int, policy: str, most: int) -> None:
    tiles = list_splits(extent, num_outputs, policy, max_factor=most)
    powers = {1 << i for i in range(10)}
    allowed = {
        f for f in (powers if policy == "power2" else powers | set(list_divisors(extent))) if f <= min(most, extent)
    }
    expected = {i for i in itertools.product(allowed, repeat=num_outputs - 1) if math.prod(i) <= extent}
    assert {tile[1:] for tile in tiles} == expected
    assert len(tiles) == len(expected)
    assert tiles == sorted(tiles, key=lambda tile: tile[:0:-1])
    for tile in tiles:
        assert (tile[0] - 1) * math.prod(tile[1:]) < extent <= math.prod(tile)
    exact = list_splits(extent, num_outputs, policy, max_factor=most, no_tail=True)
    assert exact == [tile for tile in tiles if math.prod(tile) == extent]


def test_splits_written_out() -> None:
    assert list_splits(4, 3) == [(4, 1, 1), (2, 2, 1), (1, 4, 1), (2, 1, 2), (1, 2, 2), (1, 1, 4)]
    assert list_splits(6, 2) == [(6, 1), (3, 2), (2, 3), (1, 6)]
    assert list_splits(6, 2, "power2") == [(6, 1), (3, 2), (2, 4)]
    assert list_splits(6, 2, "verbose") == [(6, 1), (3, 2), (2, 3), (2, 4), (1, 6)]
    assert list_splits(6, 2, max_factor=2) == [(6, 1), (3, 2)]
    assert list_splits(7, 1) == [(7,)]
    assert len(list_splits(512, 4)) == 220
    # Factors of 6 whose products do not divide it: AutoTVM's no_tail=False.
    exact = list_splits(6, 3)
    loose = list_splits(6, 3, no_tail=False)
    assert [tile for tile in loose if tile not in exact] == [(2, 2, 2)]


def test_split_of_a_loop_with_a_filter() -> None:
    knob = define_knob(lambda cfg, loops: cfg.define_split("t", loops[0], 2, filter=lambda split: split.size[-1] > 3))
    assert list(knob.choices) == [(3, 4), (2, 6), (1, 12)]
    assert str(knob) == "Split(policy=factors, product=12, num_outputs=2) len=3"


def test_candidates_are_made_to_cover_the_loop() -> None:
    tiles = [[-1, 4], [2, 6], [1, 12], [3, 4], [-1, 5]]
    knob = define_knob(lambda cfg, loops: cfg.define_split("t", loops[0], 2, "candidate", candidate=tiles))
    assert list(knob.choices) == [(3, 4), (2, 6), (1, 12), (3, 5)]
    assert [knob.to_entity(choice) for choice in knob.choices] == [[-1, 4], [-1, 6], [-1, 12], [-1, 5]]


@pytest.mark.parametrize(
    ("define", "reason"),
    [
        (lambda cfg, loops: cfg.define_split("t", loops[0], 2, "power"), "split policy 'power'; did you mean 'power2'"),
        (lambda cfg, loops: cfg.define_split("t", loops[0], 2, "candidate", candidate=[[2, 3]]), "does not split"),
        (lambda cfg, loops: cfg.define_split("t", loops[0], 2, "candidate", candidate=[[-1, 0]]), "does not split"),
        (lambda cfg, loops: cfg.define_split("t", loops[0], 2, "candidate", candidate=[[1, 3, 4]]), "must have 2"),
        (lambda cfg, loops: cfg.define_split("t", loops[0], 2, filter=lambda split: False), "no legal choice"),
        (lambda cfg, loops: cfg.define_knob("t", []), "no legal choice"),
        (lambda cfg, loops: cfg.define_split("t", loops[0], "power2"), "num_outputs is 'power2'; it must be a whole"),
        (lambda cfg, loops: cfg.define_split("t", loops[0], 0), "num_outputs is 0; it must be"),
        (lambda cfg, loops: cfg.define_split("t", cfg.define_split("a", 4, 2)[0], 2), "must not depend on choices"),
        (lambda cfg, loops: cfg.define_reorder("t", loops, "interlave"), "did you mean 'interleave'"),
        (lambda cfg, loops: cfg.define_reorder("t", loops, "interleave"), "must not repeat a loop"),
        (lambda cfg, loops: cfg.define_reorder("t", loops, "interval_all"), "the interval None must have the form"),
        (lambda cfg, loops: cfg.define_reorder("t", loops, "interval_all", interval=(1, 4)), r"the interval \(1, 4\)"),
        (lambda cfg, loops: cfg.define_reorder("t", loops[:2], "candidate", candidate=[loops]), "not one of its 2"),
        (
            lambda cfg, loops: cfg.define_reorder("t", loops, "candidate", candidate=[loops[:1] * 2]),
            "not repeat a loop",
        ),
        (lambda cfg, loops: cfg.define_annotate("t", loops, "bind_cpu"), "annotate policy 'bind_cpu'; .*'bind_gpu'"),
        (lambda cfg, loops: cfg.define_annotate("t", loops[:1], "bind_gpu"), "requires at least 2 loops, not 1"),
        (lambda cfg, loops: cfg.define_annotate("t", loops, "locate_cache"), "requires num_anchor"),
        (lambda cfg, loops: cfg.define_annotate("t", loops, "locate_cache", num_anchor=4), "no legal choice"),
        (lambda cfg, loops: cfg.define_annotate("t", loops[:2], "vec"), "no legal choice"),
        (lambda cfg, loops: [cfg.define_knob("t", [1]), cfg.define_knob("t", [2])], "knob 't' twice"),
        (
            lambda cfg, loops: [cfg.define_knob("tile", [1]), cfg["tiel"]],
            "knob 'tiel', which it does not define; did you mean 'tile'",
        ),
    ],
)
def test_an_invalid_definition_is_refused_with_the_reason(
    define: Callable[[TemplateConfig, list[Any]], None], reason: str
) -> None:
    with pytest.raises(SearchlabError, match=reason):
        define_knob(define)


def test_all_orders_of_loops_are_choices() -> None:
    knob = define_knob(lambda cfg, loops: cfg.define_reorder("order", loops, "all"))
    assert list(knob.choices) == list(itertools.permutations(range(3)))
    assert str(knob) == "Reorder(policy=all) len=6"
    knob = define_knob(lambda cfg, ls: cfg.define_reorder("o", ls, "candidate", candidate=[ls, [ls[2], ls[0], ls[1]]]))
    assert list(knob.choices) == [(0, 1, 2), (2, 0, 1)]
    assert knob.to_entity((2, 0, 1)) == [2, 0, 1]


def test_intervals_may_be_ordered_before_their_parts_exist() -> None:
    def define(cfg: TemplateConfig, loops: list[Any]) -> None:
        y = cfg.axis(loops[0])
        x = cfg.axis(8)
        assert (y.length, x.length) == (12, 8)
        cfg.define_reorder("o", [y, *loops[1:], x], "interval_all", interval=(1, 3))

    assert list(define_knob(define).choices) == [(0, 1, 2, 3), (0, 2, 1, 3)]
    assert list(define_knob(lambda cfg, loops: cfg.define_reorder("o", loops, "identity")).choices) == [(0, 1, 2)]
    candidates = define_knob(
        lambda cfg, loops: cfg.define_reorder("o", loops, "candidate", candidate=[loops, loops[:0:-1]])
    )
    assert list(candidates.choices) == [(0, 1, 2), (2, 1)]


@pytest.mark.parametrize(
    ("policy", "order"),
    [  # by hand: always the next of the longest chain, the first of these
        ("interleave", "y0 x0 y1 x1 k0 y2 x2 k1"),
        ("interleave_cuda", "y0 x0 y1 x1 k0 k1 y2 x2"),
    ],
)
def test_interleaved_chains_are_one_order(policy: str, order: str) -> None:
    sch = Schedule(gemm(12, 8, 6).module)
    cfg = TemplateConfig(sch)
    y, x, k = sch.get_loops(sch.get_sblock("gemm"))
    ys, xs, ks = cfg.define_split("y", y, 3), cfg.define_split("x", x, 3), cfg.define_split("k", k, 2)
    axes = dict(zip(["y0", "y1", "y2", "x0", "x1", "x2", "k0", "k1"], [*ys, *xs, *ks], strict=True))
    reordered = cfg.define_reorder("o", list(axes.values()), policy, spatial=[ys, xs], reduce=[ks])
    assert len(reordered) == len(axes)
    (perm,) = cfg.knobs["o"].choices
    assert " ".join(list(axes)[index] for index in perm) == order  # type: ignore[union-attr]
    assert str(cfg.knobs["o"]) == f"Reorder(policy={policy}) len=1"


@given(st.lists(st.integers(0, 3), max_size=3))
def test_merged_chains_take_from_the_longest_chain(lengths: list[int]) -> None:
    chains = [tuple((number, step) for step in range(length)) for number, length in enumerate(lengths)]
    tiles = []
    for order in set(itertools.permutations([number for number, length in enumerate(lengths) for _ in range(length)])):
        remaining = list(lengths)
        for number in order:
            if remaining[number] != max(remaining) or number != remaining.index(max(remaining)):
                break
            remaining[number] -= 1
        else:
            steps = {number: iter(range(length)) for number, length in enumerate(lengths)}
            tiles.append(tuple((number, next(steps[number])) for number in order))
    assert tiles == [merge(chains)]  # type: ignore[arg-type]


@given(st.integers(0, 5), st.data())
def test_intervals_are_the_orders_that_keep_the_rest(count: int, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, count))
    end = data.draw(st.integers(begin, count))
    orders = itertools.permutations(range(count))
    assert list_interval_orders(count, begin, end) == [
        o for o in orders if all(o[i] == i for i in {*range(begin), *range(end, count)})
    ]


@pytest.mark.parametrize(
    ("policy", "count", "words"),
    [
        ("bind_gpu", 2, "blockIdx.x threadIdx.x"),
        ("bind_gpu", 3, "fuse blockIdx.x threadIdx.x"),
        ("bind_gpu", 5, "fuse blockIdx.y blockIdx.x threadIdx.y threadIdx.x"),
        ("bind_gpu", 8, "fuse fuse blockIdx.z blockIdx.y blockIdx.x threadIdx.z threadIdx.y threadIdx.x"),
        ("bind_gpu_virtual", 3, "blockIdx.x vthread threadIdx.x"),
        ("bind_gpu_virtual", 5, "fuse fuse blockIdx.x vthread threadIdx.x"),
        ("bind_gpu_virtual", 6, "blockIdx.y blockIdx.x vthread vthread threadIdx.y threadIdx.x"),
        (
            "bind_gpu_virtual",
            10,
            "fuse blockIdx.z blockIdx.y blockIdx.x vthread vthread vthread threadIdx.z threadIdx.y threadIdx.x",
        ),
    ],
)
def test_gpu_bindings_are_the_choices(policy: str, count: int, words: str) -> None:
    assert list_gpu_bindings(count, policy) == words.split()
    knob = define_knob(lambda cfg, loops: cfg.define_annotate("a", list(range(count)), policy))
    assert [knob.to_entity(choice) for choice in knob.choices] == [words.split()]


def test_positions_of_caches_are_the_choices() -> None:
    knob = define_knob(lambda cfg, loops: cfg.define_annotate("a", [*loops, 4], "locate_cache", num_anchor=2))
    assert [knob.to_entity(choice) for choice in knob.choices] == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert [knob.from_entity(knob.to_entity(choice)) for choice in knob.choices] == list(knob.choices)
    assert str(knob) == "Annotate(policy=locate_cache) len=6" and knob.kind == "word"


@pytest.mark.parametrize(
    ("policy", "count", "choices"),
    [
        ("none", 2, ["none,none"]),
        ("none_unroll", 1, ["none", "unroll"]),
        ("try_vec_unroll", 1, ["none", "vec", "unroll"]),
        ("unroll_vec", 2, ["unroll,unroll", "unroll,vec", "vec,unroll"]),
        ("unroll", 2, ["unroll,unroll"]),
        ("vec", 1, ["vec"]),
        ("try_unroll", 2, ["none,none", "none,unroll", "unroll,none", "unroll,unroll"]),
        ("try_vec", 2, ["none,none", "none,vec", "vec,none"]),
        ("try_unroll_vec", 1, ["none", "unroll", "vec"]),
    ],
)
def test_annotations_of_loops_are_choices(policy: str, count: int, choices: list[str]) -> None:
    knob = define_knob(lambda cfg, loops: cfg.define_annotate("ann", loops[:count], policy))
    assert list(knob.choices) == choices
    assert knob.to_entity(choices[-1]) == choices[-1].split(",")


@given(extents, parts, st.data())
def test_entities_read_back(extent: int, num_outputs: int, data: st.DataObject) -> None:
    knob = SplitKnob("t", list_splits(extent, num_outputs), "factors", extent, num_outputs)
    tile = data.draw(st.sampled_from(knob.choices))
    entity = knob.to_entity(tile)
    assert entity[0] == -1
    assert knob.from_entity(entity) == tile
    assert knob.from_entity(list(tile)) == tile  # AutoTVM's logs of listed candidates have all parts


@pytest.mark.parametrize("name", ["order", "ann", "opt"])
def test_other_entities_read_back(name: str) -> None:
    sch = Schedule(gemm(4, 4, 4).module)
    cfg = TemplateConfig(sch)
    loops = sch.get_loops(sch.get_sblock("gemm"))
    cfg.define_reorder("order", loops)
    cfg.define_annotate("ann", loops, "try_unroll_vec")
    cfg.define_knob("opt", [1, "word", True])
    knob = cfg.knobs[name]
    assert [knob.from_entity(knob.to_entity(choice)) for choice in knob.choices] == list(knob.choices)


def test_annotations_have_limits() -> None:
    sch = Schedule(gemm(12, 8, 6).module)
    cfg = TemplateConfig(sch, {"ann": "unroll,vec"})
    loops = sch.get_loops(sch.get_sblock("gemm"))[:2]
    cfg.define_annotate("ann", loops, "try_unroll_vec")
    with pytest.raises(InvalidConfig, match="unrolls a loop of extent 12, but the template allows at most 8"):
        cfg["ann"].apply(sch, loops, max_unroll=8)
    with pytest.raises(InvalidConfig, match=r"vectorises a loop of extent 8, but the template allows only \[4, 16\]"):
        cfg["ann"].apply(sch, loops, vec_size=[4, 16])
