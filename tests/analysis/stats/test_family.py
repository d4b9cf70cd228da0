from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.analysis.stats.ranks import RESERVED, Gate, graphical, holm, one_family

pages = st.dictionaries(st.integers(0, 50), st.floats(0, 1), min_size=1, max_size=12)


def gates_of(pairs: int, workloads: int, wider: bool) -> list[Gate[tuple[int, str]]]:
    """Contrasts as a report has them: a test over all workloads, one on workloads like these, and single workloads."""
    return [
        Gate((pair, "all"), [[(pair, "like these")]] * wider + [[(pair, str(number)) for number in range(workloads)]])
        for pair in range(pairs)
    ]


@given(pages)
def test_without_gates_it_is_holms(page: dict[int, float]) -> None:
    assert list(one_family(page).values()) == holm(np.array(list(page.values()))).tolist()
    gated = one_family(page, [Gate(key) for key in page])
    assert list(gated.values()) == pytest.approx(list(one_family(page).values())), "as it is where each is a gate"


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_the_graph_of_equal_tests_is_holms(values: list[float]) -> None:
    n = len(values)
    adjusted = graphical(values, np.full(n, 1 / n), (1 - np.eye(n)) / (n - 1))
    assert adjusted == pytest.approx(holm(np.array(values)))


@given(pages, st.data())
def test_adjusted_values_never_fall_below_the_p_values(page: dict[int, float], data: st.DataObject) -> None:
    gated = data.draw(st.lists(st.sampled_from(sorted(page)), unique=True))
    cut = data.draw(st.integers(0, len(gated)))
    gates = [Gate(key, [group]) for key, group in zip(gated[:1], [gated[1:cut]], strict=False)]
    gates += [Gate(None, [gated[max(1, cut) :]])]
    adjusted = one_family(page, gates)
    assert list(adjusted) == list(page)
    assert all(page[key] <= adjusted[key] + 1e-12 <= 1 + 1e-12 for key in page)


def test_a_registered_contrast_is_one_test() -> None:
    page = {"all": 0.03, **{f"workload {i}": 0.001 for i in range(20)}, **{f"other {i}": 0.2 for i in range(50)}}
    assert one_family(page)["all"] == 1
    gates = [Gate("all", [[f"workload {i}" for i in range(20)]])]
    adjusted = one_family(page, gates)
    assert adjusted["all"] == pytest.approx(0.03 / RESERVED), "however many workloads lie behind it"
    assert adjusted["workload 0"] == pytest.approx(0.03 / RESERVED), "not before the test in front"
    shut = one_family(page | {"all": 0.9}, gates)
    assert min(value for key, value in shut.items() if key.startswith("workload")) == 1


def test_a_rejected_gate_leaves_its_level_to_the_next() -> None:
    gates = [Gate("first"), Gate("second")]
    assert one_family({"first": 0.001, "second": 0.03, "other": 1.0}, gates)["second"] == pytest.approx(0.03 / RESERVED)
    behind = [Gate("first", [["a", "b"]]), Gate("second")]
    page = {"first": 0.001, "second": 0.9, "a": 0.004, "b": 0.9, "other": 1.0}
    assert one_family(page, behind)["a"] == pytest.approx(0.004 / RESERVED / 0.5 / 0.5 * 2)
    exhausted = page | {"second": 0.03, "a": 0.002, "b": 0.002}
    assert one_family(exhausted, behind)["second"] == pytest.approx(0.03 / RESERVED, rel=1e-5)


def test_exploratory_tests_get_alpha_when_all_gates_are_rejected() -> None:
    page = {"registered": 0.001, "other": 0.03}
    assert one_family(page, [Gate("registered")])["other"] == pytest.approx(0.03)
    assert one_family(page | {"registered": 0.9}, [Gate("registered")])["other"] == pytest.approx(0.03 / (1 - RESERVED))


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="registered, but not tested: b"):
        one_family({"a": 0.1}, [Gate("b")])
    with pytest.raises(ValueError, match="belongs to two gates"):
        one_family({"a": 0.1}, [Gate("a"), Gate(None, [["a"]])])


@pytest.mark.parametrize("pairs, workloads, others, wider", [(0, 0, 20, False), (1, 3, 0, False), (3, 5, 20, True)])
@pytest.mark.parametrize("true", [False, True])
def test_a_page_alarms_as_seldom_as_one_test(pairs: int, workloads: int, others: int, wider: bool, true: bool) -> None:
    """A small version of studies/benchmarks/alarms.py; ``true``: the tests in front are of something."""
    random = np.random.default_rng(0)
    gates = gates_of(pairs, workloads, wider)
    keys = [key for gate in gates for key in gate.keys] + [(-1, str(number)) for number in range(others)]
    front = {gate.first for gate in gates} if true else set()
    alarms = []
    for p in random.random((1500, len(keys))).tolist():
        page = {key: 1e-9 if key in front else value for key, value in zip(keys, p, strict=True)}
        alarms.append(min(value for key, value in one_family(page, gates).items() if key not in front) <= 0.05)
    assert 0.02 <= np.mean(alarms) <= 0.067


def test_the_graph_is_coherent() -> None:
    """A smaller p-value of one test never makes any adjusted value larger."""
    gates = gates_of(2, 2, True)
    keys = [key for gate in gates for key in gate.keys]
    random = np.random.default_rng(1)
    for values, place in product(random.random((40, len(keys))) ** 2, range(len(keys))):
        page = dict(zip(keys, values.tolist(), strict=True))
        lower = page | {keys[place]: page[keys[place]] / 3}
        before, after = one_family(page, gates), one_family(lower, gates)
        assert all(after[key] <= before[key] + 1e-9 for key in keys)
