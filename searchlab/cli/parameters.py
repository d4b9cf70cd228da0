"""Arguments and options that commands share, and how their values are parsed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ..errors import SearchlabError, warn
from ..options import Batch, Seed, Trials, find_numeric_type
from ..plugins import Plugin


def parse_measure(text: str) -> dict[str, Any]:
    """Parse the value of ``--measure``, a JSON object."""
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:  # invalid JSON, too many digits, or excessive nesting
        raise SearchlabError(f"--measure {text!r:.200} is not valid JSON: {error}") from None
    if not isinstance(settings, dict):
        raise SearchlabError(f"--measure must be a JSON object, not {text}")
    return settings


def parse_name_and_value(text: str) -> tuple[str, Any]:
    """Split ``name=value``. The value is parsed as JSON (``3``, ``true``, ``[2, 4]``) or else as text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SearchlabError(f"the option {text!r} does not have the form name=value")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):  # invalid JSON, too many digits, or excessive nesting
        return name, value


def parse_plugin(text: str, options: Sequence[str] | None = None) -> Plugin:
    """Return the plug-in that ``name`` or ``name,option=value,...``, and further ``options`` specify.

    A comma within brackets or quotes does not end a value, as in ``arms=["tpe","xgb"]``. A mapping from knobs to values
    in JSON stands for the space ``parameters``.
    """
    if text.startswith("{"):
        text = f"parameters,parameters={text}"
    name, *option_parts = text.split(",")
    option_texts: list[str] = []
    for option_part in option_parts:
        if option_texts and not _is_complete(option_texts[-1]):
            option_texts[-1] += f",{option_part}"
        else:
            option_texts.append(option_part)
    return Plugin(name, dict(map(parse_name_and_value, [*option_texts, *(options or [])])))


def _is_complete(option_text: str) -> bool:
    """Return whether no bracket or quote is open at the end of ``option_text``."""
    value = option_text.partition("=")[2]
    return value.count("[") <= value.count("]") and value.count("{") <= value.count("}") and value.count('"') % 2 == 0


def plugin_option(*option_names: str, help: str) -> Any:
    """Return an ``Option`` whose value is a plug-in; see :func:`parse_plugin`."""
    return Option(*option_names, help=help, metavar="NAME", parser=parse_plugin)


StudyFile = Annotated[Path, Argument(help="The study file (TOML).", metavar="STUDY.toml")]
Logs = Annotated[list[Path], Argument(help="Logs, or directories of logs.", metavar="LOG|DIR...")]
Workload = Annotated[
    str,
    Argument(
        help="The workload: `gemm:512x512x512`, `conv2d:1x7x7x512x512x3x3:s1:p1`, `resnet50/conv3.2b`, ...",
        metavar="WORKLOAD",
    ),
]
SPACE_HELP = (
    "A space from `searchlab list spaces`; with options: `guided-gemm,blocks=knobs`. The values of knobs, as in "
    '`{"x": [1, 2]}`, stand for the space `parameters`'
)
SpaceName = Annotated[str, Option("--space", help=f"{SPACE_HELP}.")]
PolicyName = Annotated[
    str, Option("--policy", help="A policy from `searchlab list policies`; with options: `xgb,epsilon=0.2`.")
]
TARGET_HELP = "`native`, `cuda`, the name of an LLVM CPU, or a TVM target as JSON"
TargetSpec = Annotated[str, Option("--target", help=f"The target: {TARGET_HELP}.")]
TargetOrOwn = Annotated[
    str | None, Option("--target", help=f"The target: {TARGET_HELP} [default: native, or the table's].")
]
MeasureSpec = Annotated[
    dict[str, Any] | None,
    Option(
        "--measure",
        help='The `measure` key of a study file, as JSON: `{"repeat": 5}`.',
        metavar="JSON",
        parser=parse_measure,
    ),
]
WarmStartSources = Annotated[
    list[str] | None,
    Option(
        "--warm-start",
        help="An earlier log to learn from, a directory of logs, or `default`: the default config of the space is the "
        "first trial. May be repeated.",
        metavar="LOG|DIR|default",
    ),
]
CostModelSpec = Annotated[
    Plugin | None,
    plugin_option(
        "--cost-model",
        help="The cost model, if the policy uses one; with options: `xgboost,objective=rank` [default: the policy's "
        "own, or xgboost].",
    ),
]
FeaturesName = Annotated[
    str | None,
    Option(
        "--features",
        help="The cost model's features: `knob`, `autotvm-knob`, `program`, `per-store`, `itervar` or `curve` "
        "[default: the policy's own, or knob].",
    ),
]
SuitePath = Annotated[
    str, Option("--suite", help="The path of the suite of a directory from `suite run --out`, if no name finds it.")
]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[
    bool,
    Option("--verbose", "-v", help="Print a line for each trial, with its config, its result and the best one so far."),
]


def _make_option(owner: str) -> Any:
    return Option("--option", help=f"An option of the {owner}. May be repeated.", metavar="NAME=VALUE")


Options = Annotated[list[str] | None, _make_option("plug-in")]
PolicyOptions = Annotated[list[str] | None, _make_option("policy")]
SpaceOptions = Annotated[list[str] | None, _make_option("space")]


def number_option(value_range: Any, *option_names: str, **option_settings: Any) -> Any:
    """Return an ``Option`` with the limits of ``value_range``, one of the ranges in :mod:`searchlab.options`."""
    number_type = find_numeric_type(value_range)
    assert number_type is not None
    return Option(*option_names, min=number_type.ge, max=number_type.le, **option_settings)


RunSeed = Annotated[int, number_option(Seed, help="The seed, which determines everything but the measurements.")]
BatchSize = Annotated[int, number_option(Batch, help="The number of configs that the policy proposes at once.")]
StopAfter = Annotated[
    int | None,
    number_option(Trials, help="Stop a run after this many trials that do not improve throughput by more than 1 %."),
]
Port = Annotated[int, Option(min=0, max=65535, help="The port to listen on; 0 for any free port.")]


def default_logs_dir(study: Path) -> Path:
    """Return the default directory for the logs of a study file: results/STUDY in the current directory.

    Warns if only the directory of the study file contains results, since the user may have changed directory.
    """
    logs_dir = Path("results") / study.stem
    directory_beside_study = study.parent / logs_dir
    if directory_beside_study.is_dir() and not logs_dir.exists():
        warn(
            f"{logs_dir} does not exist here, but {directory_beside_study} does; specify it if it contains the logs "
            f"of {study}"
        )
    return logs_dir
