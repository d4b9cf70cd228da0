"""Compares a guided space with libraries: the command line, rows and table that kernels.py and conv2d.py share."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from peers import require
from timing import ISAS, SpaceSpec, arguments, build, common_options, resnet50, run_worker, search
from turns import Side, SideProcess, check_result, compare, serve

from searchlab.errors import SearchlabError
from searchlab.machine.host import available_cores, cpu_model
from searchlab.space import Config
from searchlab.target import Target, resolve_target
from searchlab.workload import Workload, parse_workload

Weights = Literal["plain", "packed"]
"""Whether searchlab's side packs the weights in every call, or only once."""

BATCHES = (1, 8)
"""The batch sizes of the default workloads."""

TITLES = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS", "onednn": "oneDNN", "onednn-blocked": "oneDNN, blocked"}
"""The name of each peer in tables."""


@dataclass(frozen=True)
class Benchmark:
    """The definition of a comparison."""

    script: str
    description: str
    space: Callable[[Workload, Target, Weights], SpaceSpec]
    layers: str  # the layers of ResNet-50: "gemm" or "conv"
    others: Mapping[int, Sequence[str]]  # other workloads by batch size; 0 for those that belong to no network
    peers: Mapping[str, Callable[[Any], Side]]
    default: Sequence[str]  # the default peers
    check: Callable[[Workload, Sequence[str]], None]  # raises SearchlabError for unsupported workloads
    dtypes: Sequence[str] = ("float32",)

    def workloads(self, batches: Iterable[int], dtype: str = "float32") -> dict[str, int]:
        """Return the default workloads, each with its batch size, or 0 if it has none."""
        batches_by_name = dict.fromkeys(self.others.get(0, ()), 0)
        for batch in batches:
            suffix = "" if batch == 1 else f":b{batch}"
            batches_by_name |= dict.fromkeys(
                [*(name + suffix for name in resnet50(self.layers)), *self.others.get(batch, ())], batch
            )
        return (
            batches_by_name
            if dtype == "float32"
            else {f"{name}:{dtype}": batch for name, batch in batches_by_name.items()}
        )

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        parser = common_options(self.description)
        parser.add_argument(
            "workloads", nargs="*", metavar="WORKLOAD", help="workloads (default: the layers of ResNet-50)"
        )
        parser.add_argument(
            "--peer",
            nargs="+",
            default=[*self.default],
            choices=[*self.peers],
            dest="peers",
            help="libraries to compare with; put workloads before this option",
        )
        parser.add_argument(
            "--threads",
            nargs="+",
            type=int,
            metavar="N",
            help="numbers of threads per side (1 and all; in a table, all)",
        )
        parser.add_argument(
            "--batch",
            nargs="+",
            type=int,
            metavar="N",
            help="batch sizes of the default workloads (1 8); named ones contain theirs: resnet50/conv2.1a:b8",
        )
        parser.add_argument("--dtype", default=self.dtypes[0], choices=self.dtypes, help="dtype (float32)")
        parser.add_argument(
            "--weights", default="plain", choices=["plain", "packed"], help="whether ours are packed beforehand (plain)"
        )
        parser.add_argument("--isa", choices=[*ISAS], help="newest instruction set for all sides (default: the CPU's)")
        parser.add_argument("--markdown", action="store_true", help="print the table in FILE without measuring")
        return parser.parse_args(argv)

    def main(self, argv: Sequence[str] | None = None) -> None:
        options = self.parse(argv)
        if options.worker:
            self.work(json.loads(options.worker))
            return
        batches = options.batch or BATCHES
        if options.markdown:
            if not (options.json and options.json.exists()):
                sys.exit("--markdown prints the rows in a file; pass an existing file with --json FILE")
            rows = [row for row in json.loads(options.json.read_text()) if row["batch"] in (0, *batches)]
            print(markdown([row for row in rows if not options.threads or row["threads"] in options.threads]))
            return
        try:
            threads = options.threads or sorted({1, available_cores()})
            require(options.peers, threads)
            layers = self.workloads(batches, options.dtype)
            if options.batch and (foreign := [name for name in options.workloads if name not in layers]):
                raise SearchlabError(
                    f"--batch selects default workloads, and {foreign[0]} is none with batch "
                    f"{' or '.join(map(str, batches))}; omit --batch, or append :bN to the name"
                )
            workloads = {name: layers.get(name, 0) for name in options.workloads} or layers
            for name in workloads:
                self.check(parse_workload(name), options.peers)
        except SearchlabError as error:
            sys.exit(str(error))
        rows = []
        for count in threads:
            for name, batch in workloads.items():
                row = self.row(name, batch, count, options)
                rows = merge_rows(options.json, [*rows, row])
                print(format_row(row), flush=True)
        print(*summaries(rows), sep="\n")

    def row(self, name: str, batch: int, threads: int, options: argparse.Namespace) -> dict[str, Any]:
        """Run a search, time its best program and the peers in turn, and return the table's row."""
        task = {"workload": name, "threads": threads, "weights": options.weights}
        task |= {"isa": options.isa} if options.isa else {}
        search_result = run_worker(self.script, {**task, "trials": options.trials, "seed": options.seed})
        with ExitStack() as stack:
            own, *peer_sides = (
                stack.enter_context(SideProcess(self.script, {**task, **side}))
                for side in ({"config": search_result["config"]}, *({"peer": peer} for peer in options.peers))
            )
            peers = dict(zip(options.peers, peer_sides, strict=True))
            comparison = compare(own, peers, options.rounds)
        workload = parse_workload(name)
        rate = workload.flops / 1e9
        for peer, process in peers.items():
            result = comparison["peers"][peer]
            result |= {"gflops": rate / result.pop("seconds"), **process.facts}
        return {
            **task,
            "shape": str(workload),
            "batch": batch,
            "trials": options.trials,
            **search_result,
            **own.facts,
            "gflops": rate / comparison["ours_seconds"],
            "peers": comparison["peers"],
        }

    def work(self, task: dict[str, Any]) -> None:
        """Do the work of a separate process: the search, or one side of the comparison."""
        workload = parse_workload(task["workload"])
        if "peer" in task:
            serve(lambda: check_result(self.peers[task["peer"]](workload), workload))
            return
        cpu = {"mcpu": ISAS[task["isa"]][0]} if "isa" in task else {}
        target = resolve_target({"kind": "native", "num-cores": task["threads"]} | cpu)
        space = self.space(workload, target, task["weights"])
        if "config" in task:
            serve(lambda: check_result(self.own_side(space, workload, target, Config(task["config"])), workload))
            return
        print(json.dumps(search(space, workload, target, task["trials"], task["seed"])))

    def own_side(self, space: SpaceSpec, workload: Workload, target: Target, config: Config) -> Side:
        program, args = build(space, workload, target, config, arguments(workload, target))
        main = program["main"]
        return Side(
            lambda: main(*args), args[-1].numpy, {"cpu": f"{cpu_model()} ({target.spec.get('mcpu', 'generic')})"}
        )


