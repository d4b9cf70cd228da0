from __future__ import annotations

import gzip
import math
import shutil
import statistics
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.conformance import toys
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.format import Record
from searchlab.log.read import read_log
from searchlab.log.writer import compress_log
from searchlab.measure.table import ConfigIndex, TableMeasurer, TableSettings, compute_draw_weights
from searchlab.records import Measurement, Statistic, Trial
from searchlab.run.study import Study
from searchlab.run.tune import tune
from searchlab.space import Config, ProductSpace, Space
from searchlab.target import Target
from tests.support.logs import read_deterministic_part, write_table
from tests.support.spaces.products import Ordered


def test_a_table_answers_what_was_recorded(tmp_path: Path) -> None:
    space = toys.Small()
    write_table(tmp_path / "logs" / "a.jsonl", space, toys.simulate_flaky)
    configs = list(space.enumerate())[::7]
    for path in (tmp_path / "logs", tmp_path / "logs" / "a.jsonl"):
        with TableMeasurer(TableSettings(str(path))) as measurer:
            assert list(measurer.measure(space, configs)) == [toys.simulate_flaky(config) for config in configs]


@pytest.mark.parametrize("statistic", ["median", "mean"])
def test_a_parquet_table_answers_as_its_log(tmp_path: Path, statistic: Statistic) -> None:
    """A config whose knobs are in another order is the same config."""
    space = toys.Small()
    path = write_table(tmp_path / "a.jsonl", space, toys.simulate_flaky)
    path.write_text(path.read_text().replace('"space_size":null', f'"space_size":{space.size()}', 1))
    shutil.copy(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    compress_log(tmp_path / "b.jsonl", tmp_path / "b.parquet")
    configs = list(space.enumerate())
    log, table = (
        TableMeasurer(TableSettings(str(tmp_path / name), statistic=statistic)) for name in ("a.jsonl", "b.parquet")
    )
    assert list(log.measure(space, configs)) == list(table.measure(space, configs))
    turned = [Config(dict(reversed(config.items()))) for config in configs]
    assert list(table.measure(space, turned)) == list(table.measure(space, configs)) == table.list_measurements(space)
    all_costs = table.all_costs(space)
    assert all_costs and all_costs.costs.tolist() == [measurement.cost for measurement in log.list_measurements(space)]
    assert all_costs.optimum == min(all_costs.costs)


def test_several_tables_stand_side_by_side(tmp_path: Path) -> None:
    write_table(tmp_path / "a.jsonl", toys.Small(), toys.simulate_smooth)
    write_table(tmp_path / "b.jsonl", toys.Dependent(), toys.simulate_smooth)
    measurer = TableMeasurer(TableSettings(str(tmp_path)))
    for kind in (toys.Small, toys.Dependent):
        space = kind()
        assert len(list(measurer.measure(space, list(space.enumerate())))) == space.size()


def test_logs_of_two_machines_are_not_one_table(tmp_path: Path) -> None:
    for name in ("a", "b"):
        path = write_table(tmp_path / f"{name}.jsonl", toys.Small(), toys.simulate_smooth)
        path.write_text(path.read_text().replace('"host":{}', f'"host":{{"cpu":"CPU {name}"}}', 1))
    space = toys.Small()
    for path in sorted(tmp_path.iterdir()):
        assert len(list(TableMeasurer(TableSettings(str(path))).measure(space, list(space.enumerate()))))
    with pytest.raises(SearchlabError, match="a.jsonl was measured on CPU a, but .*b.jsonl on CPU b"):
        TableMeasurer(TableSettings(str(tmp_path))).all_costs(space)


def test_other_spaces_targets_and_unmeasured_configs_are_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.jsonl", toys.Small(), toys.simulate_smooth)
    elsewhere = toys.Small(toys.WORKLOAD, Target({"kind": "llvm", "mcpu": "haswell"}))
    for space in (toys.Dependent(), elsewhere):
        with pytest.raises(SearchlabError, match="no log in .* matches .*, this space and this target"):
            list(TableMeasurer(TableSettings(str(path))).measure(space, []))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:50]))
    space = toys.Small()
    with pytest.raises(SearchlabError, match="contain no measurement of"):
        list(TableMeasurer(TableSettings(str(path))).measure(space, list(space.enumerate())))


