"""Tunes whole models, compares them with what users run in their place, and writes docs/results/models.md.

    python studies/benchmarks/end_to_end.py --trials 1000 --threads 1 2 --record      # all six models, for the page
    python studies/benchmarks/end_to_end.py gpt2 --trials 160 --threads 1             # one model, in results/models
    python studies/benchmarks/end_to_end.py gpt2 --library gpt2/model.so              # that has been tuned already
    python studies/benchmarks/end_to_end.py --page                                    # only write the page again

The models are those of studies/tutorials/models.py, for one image or 128 tokens, with random weights that are constants
on all sides. Each side runs in a process of its own, and they are timed in turn. The outputs must agree with those of
the model as TVM compiles it with its default schedules, whose time is the row's starting point.

A block of BERT or GPT-2 takes six minutes with 1,000 trials. A command that was interrupted continues if it is
repeated: ``searchlab model tune`` resumes from its logs, and rows with the same options are not measured again. With
``--record``, rows and the chart are stored in studies/reference/models, from which the page is written, and a busy
machine is refused.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import msgspec
import numpy as np
import pandas as pd
from model_peers import PEERS, make_module
from peers import require
from timing import leave_folder
from turns import Side, SideProcess, compare, serve
from versus import geometric_mean

import searchlab
from searchlab.analysis.charts.vegalite import COLOURS
from searchlab.console import format_execution_time
from searchlab.errors import SearchlabError
from searchlab.log.journal import read_journal
from searchlab.machine.host import available_cores, cpu_model, observe_load
from searchlab.model.decisions import DECISIONS_FILE, Decision, DecisionsHeader
from searchlab.model.inputs import bind_weights, find_main_function, inputs_of, random_inputs, read_arrays, write_arrays
from searchlab.model.library import SIGNATURE_FUNCTION, Signature
from searchlab.model.load import load_model
from searchlab.target import resolve_target

STUDIES = Path(__file__).parents[1]
RECORDS = STUDIES / "reference" / "models"
PAGE = STUDIES.parent / "docs" / "results" / "models.md"
CHART = "model-time.png"

TITLES = {
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "mobilenet_v2": "MobileNet-V2",
    "efficientnet_b0": "EfficientNet-B0",
    "transformer": "BERT block",
    "gpt2": "GPT-2 block",
}
PEER_TITLES = {"pytorch": "PyTorch", "inductor": "Inductor", "onnxruntime": "ONNX Runtime"}

SPACES = ("guided-conv2d,weights=packed,winograd=true", "guided-gemm,weights=packed", "sketch")
"""The spaces that are searched; each task is searched in the first that has programs for it."""

TOLERANCE = 1e-3
"""The largest difference between outputs, relative to the largest element, as in ``searchlab model tune``."""

DEFAULT_ROUNDS = 3
"""The number of rounds in which the slow program with TVM's default schedules is timed."""

MASKED = -1e4
"""What GPT-2 adds to the scores of later tokens."""

Row = dict[str, Any]


def default(task: Mapping[str, Any]) -> Side:
    """Write the model's inputs, weights and output to the task's folder, and return TVM's program."""
    import tvm
    from tvm import relax
    from tvm.s_tir import dlight

    module, folder = load_model(task["model"]), Path(task["folder"])
    main_function = find_main_function(module)
    model_inputs = inputs_of(module)
    arrays = {
        model_input.name: array
        for model_input, array in zip(model_inputs, random_inputs(model_inputs, np.random.default_rng(0)), strict=True)
    }
    if "mask" in arrays:
        arrays["mask"] = np.triu(np.full_like(arrays["mask"], MASKED), 1)
    count = int(module[main_function].attrs["num_input"])
    write_arrays(folder / "inputs.npz", dict([*arrays.items()][:count]))
    write_arrays(folder / "weights.npz", dict([*arrays.items()][count:]))
    target = resolve_target(task["target"]).tvm
    with target:
        module = tvm.transform.Sequential(
            [
                *relax.backend.cpu_generic.legalize_passes(target),
                # Without the rule GEMV: LLVM compiles its program for EfficientNet's excitation for over ten minutes.
                dlight.ApplyDefaultSchedule(dlight.cpu.Reduction()),
            ]
        )(bind_weights(module, folder / "weights.npz"))
    machine = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())
    tensors = [tvm.runtime.tensor(array) for array in [*arrays.values()][:count]]
    write_arrays(folder / "output.npz", {"output": machine[main_function](*tensors).numpy()})
    return Side(lambda: machine[main_function](*tensors), lambda: machine[main_function](*tensors).numpy())


