"""Golden data in today's words: the one place to edit when an option, a setting or a function has another name.

All that golden tests ask of searchlab goes through here, and through public names.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
from typer.testing import CliRunner

import searchlab
from searchlab import Result, Study

DATA = Path(__file__).parent / "data"

if (PLUGINS := str(Path(__file__).parent / "plugins")) not in sys.path:
    sys.path.append(PLUGINS)  # where a user would have them: a directory that Python imports from

ASKED = {"initial": "n_startup", "startup": "n_startup", "warmup": "n_startup", "stop_factor": "prune_factor"}
"""Options and settings as golden data spells them -> as ``tune`` takes them today."""

REGISTERED = {
    "searchlab_policies.random:Random": "random",
    "searchlab_policies.evolutionary:Evolutionary": "evolutionary",
    "searchlab_spaces.guided_gemm:GuidedGemm": "guided-gemm",
    "searchlab_spaces.guided_conv2d:GuidedConv2d": "guided-conv2d",
    "searchlab_spaces.trace:Trace": "trace",
}
"""Plug-ins as golden data names them by module and class -> the names by which runs go today."""

SINCE = ("batch", "ended", "interrupted", "one_run", "score_first", "effect", "note", "verdict")
"""What the summary of a strategy, or of two, has had since version 0.1; and the words of a verdict, now other ones."""

RECKONED = ("score", "score_by_seed", "score_trials")
"""What is reckoned in another way than in version 0.1: scores are of log latency, and go further."""

REACHED, INTERVAL = ("trials_to_target", "seconds_to_target"), ("lower", "upper")
"""Whose intervals, and those of contrasts, are found in another way than in version 0.1."""

TESTED = (*INTERVAL, "test", "p", "adjusted")
"""What of contrasts is of another test: only the area is tested, and all tests of a report are corrected together."""

ADDED: dict[str, Any] = {"unit": "GFLOPS", "unsteady": "", "passes": None, "caveats": []}
"""What has been told since version 0.1 of a best, of a table and in a summary, and what it is for logs of then."""

PRUNED = "pruned"
"""What a Measurement calls a program that was not repeated, because it is slow."""

MENDED = ("annealing", "droplet", "bandit-default", "evolutionary-model", "bandit", "warm-start-transfer")
"""Runs of policies that draw other configs than in 0.1, or of a bandit with such arms.

Private random streams were mended (annealing, droplet); evolution on a model mutates by factors (evolutionary-model).
"""


def in_words(words: Mapping[str, str], value: Any) -> Any:
    """``value`` with its keys, at any depth, in other words."""
    if isinstance(value, Mapping):
        return {words.get(key, key): in_words(words, inner) for key, inner in value.items()}
    return [in_words(words, inner) for inner in value] if isinstance(value, list | tuple) else value


def as_planned(value: Any) -> Any:
    """``value`` with the words and the names that the header of a run planned today has."""
    if isinstance(value, Mapping):
        named = {key: REGISTERED.get(inner, inner) if key == "name" else inner for key, inner in value.items()}
        return {ASKED.get(key, key): as_planned(inner) for key, inner in named.items()}
    return [as_planned(inner) for inner in value] if isinstance(value, list | tuple) else value


# --- running ------------------------------------------------------------------------------------------


def plugin_class(group: str, name: str) -> Any:
    """The class registered as ``name``, or named as ``module:Class``; a class of searchlab's wherever it is today."""
    if ":" in name and name not in REGISTERED:
        module, _, attribute = name.partition(":")
        return getattr(import_module(module), attribute)
    return entry_points(group=f"searchlab.{group}")[REGISTERED.get(name, name)].load()


def run(spec: Mapping[str, Any], log: Path, trials: int | None = None) -> Result:
    """What ``spec`` of ``runs.json`` says, brought to ``trials`` trials in the file ``log``.

    Paths in it start from the working directory. A space that it gives as an ``instance`` is made first, and a policy
    that it gives as a ``class`` is handed over as one, both as a script does.
    """
    given = {key: in_words(ASKED, value) for key, value in spec.items() if key not in ("workload", "cut")}
    if instance := given["space"].get("instance"):
        target = searchlab.resolve_target(given.pop("target"))
        options = dict(instance.get("options", {}))
        if "function" in options:
            options["function"] = plugin_class("functions", options["function"])
        cls = plugin_class("spaces", instance["name"])
        given["space"] = cls(searchlab.parse_workload(spec["workload"]), target, **options)
    if name := given["policy"].get("class"):
        given["policy"] = plugin_class("policies", name)
    if trials is not None:
        given["trials"] = trials
    return searchlab.tune(spec["workload"], log=log, **given)