def test_building_is_charged_on_the_workers_it_was_recorded_on(tmp_path: Path) -> None:
    first = write_table(tmp_path / "a.jsonl", toys.Small(), toys.simulate_smooth)
    first.write_text(first.read_text().replace('"workers":1', '"workers":3', 1))
    assert TableMeasurer(TableSettings(str(first))).workers == 3
    write_table(tmp_path / "b.jsonl", toys.Dependent(), toys.simulate_smooth)
    with pytest.raises(SearchlabError, match="recorded with 1 and 3 build workers"):
        TableMeasurer(TableSettings(str(tmp_path)))


def test_no_log_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match=r"no logs \(\*.jsonl\)"):
        TableMeasurer(TableSettings(str(tmp_path)))
    with pytest.raises(SearchlabError, match="cannot read the log"):
        TableMeasurer(TableSettings(str(tmp_path / "absent.jsonl")))


# --- compressed ---------------------------------------------------------------------------------------


def test_a_compressed_table_is_the_table(tmp_path: Path) -> None:
    space = toys.Small()
    plain = write_table(tmp_path / "logs" / "a.jsonl", space, toys.simulate_flaky)
    packed = tmp_path / "logs" / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    configs = list(space.enumerate())
    for path in (packed, packed.parent):
        assert list(TableMeasurer(TableSettings(str(path))).measure(space, configs)) == [
            toys.simulate_flaky(config) for config in configs
        ]


