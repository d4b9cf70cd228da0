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
from ..workload import WORKLOADS, kind_of, parse_workload, preset_names
from .terminal import (
    AsJson,
    CostModelName,
    FeaturesName,
    Options,
    SpaceName,
    SpaceOptions,
    TargetSpec,
    Workload,
    as_text,
    number,
    out,
    plugin,
    say,
    say_json,
    say_table,
)

ListKind = StrEnum("ListKind", ["spaces", "policies", "costmodels", "executors", "schedulers", "workloads"])
ShowKind = StrEnum("ShowKind", ["policy", "space", "costmodel", "scheduler", "workload"])
Contract = StrEnum("Contract", ["policy", "space", "costmodel", "workload"])
KINDS: dict[str, PluginKind[Any]] = {
    **dict.fromkeys(("spaces", "space"), SPACES),
    **dict.fromkeys(("policies", "policy"), POLICIES),
    **dict.fromkeys(("costmodels", "costmodel"), COST_MODELS),
    **dict.fromkeys(("schedulers", "scheduler"), SCHEDULERS),
    **dict.fromkeys(("workloads", "workload"), WORKLOADS),
    "executors": EXECUTORS,
}


def list_(
    kind: Annotated[ListKind | None, Argument(help="List only plug-ins of this kind.")] = None, as_json: AsJson = False
) -> None:
    """List the installed spaces, policies, cost models, executors and schedulers, and the named workloads.

    `searchlab list policies` also shows the published algorithm behind each policy. Use `searchlab show policy NAME`
    for a full description.
    """
    meanings: dict[str, dict[str, str]] = {
        title: {name: point.value for name, point in KINDS[title].entry_points_by_name().items()}
        for title in ([kind] if kind else ListKind)
    }
    if ListKind.workloads in meanings:
        meanings[ListKind.workloads] |= {name: str(parse_workload(name)) for name in preset_names()}
    origins_by_name = origins() if kind is ListKind.policies else {}
    if as_json:
        say_json(meanings | ({"origins": origins_by_name} if kind is ListKind.policies else {}))
        return
    for title, names in meanings.items():
        rows = []
        for name, meaning in names.items():
            text = meaning if "/" in name else _first_sentence(meaning) or meaning
            if origin := origins_by_name.get(name):
                text += f" ({origin.kind}: {origin.name}, {origin.version})"
            rows.append((Text(name, "bold"), text))
        say_table(("", ""), rows, title=title)


def _first_sentence(value: str) -> str:
    """Return the first sentence of the docstring of ``module:Class``, read from its file without importing it."""
    module, _, name = value.partition(":")
    package, *inner = module.split(".")
    try:
        spec = find_spec(package)  # a top-level name, so nothing is imported
        if spec is None or spec.origin is None:
            return ""
        location = Path(spec.origin).parent.joinpath(*inner) if inner else Path(spec.origin)
        file = location / "__init__.py" if location.is_dir() else location.with_suffix(".py")
        body = ast.parse(read_text(file)).body
    except (ImportError, SearchlabError, ValueError, SyntaxError):
        return ""
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
    text = " ".join((ast.get_docstring(classes[0]) or "").partition("\n\n")[0].split()) if classes else ""
    return as_text(text.partition(". ")[0].rstrip("."))


def show(
    kind: Annotated[ShowKind, Argument(help="What to explain.")],
    name: Annotated[str, Argument(help="A name from `searchlab list`, `module:Class`, or a workload.", metavar="NAME")],
) -> None:
    """Explain a policy, a space, a cost model, a scheduler or a workload: what it does, its options, and its origin."""
    if kind is ShowKind.workload and name not in WORKLOADS.entry_points_by_name():
        workload = parse_workload(name)
        say(Text(str(workload), "bold"))
        say(as_text(inspect.getdoc(type(workload)) or ""))
        flops = "an unknown number of" if workload.unit == RUNS else f"{workload.flops:,}"
        say(f"one execution takes {flops} FLOP; throughput is in {workload.unit}")
        return
    registry = KINDS[kind]
    cls = registry.load(name)
    registry.check_class(name, cls)
    say(Text.assemble((name, "bold"), f"  {cls.__module__}:{cls.__qualname__}"))
    say(as_text(inspect.getdoc(cls) or "It has no docstring."))
    if kind is ShowKind.workload:
        return
    if options := registry.options_of(cls):
        rows = [(Text(option, "bold"), default_text(p.default), allowed_text(p)) for option, p in options.items()]
        say_table(("option", "default", "allowed values"), rows)
    else:
        say("It has no options.")
    if kind is ShowKind.policy and (model := cls.traits.own_model):
        say(f"its cost model: {COST_MODELS.resolve(model.cost_model)[0].name}, with the features {model.features}")
    origin = vars(cls).get("origin")
    if isinstance(origin, Origin):
        say(f"{origin.kind}: {origin.name}, {origin.version} ({origin.source})")
        for deviation in origin.deviations:
            say(f"- {deviation}")


def default_text(value: Any) -> str:
    """Return an option's default as written in a study file, or an empty string if it has none."""
    if value is inspect.Parameter.empty:
        return ""
    try:
        return json.dumps(value)
    except TypeError:
        return repr(value)


def allowed_text(parameter: inspect.Parameter) -> str:
    """Return an option's allowed values in words, or an empty string if it declares none."""
    if parameter.annotation is parameter.empty:
        return ""
    return describe_values(parameter.annotation) or inspect.formatannotation(parameter.annotation).strip("'")


