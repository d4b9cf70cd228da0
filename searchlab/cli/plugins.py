"""``searchlab list``, ``show``, ``space``, ``check`` and ``schema``: commands for plug-ins and workloads."""

from __future__ import annotations

import ast
import inspect
import json
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import typer
from rich.text import Text
from typer import Argument, Option

from ..conformance import (
    CheckResult,
    cost_model_checks,
    policy_checks,
    run_checks,
    select,
    space_checks,
    workload_checks,
)
from ..costmodel import COST_MODELS
from ..errors import SearchlabError, did_you_mean
from ..executors.contract import EXECUTORS
from ..files import read_text
from ..model import SCHEDULERS
from ..options import Seed, describe_values
from ..plugins import Plugin, PluginKind, load_attribute
from ..policy import POLICIES, Origin, origins
from ..space import SPACES
from ..target import resolve_target
from ..units import RUNS
from ..workload import WORKLOADS, parse_workload, preset_names, split_workload_name
from . import parameters
from .parameters import number_option, parse_plugin, plugin_option
from .terminal import out, say, say_json, say_table, strip_markup

ListKind = StrEnum("ListKind", ["spaces", "policies", "costmodels", "executors", "schedulers", "workloads"])
ShowKind = StrEnum("ShowKind", ["policy", "space", "costmodel", "scheduler", "workload"])
Contract = StrEnum("Contract", ["policy", "space", "costmodel", "workload"])
KINDS_BY_NAME: dict[str, PluginKind[Any]] = {
    **dict.fromkeys(("spaces", "space"), SPACES),
    **dict.fromkeys(("policies", "policy"), POLICIES),
    **dict.fromkeys(("costmodels", "costmodel"), COST_MODELS),
    **dict.fromkeys(("schedulers", "scheduler"), SCHEDULERS),
    **dict.fromkeys(("workloads", "workload"), WORKLOADS),
    "executors": EXECUTORS,
}


def list_(
    kind: Annotated[ListKind | None, Argument(help="List only plug-ins of this kind.")] = None,
    as_json: parameters.AsJson = False,
) -> None:
    """List the installed spaces, policies, cost models, executors and schedulers, and the named workloads.

    `searchlab list policies` also shows the published algorithm behind each policy. Use `searchlab show policy NAME`
    for a full description.
    """
    meanings_by_title: dict[str, dict[str, str]] = {
        title: {name: point.value for name, point in KINDS_BY_NAME[title].entry_points_by_name().items()}
        for title in ([kind] if kind else ListKind)
    }
    if ListKind.workloads in meanings_by_title:
        meanings_by_title[ListKind.workloads] |= {name: str(parse_workload(name)) for name in preset_names()}
    origins_by_name = origins() if kind is ListKind.policies else {}
    if as_json:
        say_json(meanings_by_title | ({"origins": origins_by_name} if kind is ListKind.policies else {}))
        return
    for title, meanings in meanings_by_title.items():
        rows = []
        for name, meaning in meanings.items():
            description = meaning if "/" in name else _first_sentence(meaning) or meaning
            if origin := origins_by_name.get(name):
                description += f" ({origin.kind}: {origin.name}, {origin.version})"
            rows.append((Text(name, "bold"), description))
        say_table(("", ""), rows, title=title)


def _first_sentence(reference: str) -> str:
    """Return the first sentence of the docstring of ``module:Class``, read from its file without importing it."""
    module, _, name = reference.partition(":")
    package, *submodules = module.split(".")
    try:
        spec = find_spec(package)  # a top-level name, so nothing is imported
        if spec is None or spec.origin is None:
            return ""
        module_path = Path(spec.origin).parent.joinpath(*submodules) if submodules else Path(spec.origin)
        source_path = module_path / "__init__.py" if module_path.is_dir() else module_path.with_suffix(".py")
        statements = ast.parse(read_text(source_path)).body
    except (ImportError, SearchlabError, ValueError, SyntaxError):
        return ""
    classes = [node for node in statements if isinstance(node, ast.ClassDef) and node.name == name]
    docstring = (ast.get_docstring(classes[0]) or "") if classes else ""
    first_paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return strip_markup(first_paragraph.partition(". ")[0].rstrip("."))


