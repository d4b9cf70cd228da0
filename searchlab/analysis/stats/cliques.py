"""Groups in a graph in which everything is joined to everything."""

from __future__ import annotations


def cliques(count: int, edges: set[tuple[int, int]]) -> list[list[int]]:
    """Maximal cliques of two or more among ``count`` vertices, in order; ``edges`` as (lower, higher).

    Bron and Kerbosch, "Algorithm 457: finding all cliques of an undirected graph", CACM 16(9), 1973, first version.
    """
    near = [{j for j in range(count) if (min(i, j), max(i, j)) in edges} for i in range(count)]
    largest: list[list[int]] = []

    def extend(clique: list[int], candidates: set[int], done: set[int]) -> None:
        if not candidates and not done and len(clique) > 1:
            largest.append(clique)
        for vertex in sorted(candidates):
            extend([*clique, vertex], candidates & near[vertex], done & near[vertex])
            candidates = candidates - {vertex}
            done = done | {vertex}

    extend([], set(range(count)), set())
    return sorted(largest)
