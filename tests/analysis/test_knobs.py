"""Which knobs matter, with Optuna as the reference implementation, and how good their values are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import optuna
import pytest

from searchlab import compare
from searchlab.analysis.knobs import MAX_VALUES, MeasuredSpace, estimate_density
from searchlab.errors import SearchlabError
from tests.support.analysis.logs import WORKLOAD, write


def costs(number: int, seed: int = 0) -> dict[bytes, list[float]]:
    """The tile decides most, the unroll factor a bit, the order nothing; one tile always fails."""
    random = np.random.default_rng(seed)
    by_config = {}
    for _ in range(number):
        tile, unroll, order = random.integers(1, 6), random.integers(0, 3), str(random.choice(["ij", "ji"]))
        cost = 2.0**tile + 0.5 * unroll + random.random() / 10 if tile < 5 else np.inf
        config = {"tile": [int(tile), 1], "unroll": int(unroll), "order": order, "only": 1}
        by_config[msgspec.json.encode(config)] = [float(cost)]
    return by_config


@pytest.mark.parametrize("number", [5, 40, 400])
def test_importances_are_those_of_optuna(number: int) -> None:
    by_config = costs(number, seed=number)
    space = MeasuredSpace.from_costs("knob", by_config, flops=10**9)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    choices = {knob: sorted(set(values)) for knob, values in space.knobs.items()}
    distributions = {knob: optuna.distributions.CategoricalDistribution(values) for knob, values in choices.items()}
    study = optuna.create_study(direction="maximize")
    for index, throughput in enumerate(space.throughput.tolist()):
        params = {knob: values[index] for knob, values in space.knobs.items()}
        study.add_trial(optuna.create_trial(params=params, distributions=distributions, value=throughput))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    expected = optuna.importance.get_param_importances(study, evaluator=evaluator)
    assert {knob: expected[knob] for knob in space.importances} == pytest.approx(space.importances)
    assert "only" not in space.importances and sum(space.importances.values()) == pytest.approx(1)
    if number > 40:
        assert next(iter(space.importances)) == "tile"


def test_a_density_sums_to_one() -> None:
    assert estimate_density(np.array([3, 0, 1])).sum() == pytest.approx(1)


def test_values_have_the_throughput_of_their_configs() -> None:
    by_config = costs(60)
    space = MeasuredSpace.from_costs("knob", by_config, flops=10**9)
    rows = {row["value"]: row for row in space.summarize_values("tile")}
    assert list(rows) == ["[1, 1]", "[2, 1]", "[3, 1]", "[4, 1]"], "those that work, in order"
    tiles = Counter(msgspec.json.decode(config)["tile"][0] for config in by_config)
    assert [row["configs"] for row in rows.values()] == [tiles[tile] for tile in range(1, 5)]
    fastest = [1 / min(c[0] for k, c in by_config.items() if msgspec.json.decode(k)["tile"][0] == t) for t in (1, 2)]
    assert [row["best"] for row in list(rows.values())[:2]] == pytest.approx(fastest)
    assert all(row["worst"] <= row["lower"] <= row["median"] <= row["upper"] <= row["best"] for row in rows.values())
    assert space.find_best_values("tile") == [f"[{tile}, 1]" for tile in range(1, 6)]
    pairs = space.summarize_values("tile", "order")
    assert max(row["best"] for row in pairs) == space.throughput.max()


def test_only_the_values_with_the_fastest_programs_are_shown() -> None:
    by_config = {b'{"tile":%d}' % tile: [1.0 + tile] for tile in range(40)}
    by_config |= {b'{"other":1}': [0.5]}
    space = MeasuredSpace.from_costs("knob", by_config, flops=10**9)
    assert [row["value"] for row in space.summarize_values("tile")] == [*map(str, range(MAX_VALUES - 1)), "-"]


def test_small_and_large_numbers_are_in_order() -> None:
    """Once, numbers with exponents came last, as if they were words."""
    values = [1e-6, 3e-5, 0.001, 1.0, 1e20]
    costs = {msgspec.json.encode({"x": value}): [1e-3] for value in reversed(values)}
    space = MeasuredSpace.from_costs("space", costs, 10**6)
    assert [float(value) for value in space.find_best_values("x")] == values


def test_charts_and_frame_show_what_matters(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, [1.0, 2.0, 3.0, 4.0])
    write(tmp_path, "b", 0, [5.0, "crash"])
    comparison = compare(tmp_path)
    frame = comparison.importances_frame()
    assert set(frame["knob"]) == {"tile", "of"} and frame["importance"].sum() == pytest.approx(1)
    assert set(frame.set_index("knob")["best_value"]) == {"[0, 1]", "b 0"}
    for chart in (comparison.plot_importances(), comparison.plot_values(knob="tile"), comparison.plot_pairs()):
        assert chart.to_dict()["title"]["text"].startswith(WORKLOAD)
    with pytest.raises(SearchlabError, match="'tiles'; did you mean 'tile'"):
        comparison.plot_values(knob="tiles")


def test_without_a_choice_there_is_nothing_to_show(tmp_path: Path) -> None:
    write(tmp_path, "a", 0, ["crash", "crash"])
    assert compare(tmp_path).importances_frame().empty
    with pytest.raises(SearchlabError, match="have no data for the chart"):
        compare(tmp_path).plot_importances()