def tuned(task: Mapping[str, Any]) -> Side:
    """Return the exported model, whose weights may also be arguments."""
    import tvm
    from tvm import relax

    folder = Path(task["folder"])
    arrays = read_arrays(folder / "inputs.npz") | read_arrays(folder / "weights.npz")
    machine = relax.VirtualMachine(tvm.runtime.load_module(task["library"]), tvm.cpu())
    signature = msgspec.json.decode(str(machine[SIGNATURE_FUNCTION]()), type=Signature)
    tensors = [tvm.runtime.tensor(arrays[model_input.name]) for model_input in signature.inputs]
    function = machine[signature.function]
    return Side(lambda: function(*tensors), lambda: function(*tensors).numpy(), {"version": searchlab.__version__})


def peer(task: Mapping[str, Any]) -> Side:
    import torch

    folder = Path(task["folder"])
    inputs, weights = ([*read_arrays(folder / f"{name}.npz").values()] for name in ("inputs", "weights"))
    module = make_module(task["model"].rpartition(":")[2], weights)
    return PEERS[task["side"]](module, [*map(torch.from_numpy, inputs)], folder)


def make_side(task: Mapping[str, Any]) -> Side:
    """Return the side of the task, with the difference between its output and the expected one as a fact.

    Raises:
        SearchlabError: If the output is wrong.
    """
    side = {"default": default, "tuned": tuned}.get(task["side"], peer)(task)
    side.run()
    expected = read_arrays(Path(task["folder"], "output.npz"))["output"]
    difference = float(np.abs(side.result() - expected).max() / np.abs(expected).max())
    if not difference <= TOLERANCE:
        raise SearchlabError(
            f"the output of {task['side']} for {task['model']} differs by {difference:.1e} of the largest element, "
            f"which is more than {TOLERANCE}; compare its network with that of the Relax module"
        )
    return replace(side, facts={**side.facts, "difference": f"{difference:.1e}"})


def tune(task: Mapping[str, Any], options: argparse.Namespace) -> Path:
    """Tune a model, or continue to, and return its library."""
    out = Path(task["folder"], "tuned")
    words = ["searchlab", "model", "tune", task["model"], "--bind", str(Path(task["folder"], "weights.npz"))]
    words += [word for space in SPACES for word in ("--space", space)]
    words += ["--trials", str(options.trials), "--batch", str(options.batch), "--target", task["target"], "--force"]
    if subprocess.run([sys.executable, "-m", *words, "--out", str(out)]).returncode:
        raise SearchlabError(f"the tuning of {task['model']} was not completed; repeat the command to continue")
    return out / "model.so"


def read_curve(folder: Path) -> list[tuple[int, float]]:
    """Return the number of trials and the estimated time of the model in seconds after each round."""
    _, decisions, _ = read_journal(folder / "tuned" / DECISIONS_FILE, Decision, DecisionsHeader)
    return [(decision.total, decision.model_seconds) for decision in decisions if decision.model_seconds is not None]


def measure(model: str, threads: int, options: argparse.Namespace) -> Row:
    """Tune a model, time it and its peers in turn, and return the table's row."""
    folder = options.out / f"{model}-{threads}t"
    folder.mkdir(parents=True, exist_ok=True)
    target = json.dumps({"kind": "native", "num-cores": threads})
    task = {"model": f"{options.file}:{model}", "threads": threads, "target": target, "folder": str(folder)}
    with SideProcess(__file__, {**task, "side": "default"}) as side:
        default_seconds = float(np.median([side.time()[0] for _ in range(DEFAULT_ROUNDS)]))
    library = options.library or tune(task, options)
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(SideProcess(__file__, {**task, "side": name, "library": str(library)}))
            for name in ("tuned", *options.peers)
        }
        result = compare(sides["tuned"], {name: sides[name] for name in options.peers}, options.rounds)
    for name in options.peers:
        result["peers"][name] |= sides[name].facts
    curve = [] if options.library else read_curve(folder)
    return {"default_seconds": default_seconds, **result, **sides["tuned"].facts, "curve": curve}


