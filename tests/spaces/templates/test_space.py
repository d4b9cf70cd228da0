"""``knob-template``: AutoTVM's index and printed form, registered templates, and right answers on this CPU."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.s_tir import Schedule
from tvm_ffi import structural_equal

from searchlab.errors import InvalidConfig, SearchlabError, UnsupportedWorkload
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import parse_workload
from searchlab_spaces.templates import KnobTemplate, TemplateConfig, registry
from searchlab_spaces.templates.registry import find_template, installed_templates, template
from searchlab_spaces.templates.space import DEFAULT_TEMPLATES

CUDA = Target({"kind": "cuda", "arch": "sm_90"})
PAIRS = json.loads((Path(__file__).parent / "data/autotvm_conv2d_pairs.json").read_text())["pairs"]

PAGE = (Path(__file__).parent / "data/autotvm_conv2d_page.txt").read_text().splitlines()
"""The configs of the 20 trials on the page of AutoTVM's tutorial on conv2d, in TVM 0.8's documentation."""


@pytest.fixture(scope="module")
def autotvm() -> KnobTemplate:
    return KnobTemplate(parse_workload("conv2d:1x7x7x512x512x3x3:s1:p1"), CUDA, template="conv2d_no_batching")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Unregister the templates of a test at its end, but not those of installed packages."""
    for name in installed_templates():
        find_template(name)
    monkeypatch.setattr(registry, "_decorated_templates", dict(registry._decorated_templates))
    yield registry._decorated_templates