def space_(
    workload: Workload,
    space: SpaceName,
    option: SpaceOptions = None,
    target: TargetSpec = "native",
    seed: Annotated[int, number(Seed, help="The seed for the sample.")] = 0,
) -> None:
    """Show a space's knobs, the number of values of each, the default config, and a sample config."""
    space_plugin = Plugin(**plugin(space, option))
    search_space = SPACES.make(space_plugin, parse_workload(workload), resolve_target(target))
    default, sample = search_space.default_config(), search_space.sample(np.random.default_rng(seed))
    limit = 10_000 if search_space.builds_programs else 100_000  # counting takes seconds
    size = search_space.size(limit)
    say(
        f"{search_space.workload} in {space_plugin.name}: "
        + (f"{size:,} configs" if size else f"more than {limit:,} configs")
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
    option: Options = None,
    seed: Annotated[int, number(Seed, help="The seed for the checks.")] = 0,
    space: Annotated[
        str | None, Option(help="The space for checking a policy, if it needs a particular one [default: toy spaces].")
    ] = None,
    workload: Annotated[
        str | None, Option(help="The workload for the space [default: a small one that the space supports].")
    ] = None,
    target: TargetSpec = "native",
    cost_model: CostModelName = None,
    features: FeaturesName = None,
) -> None:
    """Check a plug-in against its contract, and explain how to fix each failure.

    To check a workload, specify a small one as `NAME`, such as `softmax:16x32`.
    """
    kind, name = _kind_and_name(words)
    spec = plugin(name, option)
    if kind is Contract.policy:
        checks = policy_checks(
            spec,
            space=space and plugin(space),
            workload=workload,
            target=target,
            cost_model=cost_model and plugin(cost_model),
            features=features,
            seed=seed,
        )
    elif space is not None or (workload is not None and kind is not Contract.space):
        raise SearchlabError(
            f"a {kind} cannot be checked in a space; omit --space" + " and --workload" * (kind is not Contract.space)
        )
    elif kind is Contract.space:
        checks = space_checks(spec, workload=workload, target=target, seed=seed)
    elif kind is Contract.workload:
        if option:
            raise SearchlabError("a workload has no options; omit --option")
        checks = workload_checks(name, seed=seed)
    else:
        checks = cost_model_checks(spec, seed=seed)
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


def _kind_and_name(words: list[str]) -> tuple[Contract, str]:
    """Return the kind and the name of the plug-in to check. Raises SearchlabError if they are invalid or unclear."""
    *kinds, text = words
    if len(kinds) > 1:
        raise SearchlabError(f"cannot check several plug-ins at once; omit {words[2]!r}")
    for kind in kinds:
        if kind not in list(Contract):
            raise SearchlabError(f"unknown kind of plug-in {kind!r}{did_you_mean(kind, map(str, Contract))}")
        return Contract(kind), text
    name = plugin(text)["name"]
    names = {**dict.fromkeys(Contract, name), Contract.workload: kind_of(text)[0]}
    matches = [contract for contract in Contract if names[contract] in KINDS[contract].entry_points_by_name()]
    if not matches and ":" in name:
        cls = load_attribute(names[Contract.workload], f"plug-in {name!r}")
        matches = [kind for kind in Contract if isinstance(cls, type) and issubclass(cls, KINDS[kind].contract)]
    if len(matches) != 1:
        which = (
            f"there is a {' and a '.join(matches)} called {name!r}" if matches else f"{name!r} is not a known plug-in"
        )
        raise SearchlabError(f"{which}; specify its kind, as in `searchlab check policy {name}`")
    return matches[0], text


def schema() -> None:
    """Print the JSON Schema of study files, with the options of all installed plug-ins."""
    from ..run.spec import schema_of_studies  # imported here because importing it takes longer than running `list`

    schema = schema_of_studies()
    kinds: dict[str, list[PluginKind[Any]]] = {
        "PolicyEntry": [POLICIES],
        "PluginEntry": [SPACES],
        "CostModelEntry": [COST_MODELS],
        "Plugin": [COST_MODELS, EXECUTORS],
    }
    for name, plugin_kinds in kinds.items():
        schema["$defs"][name]["allOf"] = [rule for kind in plugin_kinds for rule in _rules(kind)]
    say_json(schema)


def _rules(kind: PluginKind[Any]) -> list[dict[str, Any]]:
    """Return a schema rule for the options of each plug-in. A plug-in that cannot be imported has no rule."""
    rules = []
    for name in kind.entry_points_by_name():
        try:
            options = kind.options_of(kind.load(name))
        except Exception:  # a plug-in may raise anything
            continue
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in options.values())
        properties = {
            option: _values(p) for option, p in options.items() if p.kind is not inspect.Parameter.VAR_KEYWORD
        }
        allowed = {"properties": properties, "additionalProperties": takes_any}
        rules.append({"if": {"properties": {"name": {"const": name}}}, "then": {"properties": {"options": allowed}}})
    return rules


def _values(parameter: inspect.Parameter) -> dict[str, Any]:
    values = msgspec.json.schema(parameter.annotation) if describe_values(parameter.annotation) else {}
    plain = isinstance(parameter.default, bool | int | float | str | None)
    return {**values, "default": parameter.default} if plain else values