def merge_rows(file: Path | None, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write ``rows`` to ``file``, replacing those with the same workload and threads. Return all rows in the file."""
    if file is None:
        return list(rows)
    existing = json.loads(file.read_text()) if file.exists() else []
    merged = {(row["workload"], row["threads"]): row for row in [*existing, *rows]}
    file.write_text(json.dumps(list(merged.values()), indent=1) + "\n")
    return list(merged.values())


def describe_config(config: Mapping[str, Any]) -> str:
    """Describe a config briefly: the names of enabled switches, numbers after their names, and words."""
    words = []
    for name, value in config.items():
        if isinstance(value, bool):
            words += [name] * value
        else:
            words.append(value if isinstance(value, str) else f"{name} {value}")
    return ", ".join(words)


def format_row(row: Mapping[str, Any]) -> str:
    """Return the line to print when a row has been measured."""
    peers = "; ".join(
        f"{peer} {result['gflops']:.0f}, ratio {result['ratio']:.3f} "
        f"({result['ratio_quartiles'][0]:.3f} to {result['ratio_quartiles'][1]:.3f}), of least times "
        f"{result['ratio_of_least']:.3f}"
        for peer, result in row["peers"].items()
    )
    unit = "GOPS" if parse_workload(row["shape"]).dtype == "int8" else "GFLOPS"
    return (
        f"{row['workload']} on {row['threads']}: {row['gflops']:.0f} {unit} ({describe_config(row['config'])}); {peers}"
    )


def geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def summaries(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the ratios' geometric mean and minimum by threads and batch size, for each peer and the best of them.

    The geometric mean of the ratios of minimum times is in parentheses.
    """
    groups: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["threads"], row["batch"]), []).append(row)
    lines = []
    for (threads, batch), group in groups.items():
        names = [name for name in group[0]["peers"] if all(name in row["peers"] for row in group)]
        against = {TITLES[name]: [name] for name in names} | ({"the best of them": names} if len(names) > 1 else {})
        for title, peer_names in against.items():
            by_kind = {
                kind: {row["workload"]: min(float(row["peers"][name][kind]) for name in peer_names) for row in group}
                for kind in ("ratio", "ratio_of_least")
            }
            mean, mean_of_least = (geometric_mean(values.values()) for values in by_kind.values())
            worst, least = min(by_kind["ratio"].items(), key=lambda item: item[1])
            lines.append(
                f"{len(group)} {'workload' if len(group) == 1 else 'workloads'}{f' of batch {batch}' if batch else ''} "
                f"on {threads} {'thread' if threads == 1 else 'threads'}, against {title}: geometric mean "
                f"{mean:.2f} ({mean_of_least:.2f}), least {least:.2f} ({worst})"
            )
    return lines


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table for docs/results/kernels.md, the geometric means, and the kernels that the libraries used.

    The build time is the sum over all of a search's builds. Some run in parallel, so it may exceed the search time.
    """
    peers = list(dict.fromkeys(name for row in rows for name in row["peers"]))
    head = [
        "workload",
        "size",
        "threads",
        "choices",
        "search (building), s",
        "searchlab",
        *(h for p in peers for h in (TITLES[p], "ratio (quartiles)")),
    ]
    lines = [" | ".join(head), "|".join(["---"] * len(head))]
    for row in rows:
        cells = [
            row["workload"].removeprefix("resnet50/"),
            re.sub(r"^\w+:", "", row["shape"]),
            str(row["threads"]),
            describe_config(row["config"]),
            f"{row['search_seconds']:.0f} ({row['build_seconds']:.0f})",
            f"{row['gflops']:.0f}",
        ]
        for peer in peers:
            result = row["peers"].get(peer)
            low, high = result["ratio_quartiles"] if result else (0, 0)
            cells += (
                [f"{result['gflops']:.0f}", f"{result['ratio']:.2f} ({low:.2f} to {high:.2f})"] if result else ["", ""]
            )
        lines.append(" | ".join(cells))
    lines = [f"| {text} |" if "---" not in text else f"|{text}|" for text in lines]
    facts = {
        f"- {TITLES[name]} {result.get('version', '')}: {result.get('kernels', '')}"
        for row in rows
        for name, result in row["peers"].items()
    }
    search_seconds = [row["search_seconds"] for row in rows]
    search_line = f"A search took {np.median(search_seconds):.0f} s in the median, {max(search_seconds):.0f} s at most."
    return "\n".join([*lines, "", *(f"- {text}" for text in summaries(rows)), *sorted(facts), search_line])