def record(model: str, threads: int, options: argparse.Namespace) -> Row:
    """Return a row that has been stored with the same options, or else measure and store it."""
    about = {"model": model, "threads": threads, "spaces": [*SPACES]}
    about |= {name: getattr(options, name) for name in ("trials", "batch", "rounds")}
    records = RECORDS if options.record else options.out
    path = records / f"{model}-{threads}t.json"
    row = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if about.items() <= row.items() and [*row["peers"]] == options.peers:
        return row
    if options.record and (load := observe_load()):
        raise SearchlabError(f"{model} is not recorded, because the machine is busy: {load}")
    result = measure(model, threads, options)
    machine = f"{available_cores()} cores of {cpu_model()}"
    row = {**about, "date": datetime.date.today().isoformat(), "machine": machine, **result}
    records.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row, indent=1) + "\n", "utf-8")
    return row


def strongest_peer(row: Row) -> str:
    """Return the name of the fastest peer."""
    return min(row["peers"], key=lambda name: float(row["peers"][name]["seconds"]))


def number_of_threads(row: Row) -> str:
    return f"{row['threads']} thread{'s' * (row['threads'] > 1)}"


def ratio_text(peer: Row) -> str:
    low, high = peer["ratio_quartiles"]
    return f"{peer['ratio']:.2f} ({low:.2f} to {high:.2f})"


def line(row: Row) -> str:
    """Return the text to print when a row has been measured."""
    times = f"{format_execution_time(row['ours_seconds'])} instead of {format_execution_time(row['default_seconds'])}"
    peers = (
        f"{PEER_TITLES[name]} {format_execution_time(peer['seconds'])}, ratio {ratio_text(peer)}, "
        f"difference {peer['difference']}"
        for name, peer in row["peers"].items()
    )
    return "; ".join([f"{times}, difference {row['difference']}", *peers])


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table of times in milliseconds. The fastest of each row is bold."""
    head = ["model", "threads", "default schedules", "searchlab", *PEER_TITLES.values(), "strongest peer"]
    lines = [[*head, "its time / searchlab's (quartiles)"], ["---"] * (len(head) + 1)]
    for row in rows:
        seconds = [row["ours_seconds"], *(row["peers"][name]["seconds"] for name in PEER_TITLES)]
        times = [f"**{1e3 * value:,.2f}**" if value == min(seconds) else f"{1e3 * value:,.2f}" for value in seconds]
        name = strongest_peer(row)
        cells = [TITLES[row["model"]], str(row["threads"]), f"{1e3 * row['default_seconds']:,.0f}", *times]
        lines.append([*cells, PEER_TITLES[name], ratio_text(row["peers"][name])])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def draw(rows: Sequence[Row], file: Path) -> None:
    """Draw each model's estimated time by trials, and the time of its strongest peer as a dashed line."""
    panels = []
    for model in dict.fromkeys(row["model"] for row in rows):
        rows_of_model = [row for row in rows if row["model"] == model]
        curve = [
            {"trials": trials, "ms": seconds * 1e3, "threads": number_of_threads(row)}
            for row in rows_of_model
            for trials, seconds in row["curve"]
        ]
        levels = [
            {"ms": row["peers"][strongest_peer(row)]["seconds"] * 1e3, "threads": number_of_threads(row)}
            for row in rows_of_model
        ]
        y = alt.Y("ms:Q", title="ms", scale=alt.Scale(zero=False))
        colour = alt.Color("threads:N", title=None, scale=alt.Scale(range=list(COLOURS)))
        lines = (
            alt.Chart(pd.DataFrame(curve)).mark_line(interpolate="step-after").encode(x="trials:Q", y=y, color=colour)
        )
        rules = alt.Chart(pd.DataFrame(levels)).mark_rule(strokeDash=[6, 3]).encode(y=y, color=colour)
        panels.append(alt.layer(lines, rules).properties(width=330, height=220, title=TITLES[model]))
    alt.concat(*panels, columns=2).save(file, scale_factor=2)