def test_compressed_logs_are_read_only_and_broken_ones_refused(tmp_path: Path) -> None:
    plain = write_table(tmp_path / "a.jsonl", toys.Small(), toys.simulate_smooth)
    packed = tmp_path / "a.jsonl.gz"
    content = gzip.compress(plain.read_bytes())
    packed.write_bytes(content)
    with pytest.raises(SearchlabError, match=r"cannot write the log .*a\.jsonl\.gz: choose a file name"):
        tune(
            toys.WORKLOAD,
            space=toys.Small(),
            policy="random",
            log=packed,
            measure={"kind": "table", "path": str(plain)},
        )
    assert packed.read_bytes() == content
    flipped = content[:200] + bytes([content[200] ^ 1]) + content[201:]
    for broken in (content[:-9], content[: len(content) // 2], b"", plain.read_bytes(), flipped):
        packed.write_bytes(broken)
        with pytest.raises(SearchlabError, match=r"a\.jsonl\.gz"):
            read_log(packed)


# --- what a table does not hold -----------------------------------------------------------------------


def distance(a: Config, b: Config) -> float:
    """Of two configs of toys.Small, by hand: 16 = 2^4, so tiles differ by |log2| of two factors over 2 * 4."""
    unrolls = (0, 16, 64, 512)
    return (
        sum(abs(np.log2(x / y)) for x, y in zip(a["tile"], b["tile"], strict=True)) / 8  # type: ignore[arg-type]
        + abs(unrolls.index(a["unroll"]) - unrolls.index(b["unroll"])) / 3
        + (a["order"] != b["order"])
        + (a["pack"] != b["pack"])
    )


@given(st.permutations(range(120)), st.integers(20, 60))
def test_the_nearest_config_is_the_first_of_the_nearest(order: list[int], size: int) -> None:
    everything = list(toys.Small().enumerate())
    table = [everything[i] for i in order[:size]]
    if len({config["unroll"] for config in table}) < 4 or len({config["tile"] for config in table}) < 5:
        return  # ranks are those among what the table holds
    nearest = ConfigIndex(table)
    for missing in everything:
        distances = [distance(missing, config) for config in table]
        best = min(distances)
        index = nearest.find_nearest(missing)
        assert distances[index] == pytest.approx(best)
        assert all(farther > best + 1e-9 for farther in distances[:index])


def test_a_config_with_the_same_knobs_is_nearer_than_any_other(tmp_path: Path) -> None:
    table = [
        Config({"sketch": "tiled", "tile": (1, 1, 16), "vector": 16, "parallel": True}),
        Config({"sketch": "plain", "parallel": False}),
    ]
    assert ConfigIndex(table).find_nearest(Config({"sketch": "plain", "parallel": True})) == 1
    assert (
        ConfigIndex(table).find_nearest(Config({"sketch": "other", "tile": (16, 1, 1), "vector": 1, "parallel": False}))
        == 0
    )
    packed = Config({"sketch": "packed", "tile": (1, 1, 8), "vector": 8, "pack": "a", "parallel": True})
    assert ConfigIndex(table).find_nearest(packed) == 0
    assert ConfigIndex([Config()]).find_nearest(Config()) == 0


def test_orders_of_loops_are_the_same_or_not() -> None:
    table = [Config({"tile": (1, 1, 8), "order": (0, 1, 2)}), Config({"tile": (1, 2, 4), "order": (2, 1, 0)})]
    config = Config({"tile": (1, 1, 8), "order": (1, 2, 0)})
    assert ConfigIndex(table, Ordered().knobs_of(table)).find_nearest(config) == 0, (
        "its tile is the same, and both orders differ"
    )
    assert ConfigIndex(table).find_nearest(config) == 1, "as tiles, (2, 1, 0) is nearer to (1, 2, 0) than (0, 1, 2) is"


def write_half_table(path: Path) -> Path:
    """Write a table with half of the configs of toys.Small."""
    lines = write_table(path, toys.Small(), toys.simulate_flaky).read_text().splitlines(keepends=True)
    half = [line.replace(f'"index":{2 * i}', f'"index":{i}', 1) for i, line in enumerate(lines[1::2])]
    path.write_text("".join([lines[0], *half]))
    return path


def test_nearest_answers_are_marked_and_warned_of_once(tmp_path: Path) -> None:
    space = toys.Small()
    table = write_half_table(tmp_path / "half.jsonl")
    recorded = {trial.config: trial.measurement for trial in read_log(table).trials}
    assert len(recorded) == 60
    log = tmp_path / "a.jsonl"
    with pytest.warns(SearchlabWarning, match="nearest") as warned:
        tune(
            toys.WORKLOAD,
            space=space,
            policy="random",
            log=log,
            trials=120,
            measure={"kind": "table", "path": str(table), "missing": "nearest"},
        )
    assert len(warned) == 1
    trials = read_log(log).trials
    assert len(trials) == 120 and all(trial.measurement.nearest == (trial.config not in recorded) for trial in trials)
    nearest = ConfigIndex(list(recorded))
    answers = list(recorded.values())
    for trial in trials:
        answer = answers[nearest.find_nearest(trial.config)]
        assert (trial.measurement.seconds, trial.measurement.failure) == (answer.seconds, answer.failure)
    # The log of that run contains only what the table contains.
    absent = next(trial.config for trial in trials if trial.measurement.nearest)
    with pytest.raises(SearchlabError, match="contain no measurement of"):
        list(TableMeasurer(TableSettings(str(log))).measure(space, [absent]))
    assert list(TableMeasurer(TableSettings(str(log))).measure(space, list(recorded))) == list(recorded.values())


def test_a_log_says_nearest_only_where_it_is(tmp_path: Path) -> None:
    write_half_table(tmp_path / "half.jsonl")
    assert "nearest" not in (tmp_path / "half.jsonl").read_text()
    record = Record.from_trial(Trial(0, Config(), Measurement((1e-3,), nearest=True)))
    assert record.nearest and record.measurement.nearest


# --- noise --------------------------------------------------------------------------------------------


def noisy(config: Config) -> Measurement:
    seconds = toys.simulate_smooth(config).seconds
    return Measurement(tuple(second * factor for second, factor in zip(seconds, (1.0, 1.1, 1.3), strict=False)))


def test_noise_draws_from_the_repeats_and_a_seed_decides_it(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table.jsonl", toys.Small(), noisy)

    def run(log: Path, seed: int, trials: int) -> Path:
        tune(
            toys.WORKLOAD,
            space=toys.Small(),
            policy="evolutionary",
            log=log,
            trials=trials,
            seed=seed,
            batch=7,
            measure={"kind": "table", "path": str(table), "noise": True},
        )
        return log

    uninterrupted = run(tmp_path / "whole.jsonl", 1, 60)
    differing = 0
    for trial in read_log(uninterrupted).trials:
        recorded = noisy(trial.config).seconds
        assert len(trial.measurement.seconds) == 3 and set(trial.measurement.seconds) <= set(recorded)
        differing += trial.measurement.seconds != recorded
    assert differing > 30
    for trials in (3, 20, 21, 60):
        run(tmp_path / "steps.jsonl", 1, trials)
    assert read_deterministic_part(tmp_path / "steps.jsonl") == read_deterministic_part(uninterrupted)
    other_seed = {trial.config: trial.measurement for trial in read_log(run(tmp_path / "other.jsonl", 2, 60)).trials}
    pairs = [
        (trial.measurement, other_seed[trial.config])
        for trial in read_log(uninterrupted).trials
        if trial.config in other_seed
    ]
    assert any(a != b for a, b in pairs)


def test_a_config_faster_than_the_best_is_sampled_once_more(tmp_path: Path) -> None:
    table, space = write_table(tmp_path / "table.jsonl", toys.Small(), noisy), toys.Small()
    configs = [config for _, config in zip(range(40), space.enumerate(), strict=False)]
    settings = TableSettings(str(table), noise=True, confirm=True)
    measured = list(TableMeasurer(settings).measure(space, configs))
    best, confirmed = math.inf, 0
    for measurement, config in zip(measured, configs, strict=True):
        first = statistics.median(measurement.seconds[:3])
        assert len(measurement.seconds) == (6 if first < best < math.inf else 3), config
        confirmed += len(measurement.seconds) == 6
        best = min(best, measurement.cost)
    assert confirmed > 1
    plain = TableMeasurer(TableSettings(str(table), noise=True)).measure(space, configs)
    assert [m.seconds[:3] for m in measured] == [m.seconds for m in plain]


# --- the target ---------------------------------------------------------------------------------------


def study(table: str, **more: object) -> Study:
    data = {
        "workloads": ["gemm:64x64x64"],
        "spaces": ["searchlab.conformance.toys:Small"],
        "policies": ["random"],
        "trials": 5,
        "measure": {"kind": "table", "path": table},
    }
    return Study.from_dict({**data, **more})


def test_the_default_target_is_that_of_the_table(tmp_path: Path) -> None:
    foreign = Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 3})
    table = write_table(tmp_path / "a.jsonl", toys.Small(toys.WORKLOAD, foreign), toys.simulate_smooth)
    result = study(str(table)).run(tmp_path / "out")[0]
    assert result.space.target == foreign and len(result.trials) == 5
    tuned = tune(
        "gemm:64x64x64",
        space="searchlab.conformance.toys:Small",
        policy="random",
        log=tmp_path / "b.jsonl",
        trials=5,
        measure={"kind": "table", "path": str(table)},
    )
    assert tuned.space.target == foreign
    with pytest.raises(SearchlabError, match="not searched in Small: no table contains it for this target"):
        study(str(table), target="native").run(tmp_path / "native")


def test_a_study_covers_the_workloads_and_spaces_of_its_tables(tmp_path: Path) -> None:
    for kind in (toys.Small, toys.Dependent):
        write_table(tmp_path / f"{kind.__name__}.jsonl", kind(), toys.simulate_smooth)
    spaces = [f"searchlab.conformance.toys:{name}" for name in ("Small", "Dependent", "SingleChoice")]
    cells, left_out = study(str(tmp_path), spaces=spaces).plan()
    assert [item.space_choice.plugin.name for item in cells] == spaces[:2]
    assert left_out == ["gemm:64x64x64 is not searched in SingleChoice: no table contains it for this target"]


def test_tables_of_several_targets_need_a_target(tmp_path: Path) -> None:
    for mcpu in ("haswell", "znver4"):
        target = Target({"kind": "llvm", "mcpu": mcpu})
        write_table(tmp_path / "tables" / f"{mcpu}.jsonl", toys.Small(toys.WORKLOAD, target), toys.simulate_smooth)
    tables = str(tmp_path / "tables")
    with pytest.raises(SearchlabError, match="different targets"):
        study(tables).plan()
    given_one = {"kind": "llvm", "mcpu": "znver4", "caches": toys.TARGET.to_json()["caches"]}
    assert len(study(tables, target=given_one).run(tmp_path / "out")[0].trials) == 5


def test_every_log_over_a_complete_table_records_its_optimum(tmp_path: Path) -> None:
    space = toys.Small()
    write_table(tmp_path / "whole.jsonl", space, toys.simulate_flaky, counted=True)
    best = min(toys.simulate_flaky(config).cost for config in space.enumerate())

    def run(table: Path) -> float | None:
        result = tune(
            toys.WORKLOAD,
            space=space,
            policy="random",
            trials=1,
            log=tmp_path / "runs" / table.name,
            measure={"kind": "table", "path": str(table)},
        )
        return result.log.header.optimum

    assert run(tmp_path / "whole.jsonl") == best
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "part.jsonl").write_text("".join(lines[:-1]))
    assert run(tmp_path / "part.jsonl") is None, "a config is missing"
    assert run(write_table(tmp_path / "uncounted.jsonl", space, toys.simulate_flaky)) is None
    assert run(write_table(tmp_path / "failed.jsonl", space, toys.simulate_invalid, counted=True)) is None


