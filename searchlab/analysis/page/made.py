"""How the runs of a report were made, and where their logs lie, as its page says it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...log.header import Header
from ...plugins import Plugin
from ..runs import ComparedRuns, LoggedRun
from ..words import listed


def strategies(comparison: ComparedRuns) -> list[dict[str, Any]]:
    """A row for each strategy as it was run; several where it was run in several ways, with the workloads of each."""
    ways: dict[tuple[str, ...], dict[str, list[LoggedRun]]] = {}
    for item in comparison.values():
        for strategy, runs in item.by_strategy.items():
            way = strategy, *_way(runs[0].log.header)
            ways.setdefault(way, {})[item.workload] = list(runs)
    several = {name for name in {way[0] for way in ways} if sum(way[0] == name for way in ways) > 1}
    rows = []
    for (strategy, policy, model, features, batch, warm), by_workload in sorted(ways.items()):
        runs = [run for own in by_workload.values() for run in own]
        lengths = [run.log.trials for run in runs]
        rows.append({
            "strategy": strategy, "policy": policy, "cost_model": model, "features": features, "batch": batch,
            "warm_start": warm, "seeds": number_ranges(run.seed for run in runs),
            "trials": " to ".join(map(str, sorted({min(lengths), max(lengths)}))),
            "on": listed(list(by_workload)) if strategy in several else "",
        })  # fmt: skip
    return rows


def _way(header: Header) -> tuple[str, str, str, str, str]:
    policy = plugin_text(header.policy)
    if header.effective:
        policy += f" (used: {_pairs(header.effective)})"
    model = plugin_text(header.cost_model) if header.cost_model else ""
    warm = f"{len(header.warm_start)} logs" if header.warm_start else ""
    return policy, model, header.features if header.cost_model else "", str(header.batch), warm


def plugin_text(plugin: Plugin) -> str:
    """The name of a plug-in, and the options that it was given."""
    return f"{plugin.name}: {_pairs(plugin.options)}" if plugin.options else plugin.name


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {one if isinstance(one, str) else json.dumps(one)}" for key, one in values.items())


def number_ranges(numbers: Iterable[int]) -> str:
    """Numbers in ascending order, those that follow each other as a range: "0 to 4, 7, 42"."""
    ordered = sorted(set(numbers))
    ranges = [[one for _, one in group] for _, group in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])]
    texts = [f"{own[0]} to {own[-1]}" if len(own) > 2 else ", ".join(map(str, own)) for own in ranges]
    return ", ".join(texts)


def facts(runs: Sequence[LoggedRun]) -> list[tuple[str, str]]:
    """What the runs of a workload were made with: names and texts. Where logs differ, all that they say."""
    headers = [run.log.header for run in runs]
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(header.created)) for header in headers if header.created})
    said = {
        "runs": [str(len(runs))],
        "space": [_space(header) for header in headers],
        "target": [_device(header.target) for header in headers],
        "host": [_pairs(header.host) for header in headers],
        "measured by": [_pairs(header.measure) for header in headers],
        "programs built at a time": [str(header.workers) for header in headers],
        "versions": [_pairs(header.versions) for header in headers],
        "made on": [" to ".join(dict.fromkeys((days[0], days[-1])))] if days else [],
    }
    distinct = {name: list(dict.fromkeys(filter(None, texts))) for name, texts in said.items()}
    return [(name, "; or ".join(texts)) for name, texts in distinct.items() if texts]


def _space(header: Header) -> str:
    label = f"{header.space_label} = " if header.space_label else ""
    size = f", {header.space_size:,} configs" if header.space_size else ""
    return f"{label}{plugin_text(header.space)}{size}"


def _device(target: Mapping[str, Any]) -> str:
    return _pairs({name: target[name] for name in ("kind", "mcpu", "arch", "num-cores") if name in target})


def log_links(runs: Sequence[LoggedRun], out: Path) -> list[tuple[str, list[tuple[int, str, str]]]]:
    """By strategy of a workload its logs: seed, name, and the link from a page in ``out``, "" if it is no file."""
    folders: dict[str, str] = {}

    def link(path: Path) -> str:
        if not os.path.isfile(path):
            return ""
        folder, name = os.path.split(path)
        if folder not in folders:
            folders[folder] = os.path.relpath(folder or ".", out)
        # Quoted, a name can neither leave its attribute nor begin with a scheme.
        return quote(os.fsencode(os.path.normpath(os.path.join(folders[folder], name))))

    return [
        (strategy, [(run.seed, run.file, link(run.log.path)) for run in own])
        for strategy, own in groupby(runs, lambda run: run.strategy)
    ]