HEAD = """# Whole models

*Written by `python studies/benchmarks/end_to_end.py --page`, from the records in `studies/reference/models`.*

How fast are models that `searchlab model tune` has tuned, compared with what users run in its place? Six models for
one input, four for an image and a block each of BERT and GPT-2 for 128 tokens, have the same random weights, as
constants, in searchlab, in PyTorch (eager), in its compiler Inductor with `freezing`, and in ONNX Runtime. Each side
runs in a process of its own, and they are timed in turn. A ratio is the median, over the rounds, of the strongest
peer's time divided by searchlab's: above 1, searchlab is faster. The starting point is the time with TVM's default
schedule for reductions on CPUs, that of `tvm.s_tir.dlight`.
"""

CAPTION = "Each model's time by trials, estimated from its tasks; dashed lines are the times of the strongest peers"


def read_rows() -> list[Row]:
    """Return the recorded rows, in the order of the models."""
    rows = [json.loads(path.read_text("utf-8")) for path in RECORDS.glob("*.json")]
    return sorted(rows, key=lambda row: ([*TITLES].index(row["model"]), row["threads"]))


def page() -> Iterator[str]:
    """Yield the parts of the page."""
    yield HEAD
    rows = read_rows()
    if not rows:
        yield "Not measured yet: `python studies/benchmarks/end_to_end.py --trials 1000 --threads 1 2 --record`"
        return
    trials = sorted({row["trials"] for row in rows})
    count = " or ".join(f"{number:,}" for number in trials)
    yield (
        f"`python studies/benchmarks/end_to_end.py --trials {trials[-1]} --threads "
        f"{' '.join(map(str, sorted({row['threads'] for row in rows})))} --record`, {count} trials for each model, on "
        f"{' and '.join(sorted({row['machine'] for row in rows}))}, {max(row['date'] for row in rows)}.\n"
    )
    yield f"Times in milliseconds; the fastest is bold.\n\n{table(rows)}\n"
    ratios = [row["peers"][strongest_peer(row)]["ratio"] for row in rows]
    faster = sum(ratio > 1 for ratio in ratios)
    yield (
        f"searchlab is faster than the strongest peer in {faster} of {len(rows)} rows; the geometric mean of the "
        f"ratios is {geometric_mean(ratios):.2f}. Outputs differ by at most "
        f"{max(float(result['difference']) for row in rows for result in (row, *row['peers'].values())):.1e} of the "
        "largest element.\n"
    )
    if waiting := [TITLES[name] for name in TITLES if name not in {row["model"] for row in rows}]:
        yield f"Not measured yet: {', '.join(waiting)}.\n"
    versions = {f"{PEER_TITLES[name]} {peer['version']}" for row in rows for name, peer in row["peers"].items()}
    yield f"{', '.join(sorted(versions))}.\n"
    yield f"![{CAPTION}](../../studies/reference/models/{CHART})\n"
    yield f"{CAPTION}."


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"models (all): {', '.join(TITLES)}")
    parser.add_argument("--file", default=STUDIES / "tutorials" / "models.py", help="file with the models")
    parser.add_argument("--trials", type=int, default=1000, help="number of trials for each model (1000)")
    parser.add_argument("--batch", type=int, default=8, help="number of trials in a round (8)")
    parser.add_argument("--threads", type=int, nargs="+", default=[available_cores()], help="numbers of threads (all)")
    parser.add_argument("--rounds", type=int, default=21, help="number of rounds in which all sides are timed (21)")
    parser.add_argument("--peers", nargs="*", default=[*PEERS], choices=[*PEERS], help="what to compare with (all)")
    parser.add_argument("--library", type=Path, help="a library of `searchlab model tune`, instead of tuning")
    parser.add_argument("--out", type=Path, default=Path("results/models"), help="directory (results/models)")
    parser.add_argument("--record", action="store_true", help="store the rows for the page, and write it")
    parser.add_argument("--page", action="store_true", help="only draw the stored rows, and write the page")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    try:
        if options.worker:
            leave_folder()
            serve(lambda: make_side(json.loads(options.worker)))
            return
        require([] if options.page else options.peers)
        for model in [] if options.page else options.models or TITLES:
            for threads in options.threads:
                row = measure(model, threads, options) if options.library else record(model, threads, options)
                print(f"{model} on {threads}: {line(row)}", flush=True)
    except (SearchlabError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
    if options.page or options.record:
        if rows := read_rows():
            draw(rows, RECORDS / CHART)
        PAGE.write_text("\n".join(page()).rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
