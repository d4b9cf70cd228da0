from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from searchlab.stats.ranks import cliques


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.sampled_from([*combinations(range(n), 2), (0, 0)])))
    )
)
def test_cliques_are_the_maximal_ones(graph: tuple[int, set[tuple[int, int]]]) -> None:
    count, edges = graph[0], graph[1] - {(0, 0)}
    complete = [
        set(group)
        for size in range(2, count + 1)
        for group in combinations(range(count), size)
        if set(combinations(group, 2)) <= edges
    ]
    maximal = [group for group in complete if not any(group < other for other in complete)]
    assert cliques(count, edges) == sorted(sorted(group) for group in maximal)


def test_many_vertices_that_are_all_adjacent_are_one_clique() -> None:
    """Without a pivot, the time would double with each vertex."""
    assert cliques(40, {*combinations(range(40), 2)}) == [[*range(40)]]