def show(
    kind: Annotated[ShowKind, Argument(help="What to explain.")],
    name: Annotated[str, Argument(help="A name from `searchlab list`, `module:Class`, or a workload.", metavar="NAME")],
) -> None:
    """Explain a policy, a space, a cost model, a scheduler or a workload: what it does, its options, and its origin."""
    if kind is ShowKind.workload and name not in WORKLOADS.entry_points_by_name():
        workload = parse_workload(name)
        say(Text(str(workload), "bold"))
        say(strip_markup(inspect.getdoc(type(workload)) or ""))
        flops = "an unknown number of" if workload.unit == RUNS else f"{workload.flops:,}"
        say(f"one execution takes {flops} FLOP; throughput is in {workload.unit}")
        return
    registry = KINDS_BY_NAME[kind]
    cls = registry.load(name)
    registry.check_class(name, cls)
    say(Text.assemble((name, "bold"), f"  {cls.__module__}:{cls.__qualname__}"))
    say(strip_markup(inspect.getdoc(cls) or "It has no docstring."))
    if kind is ShowKind.workload:
        return
    if options := registry.options_of(cls):
        rows = [
            (Text(option, "bold"), format_default(parameter.default), format_allowed_values(parameter))
            for option, parameter in options.items()
        ]
        say_table(("option", "default", "allowed values"), rows)
    else:
        say("It has no options.")
    if kind is ShowKind.policy and (own_model := cls.traits.own_model):
        cost_model = COST_MODELS.resolve(own_model.cost_model)[0]
        say(f"its cost model: {cost_model.name}, with the features {own_model.features}")
    origin = vars(cls).get("origin")
    if isinstance(origin, Origin):
        say(f"{origin.kind}: {origin.name}, {origin.version} ({origin.source})")
        for deviation in origin.deviations:
            say(f"- {deviation}")


def format_default(value: Any) -> str:
    """Return an option's default as written in a study file, or an empty string if it has none."""
    if value is inspect.Parameter.empty:
        return ""
    try:
        return json.dumps(value)
    except TypeError:
        return repr(value)


def format_allowed_values(parameter: inspect.Parameter) -> str:
    """Return an option's allowed values in words, or an empty string if it declares none."""
    if parameter.annotation is parameter.empty:
        return ""
    return describe_values(parameter.annotation) or inspect.formatannotation(parameter.annotation).strip("'")


def space_(
    workload: parameters.Workload,
    space: parameters.SpaceName,
    option: parameters.SpaceOptions = None,
    target: parameters.TargetSpec = "native",
    seed: Annotated[int, number_option(Seed, help="The seed for the sample.")] = 0,
) -> None:
    """Show a space's knobs, the number of values of each, the default config, and a sample config."""
    space_plugin = parse_plugin(space, option)
    search_space = SPACES.make(space_plugin, parse_workload(workload), resolve_target(target))
    default, sample = search_space.default_config(), search_space.sample(np.random.default_rng(seed))
    count_limit = 10_000 if search_space.builds_programs else 100_000  # counting takes seconds
    size = search_space.size(count_limit)
    say(
        f"{search_space.workload} in {space_plugin.name}: "
        + (f"{size:,} configs" if size else f"more than {count_limit:,} configs")
    )
    rows = []
    for knob in search_space.knobs(sample):
        choices = ", ".join(map(str, knob.choices[:3])) + (", ..." if len(knob.choices) > 3 else "")
        rows.append((knob.name, len(knob.choices), choices, default.get(knob.name, ""), sample[knob.name]))
    say_table(("knob", "values", "such as", "default", f"sample (seed {seed})"), rows)


def check(
    words: Annotated[
        list[str],
        Argument(
            help="The kind of the plug-in (`policy`, `space`, `costmodel` or `workload`), which may be omitted if the "
            "name determines it; and a name from `searchlab list`, or `module:Class`.",
            metavar="[KIND] NAME",
        ),
    ],
    only: Annotated[list[str] | None, Option(help="Run only this check. May be repeated.", metavar="CHECK")] = None,
    option: parameters.Options = None,
    seed: Annotated[int, number_option(Seed, help="The seed for the checks.")] = 0,
    space: Annotated[
        Plugin | None,
        plugin_option(help="The space for checking a policy, if it needs a particular one [default: toy spaces]."),
    ] = None,
    workload: Annotated[
        str | None, Option(help="The workload for the space [default: a small one that the space supports].")
    ] = None,
    target: parameters.TargetSpec = "native",
    cost_model: parameters.CostModelSpec = None,
    features: parameters.FeaturesName = None,
) -> None:
    """Check a plug-in against its contract, and explain how to fix each failure.

    To check a workload, specify a small one as `NAME`, such as `softmax:16x32`.
    """
    kind, name = _parse_kind_and_name(words)
    plugin = parse_plugin(name, option)
    if kind is Contract.policy:
        checks = policy_checks(
            plugin,
            space=space,
            workload=workload,
            target=target,
            cost_model=cost_model,
            features=features,
            seed=seed,
        )
    elif space is not None or (workload is not None and kind is not Contract.space):
        superfluous_options = "--space" if kind is Contract.space else "--space and --workload"
        raise SearchlabError(f"a {kind} cannot be checked in a space; omit {superfluous_options}")
    elif kind is Contract.space:
        checks = space_checks(plugin, workload=workload, target=target, seed=seed)
    elif kind is Contract.workload:
        if option:
            raise SearchlabError("a workload has no options; omit --option")
        checks = workload_checks(name, seed=seed)
    else:
        checks = cost_model_checks(plugin, seed=seed)
    results = []
    for result in run_checks(select(checks, only or [])):
        _say_result(result)
        results.append(result)
    pass_count = sum(result.status == "pass" for result in results)
    failed_names = [result.name for result in results if result.status == "FAIL"]
    out.print(
        f"{pass_count} of {len(results)} checks pass" + (f"; {', '.join(failed_names)} failed" if failed_names else "")
    )
    if failed_names:
        raise typer.Exit(1)