def command(*words: str | Path) -> tuple[int, str]:
    """The exit code and the standard output of ``searchlab *words``."""
    from searchlab.cli.app import app

    ended = CliRunner().invoke(app, [str(word) for word in words])
    refused = isinstance(ended.exception, searchlab.SearchlabError)
    if ended.exception is not None and not refused and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return 2 if refused else ended.exit_code, ended.stdout


def host() -> dict[str, str]:
    """This machine, as the header of a log of measurements on it has it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return {"cpu": line.partition(":")[2].strip()}
    return {"cpu": platform.processor() or platform.machine()}


# --- reading ------------------------------------------------------------------------------------------


def observed(path: Path) -> dict[str, Any]:
    """What searchlab says of a whole log: plain JSON, without the file's place."""
    code, said = command("best", path, "--json")
    info = json.loads(command("table", "info", path, "--json")[1])[0]
    return read(path) | {"best": without_place(json.loads(said)) if code == 0 else None, "table": without_place(info)}


def read(path: Path) -> dict[str, Any]:
    """What a script sees of a log."""
    result = searchlab.load_log(path)
    frame = result.to_frame()
    measurements = [trial.measurement for trial in result.trials]
    return {
        "trials": len(result.trials),
        "costs": [cost if math.isfinite(cost) else None for cost in frame["cost"].tolist()],
        "elapsed": frame["elapsed"].tolist(),
        "failures": [[index, one.failure] for index, one in enumerate(measurements) if one.failure],
        "reused": [index for index, one in enumerate(measurements) if one.reused],
        "nearest": [index for index, one in enumerate(measurements) if one.nearest],
        "stopped": [index for index, one in enumerate(measurements) if getattr(one, PRUNED)],
    }


def best(path: Path) -> dict[str, Any]:
    """The best of a log as a script sees it, as ``searchlab best --json`` spells it."""
    found = searchlab.load_log(path).best
    return {
        "trial": found.trial.index,
        "config": found.config.to_json(),
        "seconds": found.seconds,
        "gflops": found.gflops,
        "tied": None if found.tied is None else [trial.index for trial in found.tied],
    }


def without_place(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "file"}


def header_of(result: Result) -> dict[str, Any]:
    """The header of a log as it was read, as plain JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(result.log.header)
    return plain


def checked(path: Path) -> dict[str, Any]:
    """What ``searchlab log check`` says of a log, and how it ends."""
    code, said = command("log", "check", path, "--json")
    return {"exit_code": code, **(without_place(json.loads(said)[0]) if code != 2 else {})}


def planned(path: Path) -> dict[str, Any]:
    """The runs of a study file: the path of each log, and what its header would say that must agree to resume it."""
    identity = (
        "workload", "space", "fingerprint", "policy", "cost_model", "features", "seed", "batch", "target", "measure",
        "warm_start", "label", "space_label",
    )  # fmt: skip
    runs, left_out = Study.load(path).plan()
    headers = {str(run.log): msgspec.to_builtins(run.header(1)) for run in runs}
    return {
        "runs": {place: {name: header[name] for name in identity} for place, header in headers.items()},
        "left_out": len(left_out),
    }


def numbers_of_then(summary: dict[str, Any]) -> dict[str, Any]:
    """``summary`` without what strategies and contrasts have had since, and what is reckoned in another way."""

    def kept(row: dict[str, Any]) -> dict[str, Any]:
        return {
            name: {part: number for part, number in value.items() if part not in (*INTERVAL, "note")}
            if name in REACHED
            else value
            for name, value in row.items()
            if name not in (*SINCE, *RECKONED) and not (name in TESTED and "first" in row)
        }

    workloads = [
        {**kept(item), "strategies": [*map(kept, item["strategies"])], "contrasts": [*map(kept, item["contrasts"])]}
        for item in summary["workloads"]
    ]
    return {name: value for name, value in summary.items() if name != "family"} | {"workloads": workloads}


def as_before(found: dict[str, Any]) -> dict[str, Any]:
    """``found`` without what was added since, which must say nothing new of old logs."""
    for name, nothing in ADDED.items():
        assert found.get(name, nothing) == nothing, name
    return {name: value for name, value in found.items() if name not in ADDED}