def ordered(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """A GEMM with every kind of knob: AutoTVM's policies, tiles with tails, orders and annotations."""
    block = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(block)
    cfg.define_split("tile_i", i, num_outputs=2, policy="power2", max_factor=8)
    cfg.define_split("tile_j", j, num_outputs=3, policy="verbose", filter=lambda split: split.size[-1] <= 16)
    cfg.define_split("tile_k", k, num_outputs=2, policy="candidate", candidate=[[-1, 1], [-1, 4], [-1, 5]])
    i0, i1 = cfg["tile_i"].apply(sch, i)
    j0, j1, j2 = cfg["tile_j"].apply(sch, j)
    k0, k1 = cfg["tile_k"].apply(sch, k)
    sch.reorder(i0, j0, k0, j1, i1, k1, j2)
    cfg.define_reorder("outer", [i0, j0], policy="all")
    cfg.define_reorder("inner", [i1, k1, j2], policy="candidate", candidate=[[i1, k1, j2], [k1, i1, j2]])
    cfg["outer"].apply(sch, [i0, j0])
    cfg["inner"].apply(sch, [i1, k1, j2])
    cfg.define_annotate("ann", [i1, j2], policy="try_unroll_vec")
    cfg["ann"].apply(sch, [i1, j2], max_unroll=16)
    cfg.define_knob("parallel", [False, True])
    if cfg["parallel"].val:
        sch.parallel(i0 if cfg["outer"].perm == (0, 1) else j0)


def dependent(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Broken: the second knob's choices follow from the first."""
    loops = sch.get_loops(sch.get_sblock("gemm"))
    cfg.define_split("tile_i", loops[0], 2)
    cfg.define_split("again", cfg["tile_i"].apply(sch, loops[0])[0], 2)


def conditional(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Broken: the second knob is there for some choices of the first."""
    cfg.define_knob("pack", [0, 1])
    if cfg["pack"].val:
        cfg.define_knob("how", [0, 1])


def vectorised_sum(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Half of its configs ask for what no schedule allows."""
    cfg.define_annotate("k", sch.get_loops(sch.get_sblock("gemm"))[2:], "try_vec")
    cfg["k"].apply(sch, sch.get_loops(sch.get_sblock("gemm"))[2:])


def always_broken(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    sch.vectorize(sch.get_loops(sch.get_sblock("gemm"))[2])


def make_space(name: str, target: Target, workload: str = "gemm:12x20x18") -> KnobTemplate:
    return KnobTemplate(parse_workload(workload), target, template=f"{__name__}:{name}")


# --- AutoTVM's form -------------------------------------------------------------------------------------


def test_a_space_has_the_size_and_text_of_autotvm(autotvm: KnobTemplate) -> None:
    assert len(autotvm) == 10_454_400
    assert repr(autotvm) == (  # ConfigSpace.__repr__ of TVM 0.17, which added range_length
        "ConfigSpace (len=10454400, range_length=10454400, space_map=\n"
        "   0 tile_f: Split(policy=factors, product=512, num_outputs=4) len=220\n"
        "   1 tile_y: Split(policy=factors, product=7, num_outputs=4) len=4\n"
        "   2 tile_x: Split(policy=factors, product=7, num_outputs=4) len=4\n"
        "   3 tile_rc: Split(policy=factors, product=512, num_outputs=3) len=55\n"
        "   4 tile_ry: Split(policy=factors, product=3, num_outputs=3) len=3\n"
        "   5 tile_rx: Split(policy=factors, product=3, num_outputs=3) len=3\n"
        "   6 auto_unroll_max_step: OtherOption([0, 512, 1500]) len=3\n"
        "   7 unroll_explicit: OtherOption([0, 1]) len=2\n"
        ")"
    )


@pytest.mark.parametrize("pair", PAIRS, ids=[str(pair["index"]) for pair in PAIRS])
def test_index_and_entity_are_autotvm_s(autotvm: KnobTemplate, pair: dict[str, Any]) -> None:
    config = autotvm.config_at(pair["index"])
    assert autotvm.to_entity(config) == {**pair, "code_hash": None}
    assert autotvm.from_entity(pair) == config
    assert autotvm.index_of(config) == pair["index"]


@pytest.mark.parametrize("printed", PAGE)
def test_config_prints_as_on_the_page_of_autotvm(autotvm: KnobTemplate, printed: str) -> None:
    assert autotvm.show(autotvm.config_at(int(printed.rpartition(",")[2]))) == printed


@given(st.integers(0, 10_454_399))
def test_every_index_goes_through_json_and_back(autotvm: KnobTemplate, index: int) -> None:
    entity = json.loads(json.dumps(autotvm.to_entity(autotvm.config_at(index))))
    config = autotvm.from_entity(entity)
    assert entity["index"] == autotvm.index_of(config) == index


@pytest.mark.parametrize(
    ("entity", "reason"),
    [
        ([["tile_z", "sp", [-1, 1]]], "sets knob 'tile_z'"),
        ([["tile_f", "ot", 1]], r"sets knob 'tile_f' \(ot\)"),
        ([["tile_f", "sp", [-1, 3, 1, 1]]], "knob 'tile_f' cannot be"),
        ([["tile_f", "sp", [1, 2, 1, 1]]], "does not split a loop of extent 512"),
        ([["tile_f", "sp", [-1, 1, 1, 1]]], "no value for knob 'tile_y'"),
    ],
)
def test_entity_of_another_space_is_refused(autotvm: KnobTemplate, entity: list[Any], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        autotvm.from_entity({"index": 0, "entity": entity})


# --- programs -------------------------------------------------------------------------------------------


def test_a_mutation_changes_one_knob(autotvm: KnobTemplate) -> None:
    config = autotvm.config_at(0)
    mutation = autotvm.mutate(config, np.random.default_rng(0))
    assert sum(mutation[name] != value for name, value in config.items()) == 1


def assert_right(space: KnobTemplate, config: Config) -> None:
    workload, target = space.workload, space.target
    schedule = space.schedule(config)
    fresh = Schedule(workload.module)
    schedule.trace.apply_to_schedule(fresh, remove_postproc=False)
    assert structural_equal(schedule.mod, fresh.mod)
    module = tvm.compile(schedule.mod, target=target.tvm).jit()
    inputs = workload.inputs()
    result = tvm.runtime.tensor(np.full(list(workload.shapes.values())[-1], 77, workload.out_dtype))
    module["main"](*[tvm.runtime.tensor(array) for array in inputs.values()], result)
    rtol, atol = workload.tolerance()
    np.testing.assert_allclose(result.numpy(), workload.reference(inputs), rtol=rtol, atol=atol)


@pytest.mark.parametrize("seed", range(12))
def test_any_config_of_any_policy_gives_right_answers(native: Target, seed: int) -> None:
    space = make_space("ordered", native)
    assert_right(space, space.sample(np.random.default_rng(seed)))


def test_tiles_that_reach_past_the_end_give_right_answers(native: Target) -> None:
    space = make_space("ordered", native)
    config = Config(
        {
            "tile_i": (2, 8),
            "tile_j": (2, 2, 8),
            "tile_k": (4, 5),
            "outer": (1, 0),
            "inner": (1, 0, 2),
            "ann": "unroll,vec",
            "parallel": True,
        }
    )
    script = space.schedule(config).mod.script()
    assert "T.where" in script and "T.unroll" in script and "T.vectorized" in script
    assert_right(space, config)


@pytest.mark.parametrize(
    "spelling",
    ["gemm:24x36x20", "gemm:24x40x9:bias:relu", "conv2d:1x9x9x8x6x3x3:p1", "conv2d:2x10x8x12x3x3x3:s2:relu"],
)
def test_cpu_templates_give_right_answers(native: Target, spelling: str) -> None:
    space = KnobTemplate(parse_workload(spelling), native)
    for config in [space.config_at(0), space.config_at(len(space) - 1), space.sample(np.random.default_rng(0))]:
        assert_right(space, config)


def test_what_no_schedule_allows_is_invalid_with_tvm_s_reason(native: Target) -> None:
    space = make_space("vectorised_sum", native)
    space.schedule(Config({"k": "none"}))
    with pytest.raises(InvalidConfig, match="not a data parallel block iter"):
        space.schedule(Config({"k": "vec"}))
    with pytest.raises(InvalidConfig, match="cannot be 'unroll'"):
        space.schedule(Config({"k": "unroll"}))


@pytest.mark.parametrize(
    ("name", "choice"), [("dependent", {"tile_i": (6, 2), "again": (12, 1)}), ("conditional", {"pack": 1})]
)
def test_template_whose_knobs_depend_on_choices_is_found_out(native: Target, name: str, choice: dict[str, Any]) -> None:
    space = make_space(name, native)
    space.schedule(space.config_at(0))
    with pytest.raises(SearchlabError, match="must not depend on choices"):
        space.schedule(Config(choice))


def test_template_must_run_through_once(native: Target) -> None:
    with pytest.raises(SearchlabError, match="with every knob at its first choice: .* not a data parallel"):
        make_space("always_broken", native)


# --- registration ---------------------------------------------------------------------------------------


def test_built_in_templates_are_registered_as_anybody_s_are() -> None:
    assert set(DEFAULT_TEMPLATES.values()) <= set(installed_templates())
    for (op, kind), name in DEFAULT_TEMPLATES.items():
        loaded = find_template(name)
        assert (loaded.name, loaded.op, loaded.target) == (name, op, kind)


def test_templates_are_listed_without_importing_them() -> None:
    code = (
        "import sys; from searchlab_spaces.templates.registry import installed_templates\n"
        "print(*installed_templates())\n"
        "assert not {'tvm', 'searchlab_spaces.templates.cpu', 'searchlab_spaces.templates.cuda'} & set(sys.modules)"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(DEFAULT_TEMPLATES.values()) <= set(listed)


def test_decorated_template_is_found_by_name(native: Target, registered: dict[str, Any]) -> None:
    assert template("mine", op="gemm", target="llvm")(ordered) is ordered
    space = KnobTemplate(parse_workload("gemm:12x20x18"), native, template="mine")
    assert space.fingerprint == make_space("ordered", native).fingerprint
    with pytest.raises(UnsupportedWorkload, match="template 'mine' supports only gemm on llvm, not conv2d"):
        KnobTemplate(parse_workload("conv2d:1x8x8x4x4x3x3"), native, template="mine")
    with pytest.raises(UnsupportedWorkload, match="template 'mine' supports only gemm on llvm, not gemm:8x8x8 on cuda"):
        KnobTemplate(parse_workload("gemm:8x8x8"), CUDA, template=f"{__name__}:ordered")


def test_decorating_again_replaces_but_never_another_function(registered: dict[str, Any]) -> None:
    template("mine")(ordered)
    template("mine", op="gemm")(ordered)
    assert registered["mine"].op == "gemm"
    with pytest.raises(SearchlabError, match="dependent cannot be registered as template 'mine': .*ordered is already"):
        template("mine")(dependent)


def test_name_of_an_installed_template_cannot_be_taken(native: Target, registered: dict[str, Any]) -> None:
    template("gemm_cpu_too")(ordered)
    registered["gemm_cpu"] = registered["gemm_cpu_too"]
    with pytest.raises(SearchlabError, match="two templates are called 'gemm_cpu'.*rename yours"):
        KnobTemplate(parse_workload("gemm:8x8x8"), native)


def test_template_of_another_package_is_found_by_name(native: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", f"{__name__}:ordered", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "list_entry_points", lambda group: [point])
    assert len(KnobTemplate(parse_workload("gemm:12x20x18"), native, template="theirs")) > 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("conv2d_no_batchin", "unknown template 'conv2d_no_batchin'; did you mean 'conv2d_no_batching'"),
        ("no_such_package:f", "'no_such_package:f' cannot be loaded: No module named"),
        (f"{__name__}:missing", "cannot be loaded: .* does not define it"),
        (f"{__name__}:PAIRS", "must be a function"),
        (":f", "cannot be loaded"),
        (
            f"{__name__}:assert_right",
            "cannot be called as template.config, schedule, target.: its signature is .space",
        ),
    ],
)
def test_wrong_template_is_refused(native: Target, name: str, reason: str) -> None:
    with pytest.raises(SearchlabError, match=reason):
        KnobTemplate(parse_workload("gemm:8x8x8"), native, template=name)


def test_a_template_may_be_given_as_the_function_that_it_is(native: Target) -> None:
    by_function, by_name = (
        KnobTemplate(parse_workload("gemm:12x20x18"), native, template=template)
        for template in (ordered, f"{__name__}:ordered")
    )
    assert by_function.fingerprint == by_name.fingerprint and list(by_function.enumerate()) == list(by_name.enumerate())


def test_target_without_a_template_is_refused_with_the_way_out() -> None:
    with pytest.raises(UnsupportedWorkload, match='no built-in template for gemm on c .*template = "module:function"'):
        KnobTemplate(parse_workload("gemm:8x8x8"), Target({"kind": "c"}))


def test_a_space_is_pickled_without_importing_its_template(native: Target, registered: dict[str, Any]) -> None:
    def local(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
        cfg.define_knob("nothing", [0, 1])

    template("local")(local)
    for name, dumps in [("local", cloudpickle.dumps), ("gemm_cpu", pickle.dumps)]:
        space = KnobTemplate(parse_workload("gemm:8x8x8"), native, template=name)
        copy = pickle.loads(dumps(space))
        config = copy.config_at(1)
        assert structural_equal(copy.schedule(config).mod, space.schedule(config).mod)