def _say_result(result: CheckResult) -> None:
    lines = result.text.splitlines()
    if result.status != "FAIL":
        say(f"{result.status:8} {': '.join([result.name, *lines])}")
        return
    out.print(Text.assemble(("FAIL", "bold red"), "     ", (result.name, "bold")))
    for line in lines:
        say(f"         {line}")


def _parse_kind_and_name(words: list[str]) -> tuple[Contract, str]:
    """Return the kind and the name of the plug-in to check. Raises SearchlabError if they are invalid or unclear."""
    *kinds, spec_text = words
    if len(kinds) > 1:
        raise SearchlabError(f"cannot check several plug-ins at once; omit {words[2]!r}")
    for kind in kinds:
        if kind not in list(Contract):
            raise SearchlabError(f"unknown kind of plug-in {kind!r}{did_you_mean(kind, map(str, Contract))}")
        return Contract(kind), spec_text
    name = parse_plugin(spec_text).name
    names_by_kind = {**dict.fromkeys(Contract, name), Contract.workload: split_workload_name(spec_text)[0]}
    matching_kinds = [kind for kind in Contract if names_by_kind[kind] in KINDS_BY_NAME[kind].entry_points_by_name()]
    if not matching_kinds and ":" in name:
        cls = load_attribute(names_by_kind[Contract.workload], f"plug-in {name!r}")
        matching_kinds = [
            kind for kind in Contract if isinstance(cls, type) and issubclass(cls, KINDS_BY_NAME[kind].contract)
        ]
    if len(matching_kinds) != 1:
        problem = f"{name!r} is not a known plug-in"
        if matching_kinds:
            problem = f"there is a {' and a '.join(matching_kinds)} called {name!r}"
        raise SearchlabError(f"{problem}; specify its kind, as in `searchlab check policy {name}`")
    return matching_kinds[0], spec_text


def schema() -> None:
    """Print the JSON Schema of study files, with the options of all installed plug-ins."""
    from ..run.spec import make_study_schema  # imported here because importing it takes longer than running `list`

    study_schema = make_study_schema()
    kinds_by_entry: dict[str, list[PluginKind[Any]]] = {
        "PolicyEntry": [POLICIES],
        "PluginEntry": [SPACES],
        "CostModelEntry": [COST_MODELS],
        "Plugin": [COST_MODELS, EXECUTORS],
    }
    for name, plugin_kinds in kinds_by_entry.items():
        study_schema["$defs"][name]["allOf"] = [rule for kind in plugin_kinds for rule in _make_schema_rules(kind)]
    say_json(study_schema)


def _make_schema_rules(kind: PluginKind[Any]) -> list[dict[str, Any]]:
    """Return a schema rule for the options of each plug-in. A plug-in that cannot be imported has no rule."""
    rules = []
    for name in kind.entry_points_by_name():
        try:
            options = kind.options_of(kind.load(name))
        except Exception:  # a plug-in may raise anything
            continue
        takes_any_option = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in options.values())
        properties = {
            option: _make_value_schema(parameter)
            for option, parameter in options.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
        allowed_options = {"properties": properties, "additionalProperties": takes_any_option}
        condition = {"properties": {"name": {"const": name}}}
        rules.append({"if": condition, "then": {"properties": {"options": allowed_options}}})
    return rules


def _make_value_schema(parameter: inspect.Parameter) -> dict[str, Any]:
    value_schema = msgspec.json.schema(parameter.annotation) if describe_values(parameter.annotation) else {}
    is_plain = isinstance(parameter.default, bool | int | float | str | None)
    return {**value_schema, "default": parameter.default} if is_plain else value_schema