@pytest.mark.parametrize("space", [toys.Dependent(), toys.Small()])
def test_the_weights_of_configs_are_how_often_samples_give_them(space: Space) -> None:
    configs = list(space.enumerate())
    weights = compute_draw_weights(configs[::-1])[::-1]
    rng = np.random.default_rng(0)
    counts = Counter(space.sample(rng) for _ in range(20_000))
    shares = np.array([counts[config] for config in configs]) / 20_000
    np.testing.assert_allclose(weights / weights.sum(), shares, atol=0.015)
    assert (len(set(weights.tolist())) > 1) == (not isinstance(space, ProductSpace))


def test_a_complete_table_says_what_random_search_finds(tmp_path: Path) -> None:
    """The mean over runs of random search in a space whose knobs depend on each other."""
    space = toys.Dependent()
    path = write_table(tmp_path / "table.jsonl", space, toys.simulate_smooth, counted=True)
    run = tune(
        space.workload,
        space=space,
        policy="random",
        trials=12,
        log=tmp_path / "run.jsonl",
        measure={"kind": "table", "path": str(path)},
    )
    random_search = run.log.header.random_draws
    assert random_search is not None and len(random_search.expected) == 12
    samples = [space.sample_new(np.random.default_rng(seed), 12, ()) for seed in range(400)]
    costs = np.array([[toys.simulate_smooth(config).cost for config in configs] for configs in samples])
    lowest = np.log(np.minimum.accumulate(costs, axis=1))
    error = lowest.std(axis=0) / np.sqrt(len(lowest))
    assert (np.abs(lowest.mean(axis=0) - random_search.expected) <= 4 * error + 1e-9).all()
    write_table(tmp_path / "part.jsonl", space, toys.simulate_smooth)
    assert TableMeasurer(TableSettings(str(tmp_path / "part.jsonl"))).all_costs(space) is None
