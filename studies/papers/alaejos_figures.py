"""Measures and draws the figures of the talk of Alaejos et al., and writes docs/results/manual-versus-automatic.md.

    python studies/papers/alaejos_figures.py micro-kernels algorithms    # these figures, in results/alaejos
    python studies/papers/alaejos_figures.py --record                    # all of them, for the page
    python studies/papers/alaejos_figures.py --page                      # measure nothing, only draw and write the page

Each figure compares a few spaces or options on a few workloads, which ``--workloads`` replaces. Trials are logged, so a
figure that was interrupted continues. With ``--record``, the rows and the chart are stored in
studies/reference/alaejos, from which the page is written, and a busy machine is refused. ``headline`` draws the runs
of studies/papers/alaejos.toml, which must have been run before, with the libraries as horizontal lines.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

import searchlab
from searchlab.analysis.charts.vegalite import COLOURS
from searchlab.errors import SearchlabError
from searchlab.log.result import Result
from searchlab.machine.host import available_cores, cpu_model, observe_load
from searchlab.target import Target, resolve_target
from searchlab.workload import PACK, Conv2d, Gemm, parse_workload
from searchlab.workload.base import list_arguments
from searchlab_spaces.guided.gemm import GuidedGemm
from searchlab_spaces.guided.gemm_algorithms import ALGORITHMS, EXTENT_LETTERS, OPERAND_INDICES, Algorithm
from searchlab_spaces.guided.words import explain_missing_instruction

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import peers
from timing import leave_folder, resnet50
from turns import SideProcess, check_result, serve

leave_folder()

STUDIES = Path(__file__).parents[1]
RECORDS = STUDIES / "reference" / "alaejos"
PAGE = STUDIES.parent / "docs" / "results" / "manual-versus-automatic.md"
DIAGRAM = PAGE.with_name("gemm-algorithms.svg")
MEASURE = {"kind": "local", "repeat": 3, "min_repeat_ms": 10}

TALK = "gemm:2000x2000x2000"
LAYER_6 = "resnet50/gemm2.1a:b128"
LAYERS = resnet50("gemm")
LIBRARIES = {"openblas": "OpenBLAS", "blis": "BLIS", "mkl": "MKL"}

Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What to measure: the options of the command line, or the defaults of the figure."""

    workloads: Sequence[str]
    trials: int
    threads: Sequence[int]
    logs: Path  # the directory for logs of a figure
    study: Path  # the directory with the runs of studies/papers/alaejos.toml
    libraries: Path  # the rows of the figure ``libraries``


@dataclass(frozen=True)
class Figure:
    """A figure of the talk: how to measure and draw it."""

    title: str
    caption: str  # how to read the chart
    measure: Callable[[Settings], Iterable[Row]]
    draw: Callable[[pd.DataFrame], alt.TopLevelMixin] | None  # None for a table
    workloads: Sequence[str]
    minutes: int  # about how long it takes on two idle cores; 0 if nothing is timed
    trials: int = 16
    threads: Sequence[int] = (1,)


def results(
    settings: Settings, spaces: Mapping[str, Row], workloads: Sequence[str] = (), policy: str = "random", name: str = ""
) -> Iterator[tuple[str, str, int, Result]]:
    """Search each workload in each space, on each number of threads.

    Args:
        settings: What to measure.
        spaces: Each space's options, by label. ``name`` is that of the space if it is not guided-gemm.
        workloads: The workloads, if they are not those of the settings.
        policy: The policy.
        name: The space.

    Yields:
        The workload, the label, the number of threads, and the run.
    """
    by_text = {str(parse_workload(text)): text for text in workloads or settings.workloads}
    entries = [{"name": name or "guided-gemm", "label": label, "options": options} for label, options in spaces.items()]
    for threads in settings.threads:
        study = searchlab.Study.from_dict(
            {
                "workloads": list(by_text.values()),
                "spaces": entries,
                "policies": [policy],
                "trials": settings.trials,
                "target": {"kind": "native", "num-cores": threads},
                "measure": MEASURE,
            }
        )
        runs = study.run(settings.logs / f"{threads}-threads")
        for planned_run, result in zip(study.planned_runs(), runs, strict=True):
            yield by_text[planned_run.workload], planned_run.space, threads, result


def best_of(settings: Settings, spaces: Mapping[str, Row], workloads: Sequence[str] = ()) -> Iterator[Row]:
    """Yield a row for the best program of each workload in each space."""
    for workload, label, threads, result in results(settings, spaces, workloads):
        best = result.best
        yield {
            "workload": workload,
            "label": label,
            "threads": threads,
            "gflops": best.gflops,
            "config": best.config.to_json(),
        }


def micro_kernels(settings: Settings) -> Iterator[Row]:
    """Yield a row for each dimension of the micro-kernel, on each workload."""
    for workload, _, threads, result in results(settings, {"micro-kernels": {}}, policy="grid"):
        for trial in result.trials:
            gflops = result.log.flops / trial.cost / 1e9  # 0 for a failure
            yield {"workload": workload, "threads": threads, **trial.config.to_json(), "gflops": gflops}


def data_types(settings: Settings) -> Iterator[Row]:
    """Yield a row for each data type, and for the dot-product instructions of those that have them."""
    target = resolve_target({"kind": "native", "num-cores": 1})
    for dtype in ("float64", "float32", "float16", "bfloat16", "int16", "int8", "uint8"):
        spaces: dict[str, Row] = {dtype: {}}
        if not explain_missing_instruction(dtype, target):
            spaces[f"{dtype}, dot products"] = {"dot": True}
        for row in best_of(settings, spaces, [f"{name}:{dtype}" for name in settings.workloads]):
            yield row | {"workload": row["workload"].removesuffix(f":{dtype}")}


def packing(settings: Settings) -> Iterator[Row]:
    """Yield a row for each choice of packed operands."""
    spaces = {
        "neither": {"pack_a": False, "pack_b": False},
        "A": {"pack_b": False},
        "B": {"pack_a": False},
        "A and B": {},
    }
    yield from best_of(settings, spaces)


def algorithms(settings: Settings) -> Iterator[Row]:
    """Yield a row for each of the six algorithms, and for B3A2C0 with its loops as in the talk."""
    spaces: dict[str, Row] = {name: {"algorithm": name} for name in ALGORITHMS}
    yield from best_of(settings, spaces | {"B3A2C0, jc pc ic": {"order": "published", "kc": "paper"}})


def loop_orders(settings: Settings) -> Iterator[Row]:
    """Yield a row for each order of the three loops of the definition."""
    orders = ("ijk", "ikj", "jik", "jki", "kij", "kji")
    yield from best_of(settings, {order: {"variant": "basic", "loops": order} for order in orders})


def parallel_loops(settings: Settings) -> Iterator[Row]:
    """Yield a row for each loop of B3A2C0 that may be parallel, and each number of threads."""
    yield from best_of(settings, {loop: {"parallel": loop} for loop in ("none", "auto", "jc", "ic", "jr", "ir")})


def convolutions(settings: Settings) -> Iterator[Row]:
    """Yield a row for each lowering of each convolution: its time, and the share beyond that of its products.

    The products are those of the layer's GEMM on patches that exist, at the throughput of the best program for it.
    Winograd's F(4x4, 3x3) has a quarter of them.
    """
    products = {}
    for name in settings.workloads:
        layer = parse_workload(name)
        assert isinstance(layer, Conv2d)
        height, width = layer.out_size
        products[name] = str(searchlab.gemm(layer.n * height * width, layer.co, layer.reduction))
    unique = list(dict.fromkeys(products.values()))
    gemms = {workload: result.best for workload, _, _, result in results(settings, {"gemm": {"pack_a": False}}, unique)}
    spaces = {"lowerings": {"winograd": True}}
    for workload, _, threads, result in results(settings, spaces, name="guided-conv2d"):
        costs: dict[str, float] = {}
        for trial in result.trials:
            lowering = str(trial.config["lowering"])
            costs[lowering] = min(costs.get(lowering, math.inf), trial.cost)
        for lowering, cost in sorted(costs.items()):
            if math.isfinite(cost):
                product_seconds = gemms[products[workload]].seconds / (4 if lowering == "winograd" else 1)
                yield {
                    "workload": workload,
                    "label": lowering,
                    "threads": threads,
                    "gflops": result.log.flops / cost / 1e9,
                    "milliseconds": 1e3 * cost,
                    "copying": max(0.0, 1 - product_seconds / cost),
                }


def libraries(settings: Settings) -> Iterator[Row]:
    """Yield a row for the throughput of each installed library."""
    for threads in settings.threads:
        for name in LIBRARIES:
            try:
                peers.require([name], [threads])
            except SearchlabError as error:
                print(f"without {name} on {threads} threads: {error}", file=sys.stderr)
                continue
            for workload in settings.workloads:
                task = {"workload": workload, "threads": threads, "peer": name}
                with SideProcess(__file__, task) as side:
                    seconds = float(np.median([side.time()[0] for _ in range(settings.trials)]))
                    gflops = parse_workload(workload).flops / seconds / 1e9
                    yield {"workload": workload, "label": name, "threads": threads, "gflops": gflops, **side.facts}


def headline(settings: Settings) -> Iterator[Row]:
    """Yield the points of each strategy's curve, and the libraries' throughput with as many threads."""
    if not any(settings.study.rglob("*.jsonl")):
        raise SearchlabError(
            f"there are no runs in {settings.study}; run python studies/papers/verdicts.py studies/papers/alaejos.toml "
            "first, or name their directory with --study"
        )
    by_text = {str(parse_workload(text)): text for text in settings.workloads}
    trials = searchlab.compare(settings.study).trials_frame().dropna(subset="best_gflops")
    for (workload, strategy, seed), run in trials.groupby(["workload", "strategy", "seed"], observed=True):
        rises = run[run["best_gflops"].diff().ne(0) | (run["trial"] == run["trial"].max())]
        for row in rises.to_dict("records") if workload in by_text else ():
            point = {"trials": row["trial"] + 1, "seconds": row["elapsed"], "best_gflops": row["best_gflops"]}
            yield {"workload": by_text[workload], "strategy": strategy, "seed": seed, **point}
    record = json.loads(settings.libraries.read_text()) if settings.libraries.exists() else {"rows": []}
    most = max((row["threads"] for row in record["rows"]), default=0)
    for row in record["rows"]:
        if row["threads"] == most and row["workload"] in settings.workloads:
            yield {"workload": row["workload"], "strategy": row["label"], "best_gflops": row["gflops"]}


def memory(settings: Settings) -> Iterator[Row]:
    """Yield the sizes of a program, of what it allocates and of packed weights, and those of the libraries."""
    target = resolve_target({"kind": "native", "num-cores": 1})
    for name in settings.workloads:
        workload = parse_workload(name)
        assert isinstance(workload, Gemm)
        operands = sum(bytes_of(argument.shape, argument.dtype) for argument in workload.arguments)
        for weights in ("plain", "packed"):
            space = GuidedGemm(workload, target, tiles="fitting", weights=weights)
            yield {
                "label": f"{name}, {weights} weights",
                "operands": operands,
                **program_sizes(space, target),
            }
    for label, files in library_files().items():
        yield {"label": label, "program": sum(file.stat().st_size for file in files)}


def program_sizes(space: GuidedGemm, target: Target) -> Row:
    """Return the sizes in bytes of the first program of a space: exported, its workspace, and packed weights."""
    import tvm
    from tvm.s_tir import transform

    module = space.schedule(space.config_at(0)).mod
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.so"
        tvm.compile(module, target=target.tvm).export_library(str(path))
        subprocess.run(["strip", str(path)], check=True)
        size = path.stat().st_size
    packing = {name.name_hint: function for name, function in module.functions.items()}.get(PACK + "B")
    packed = list_arguments(packing)[1:] if packing else ()
    for step in ("LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque"):
        module = getattr(transform, step)()(module)
    return {
        "program": size,
        "workspace": workspace_bytes(transform.CompactBufferAllocation()(module)["main"]),
        "packed": sum(bytes_of(argument.shape, argument.dtype) for argument in packed),
    }


def workspace_bytes(function: Any) -> int:
    """Return the size of all buffers that a function allocates, each of which is counted once, not for each thread."""
    from tvm.s_tir import SBlock
    from tvm_ffi import structural_walk

    sizes: list[int] = []

    def add(block: SBlock) -> None:
        sizes.extend(bytes_of(map(int, buffer.shape), str(buffer.dtype)) for buffer in block.alloc_buffers)

    structural_walk(function.body, [(SBlock, add)])
    return sum(sizes)


def bytes_of(shape: Iterable[int], dtype: str) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


def library_files() -> dict[str, list[Path]]:
    """Return the files of each installed library, and of the runtime that searchlab's programs need."""
    import numpy
    import tvm

    wheel = Path(numpy.__file__).parents[1] / "numpy.libs"
    files = {"OpenBLAS": sorted(wheel.glob("*openblas*.so*"))}
    if (blis := peers.blis_file()) is not None:
        files["BLIS"] = [blis]
    if (mkl := peers.mkl_file()) is not None:
        needed = re.compile(r"libmkl_(rt|core|intel_lp64|intel_thread|def|avx2|avx512)\.so")
        files["MKL, core and kernels"] = [file for file in mkl.parent.iterdir() if needed.match(file.name)]
    runtime = Path(tvm.__file__).parent
    files["TVM's runtime, which programs need"] = [
        *runtime.rglob("libtvm_runtime.so"),
        *Path(sys.modules["tvm_ffi"].__file__ or "").parent.rglob("libtvm_ffi.so"),
    ]
    return {label: paths for label, paths in files.items() if paths}


def mean_shares(frame: pd.DataFrame) -> pd.Series:
    """Return the throughput by mr and nr, as a percentage of each workload's best in the geometric mean."""
    best = frame.groupby("workload")["gflops"].transform("max")
    share = 100 * (frame["gflops"] / best).clip(lower=1e-3)
    return np.exp(np.log(share).groupby([frame["mr"], frame["nr"]]).mean())


def heat_map(frame: pd.DataFrame) -> alt.TopLevelMixin:
    """Draw the means of shares by mr and nr."""
    means = mean_shares(frame).round(0).rename("share").reset_index()
    base = alt.Chart(means).encode(
        x=alt.X("nr:O", title="nr, columns", axis=alt.Axis(labelAngle=0)), y=alt.Y("mr:O", title="mr, rows")
    )
    colours = alt.Color("share:Q", title="% of the best", scale=alt.Scale(scheme="blues", domain=[0, 100]))
    text = base.mark_text().encode(
        text="share:Q", color=alt.condition("datum.share > 60", alt.value("white"), alt.value("black"))
    )
    return alt.layer(base.mark_rect().encode(color=colours), text).properties(width=240, height=400)


def heat_map_and_layers(frame: pd.DataFrame) -> alt.TopLevelMixin:
    """Draw the heat map, beside the throughput on each layer of the best micro-kernel of each width."""
    best = mean_shares(frame).groupby("nr").idxmax()
    parts = [frame[(frame["mr"] == mr) & (frame["nr"] == nr)].assign(label=f"{mr} x {nr}") for mr, nr in best]
    panels = alt.hconcat(heat_map(frame), bars(pd.concat(parts)))
    return panels.resolve_scale(color="independent", shape="independent")


def bars(frame: pd.DataFrame, title: str = "GFLOPS") -> alt.TopLevelMixin:
    """Draw the throughput on each workload, with a line for each label, and a panel for each number of threads."""
    order, workloads = (list(dict.fromkeys(frame[column])) for column in ("label", "workload"))
    legend = alt.Legend(symbolOpacity=1)
    panels = frame["threads"].map(lambda n: f"{n} thread{'s' * (n > 1)}")
    base = alt.Chart(frame.assign(threads=panels, position=frame["workload"].map(workloads.index))).encode(
        x=alt.X("workload:N", sort=workloads, title=None),
        y=alt.Y("gflops:Q", title=title),
        color=alt.Color(
            "label:N", sort=order, title=None, scale=alt.Scale(domain=order, range=list(COLOURS)), legend=legend
        ),
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        shape=alt.Shape("label:N", sort=order, title=None, scale=alt.Scale(domain=order), legend=legend)
    )
    lines = base.mark_line(strokeWidth=1, opacity=0.4).encode(order="position:Q")
    return alt.layer(lines, points).properties(width=560, height=280).facet(row=alt.Row("threads:N", title=None))


def lowerings(frame: pd.DataFrame) -> alt.TopLevelMixin:
    """Draw the throughput of each lowering, above the share of its time that is not its products."""
    return alt.vconcat(bars(frame), bars(frame.assign(gflops=100 * frame["copying"]), "copying, % of the time"))


def curves(frame: pd.DataFrame) -> alt.TopLevelMixin:
    """Draw the best throughput so far by trials and by seconds, and the libraries as horizontal lines."""
    strategies = list(dict.fromkeys(frame.loc[frame["trials"].notna(), "strategy"]))
    colours = alt.Scale(domain=strategies, range=list(COLOURS))
    # Names beside the lines would cover each other where libraries are equally fast.
    dashes = alt.Scale(domain=list(LIBRARIES.values()), range=[[6, 3], [2, 2], [8, 2, 2, 2]])
    rows = []
    for workload, part in frame.groupby("workload", sort=False):
        searches, levels = part[part["trials"].notna()], part[part["trials"].isna()]
        lines = (
            alt.Chart(searches)
            .mark_line(interpolate="step-after", opacity=0.7)
            .encode(
                y=alt.Y("best_gflops:Q", title="best GFLOPS so far"),
                color=alt.Color("strategy:N", title=None, scale=colours),
                detail="seed:N",
            )
        )
        rules = alt.Chart(levels).mark_rule(color="#767676", strokeWidth=1.5)
        rules = rules.encode(y="best_gflops:Q", strokeDash=alt.StrokeDash("strategy:N", title=None, scale=dashes))
        panels = [
            alt.layer(lines.encode(x=alt.X(f"{x}:Q", title=title, scale=alt.Scale(type="log"))), rules)
            for x, title in (("trials", "trials"), ("seconds", "seconds of search and measurement"))
        ]
        rows.append(alt.hconcat(*(panel.properties(width=330, height=260) for panel in panels), title=workload))
    return alt.vconcat(*rows)


THREADS = tuple(sorted({*(2**power for power in range(available_cores().bit_length())), available_cores()}))

FIGURES = {
    "libraries": Figure(
        "Libraries",
        "Each library in its own process. The package `blis` uses one thread.",
        libraries,
        bars,
        (TALK, *LAYERS, LAYER_6),
        5,
        trials=7,
        threads=THREADS,
    ),
    "headline": Figure(
        "The generator and the searches",
        "The best program so far of each system, by trials and seconds, a line per seed; dashed lines are libraries.",
        headline,
        curves,
        (TALK, LAYER_6),
        1,
    ),
    "micro-kernels": Figure(
        "Dimensions of the micro-kernel, layer 6",
        "The throughput of the 64 micro-kernels with m = 401408 and n = k = 64, in per cent of the best.\n"
        "A micro-kernel updates mr rows and nr columns of C, and spills if they do not fit into the registers.",
        micro_kernels,
        heat_map,
        (LAYER_6,),
        2,
        trials=64,
    ),
    "micro-kernels-layers": Figure(
        "Dimensions of the micro-kernel, all layers",
        "The same for all layers with one image: the geometric mean of the percentages of each layer's best, and\n"
        "the throughput on each layer of the micro-kernel with the highest mean of each width.",
        micro_kernels,
        heat_map_and_layers,
        LAYERS,
        4,
        trials=64,
    ),
    "data-types": Figure(
        "Data types",
        "The best of 16 random micro-kernels for each type, also with dot-product instructions if the CPU has them.\n"
        "Integers are summed in int32, bfloat16 in float32.",
        data_types,
        bars,
        LAYERS,
        70,
    ),
    "packing": Figure(
        "With and without packing",
        "The best of 16 random micro-kernels, depending on which operands are packed. The default is to pack both, as\n"
        "for B3A2C0 in the next figure: any difference between these two columns is noise.",
        packing,
        bars,
        LAYERS,
        6,
    ),
    "algorithms": Figure(
        "Six algorithms",
        "The best of 16 random micro-kernels for each algorithm, and for B3A2C0 with the loops of the talk.",
        algorithms,
        bars,
        LAYERS,
        9,
    ),
    "loop-orders": Figure(
        "Three loops in any order",
        "The definition without blocks or packing, vectorised over j: the best of four widths for each order.",
        loop_orders,
        bars,
        LAYERS,
        2,
        trials=4,
    ),
    "parallel": Figure(
        "The parallel loop",
        "The best of 16 random micro-kernels, depending on which loop is divided among the threads. `auto` computes\n"
        "tasks that consist of blocks of C, which may divide two loops.",
        parallel_loops,
        bars,
        LAYERS,
        50,
        threads=THREADS[1:] or THREADS,
    ),
    "convolutions": Figure(
        "Im2row, direct and Winograd",
        "The best program of each lowering in 48 random trials, and the share of its time beyond that of its products\n"
        "(in the table, in brackets).",
        convolutions,
        lowerings,
        resnet50("conv"),
        40,
        trials=48,
    ),
    "memory": Figure(
        "Memory",
        "Bytes. A program for one thread is a stripped shared library; the workspace is what it allocates in a call.\n"
        "Packed weights are made once. Libraries contain all of their functions, for all CPUs.",
        memory,
        None,
        (TALK, "resnet50/gemm2.1a", "resnet50/gemm5.1b"),
        0,
    ),
}


def record(name: str, options: argparse.Namespace) -> None:
    """Measure and draw a figure, and write its rows, with how they were measured, and its chart."""
    figure = FIGURES[name]
    out = RECORDS if options.record else options.out
    settings = Settings(
        workloads=options.workloads or figure.workloads,
        trials=options.trials or figure.trials,
        threads=options.threads or figure.threads,
        logs=options.out / "logs" / name,
        study=options.study,
        libraries=out / "libraries.json",
    )
    about = {
        "figure": name,
        "command": " ".join(["python", "studies/papers/alaejos_figures.py", name, *measured_options(options)]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{available_cores()} cores of {cpu_model()}",
        "busy": bool(observe_load()),
    }
    if options.record and about["busy"] and figure.minutes:
        raise SearchlabError(f"{name} is not recorded, because the machine is busy; stop other processes first")
    rows = list(figure.measure(settings))
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", "utf-8")
    if figure.draw is not None:
        draw(figure, rows, out / f"{name}.png")
    print(table(figure, rows))


def draw(figure: Figure, rows: Sequence[Row], file: Path) -> None:
    assert figure.draw is not None
    figure.draw(to_frame(rows)).properties(title=figure.title).save(file, scale_factor=2)


def to_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the rows with the names of layers and libraries that charts and tables show."""
    frame = pd.DataFrame(rows)
    for column in {"workload", "label", "strategy"}.intersection(frame.columns):
        frame[column] = frame[column].str.replace("resnet50/", "").replace(LIBRARIES)
    return frame


def measured_options(options: argparse.Namespace) -> Iterator[str]:
    """Yield the options that determine what is measured."""
    for name in ("workloads", "trials", "threads"):
        if value := getattr(options, name):
            yield f"--{name}"
            yield from map(str, value if isinstance(value, list) else [value])
    if options.record:
        yield "--record"


def table(figure: Figure, rows: Sequence[Row]) -> str:
    """Return a Markdown table: GFLOPS by workload and label, or all columns if there is no chart.

    The best label of each workload is bold, unless the labels differ in their number of threads, too. The share of
    copying, if any, is in brackets.
    """
    frame = to_frame(rows)
    if figure.draw in (bars, lowerings):
        several = frame["threads"].nunique() > 1
        frame["label"] += frame["threads"].map(lambda n: f" ({n})") if several else ""
        by_label = frame.pivot(index="workload", columns="label").reindex(frame["workload"].unique())
        gflops = by_label["gflops"][frame["label"].unique()]
        complete = gflops.dropna()
        of = "" if len(complete) == len(gflops) else f" of {len(complete)}"
        gflops.loc[f"geometric mean{of}"] = np.exp(np.log(complete).mean())
        is_best = gflops.round().eq(gflops.round().max(axis=1), axis=0) & (not several)
        texts = gflops.map(number)
        texts = texts.where(~is_best, "**" + texts + "**")
        if "copying" in frame:
            shares = (100 * by_label["copying"]).map(lambda share: f" ({share:.0f} %)", na_action="ignore")
            texts += shares.reindex(index=texts.index, columns=texts.columns).fillna("")
        frame = texts.reset_index(names="workload")
    elif figure.draw is not None:
        return ""
    return markdown(list(map(str, frame.columns)), frame.to_numpy().tolist())


def markdown(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *([number(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: object) -> str:
    if isinstance(value, int | float):
        return "" if value != value else f"{value:,.0f}"
    return str(value)


HEAD = """# Manual versus automatic

*Written by `python studies/papers/alaejos_figures.py --page`, from the records in `studies/reference/alaejos`.*

In their talk *Manual versus automatic generation of computational kernels for deep learning inference*, G. Alaejos, A.
Castelló, P. Alonso-Jordá, F. D. Igual, H. Martínez and E. S. Quintana-Ortí ask: how long must an automatic search run
to reach what a generated micro-kernel with a model of the caches has at once, and what does a library do? This page has
the counterpart of each of its figures, with the command that measures and draws it. The talk's figures are from an ARM
Carmel and an Intel Ice Lake; the line above each chart names the machine here. Tables are in GFLOPS, and the best on
each layer is bold.

`guided-gemm` is the generator; the [catalogue](../catalogue/spaces.md) describes its options. The studies
`studies/papers/alaejos.toml` and `studies/papers/alaejos-long.toml` test the talk's claims.
"""

LAYER_TEXT = """## The layers

The GEMMs of ResNet-50 v1.5 on the patches of one image (im2row), which are called `resnet50/gemm1` and so on. With 128
images, as in `resnet50/gemm2.1a:b128`, m is 128 times as large. Layers of the same size are listed once.
"""


STYLE = """
  .diagram {
    --ink: var(--pst-color-text-base, #222832); --soft: var(--pst-color-text-muted, #48566b);
    --box: var(--pst-color-surface, #f3f4f5); --hue: var(--pst-color-primary, #0a7d91);
  }
  @media (prefers-color-scheme: dark) {
    .diagram {
      --ink: var(--pst-color-text-base, #e6edf3); --soft: var(--pst-color-text-muted, #b0bac6);
      --box: var(--pst-color-surface, #22272e); --hue: var(--pst-color-primary, #3fb1c5);
    }
  }
  .diagram text { font: 11.5px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--soft); }
  .diagram text { text-anchor: middle; }
  .diagram .name { font-size: 14px; font-weight: 600; fill: var(--ink); }
  .diagram rect { fill: var(--box); stroke: var(--hue); stroke-width: 1.5; }
"""


def operand_levels(algorithm: Algorithm) -> dict[str, str]:
    """Return what each level of the memory holds, from the registers to the L3 cache, such as ``A: mc x kc``."""

    def part(operand: str, sizes: Mapping[str, str]) -> str:
        return f"{operand}: {' x '.join(f'{EXTENT_LETTERS[dim]}{sizes[dim]}' for dim in OPERAND_INDICES[operand])}"

    outer, inner, resident = algorithm.operands
    blocks, tile = dict.fromkeys("ijp", "c"), dict.fromkeys("ijp", "r")
    return {
        "registers": part(resident, tile),
        "L1": f"micro-panel of {part(outer, {**tile, algorithm.s: 'c'})}",
        "L2": part(inner, blocks),
        "L3": part(outer, blocks),
    }


def diagram() -> str:
    """Return a drawing of the six algorithms: where the operands live, and the order of the loops."""
    width, height = 232, 214
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * width} {2 * height}" class="diagram">']
    parts.append(f"<style>{STYLE}</style>")
    for index, (name, algorithm) in enumerate(ALGORITHMS.items()):
        left, top = index // 2 * width, index % 2 * height
        middle = left + width // 2
        parts.append(f'<text class="name" x="{middle}" y="{top + 20}">{name}</text>')
        for level, (memory_level, content) in enumerate(operand_levels(algorithm).items()):
            size, y = 160 + 18 * level, top + 30 + 34 * level
            parts.append(f'<rect x="{middle - size // 2}" y="{y}" width="{size}" height="28" rx="4"/>')
            parts.append(f'<text x="{middle}" y="{y + 18}">{memory_level}, {content}</text>')
        published = replace(algorithm, uses_published_order=True)
        for line, (label, order) in enumerate({"published": published, "default": algorithm}.items()):
            loops = ", ".join(order.loop_order(is_single_pass=False))
            parts.append(f'<text x="{middle}" y="{top + 182 + 16 * line}">{label}: {loops}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def page() -> Iterator[str]:
    """Yield the parts of the page."""
    yield HEAD
    studies = [name for name in ("alaejos", "alaejos-long") if (RECORDS.parent / "papers" / f"{name}.json").exists()]
    yield (
        f"[Claims of papers](papers.md) has the verdicts of {' and '.join(f'`{name}.toml`' for name in studies)}.\n"
        if studies
        else "They have not been run yet.\n"
    )
    yield "## Where the operands live\n"
    yield "In the name XnYmZ0, a block of X stays in the L3 cache, one of Y in the L2 cache, and a micro-tile of Z in"
    yield "registers. The loops are listed from the outside; `order` selects those that the authors published. With the"
    yield "default order, a block of B or A in the L3 cache is packed in the full depth of k if C is in registers.\n"
    yield f"![The operands in registers and caches, and the loops, of {', '.join(ALGORITHMS)}]({DIAGRAM.name})\n"
    yield LAYER_TEXT
    gemms = {name: parse_workload(name) for name in LAYERS}
    sizes = [(name.removeprefix("resnet50/"), gemm.m, gemm.n, gemm.k) for name, gemm in gemms.items()]
    yield f"{markdown(('layer', 'm', 'n', 'k'), sizes)}\n"
    for name, figure in FIGURES.items():
        yield f"## {figure.title}\n"
        yield f"{figure.caption}\n"
        file = RECORDS / f"{name}.json"
        if not file.exists():
            command = f"python studies/papers/alaejos_figures.py {name} --record"
            yield f"Not measured yet. On two idle cores, this takes about {max(1, figure.minutes)} min: `{command}`\n"
            continue
        about = json.loads(file.read_text("utf-8"))
        yield f"`{about['command']}`, on {about['machine']}, {about['date']}.\n"
        if versions := {f"{LIBRARIES[row['label']]} {row['version']}" for row in about["rows"] if "version" in row}:
            yield f"{', '.join(sorted(versions))}.\n"
        if (RECORDS / f"{name}.png").exists():
            caption = figure.caption.replace("\n", " ")
            yield f"![{caption}](../../studies/reference/alaejos/{name}.png)\n"
        if text := table(figure, about["rows"]):
            yield f"{text}\n"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"figures (all): {', '.join(FIGURES)}")
    parser.add_argument("--workloads", nargs="+", help="workloads (default: those of the figure)")
    parser.add_argument("--trials", type=int, help="number of trials in each space (default: that of the figure)")
    parser.add_argument("--threads", nargs="+", type=int, help="numbers of threads (default: those of the figure)")
    parser.add_argument("--out", type=Path, default=Path("results/alaejos-figures"), help="directory for the results")
    study = Path("results", "papers", "alaejos", "this-machine")
    parser.add_argument("--study", type=Path, default=study, help=f"directory of the study's runs ({study})")
    parser.add_argument("--record", action="store_true", help="store the figures for the page, and write it")
    parser.add_argument("--page", action="store_true", help="only draw the stored figures, and write the page")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        task = json.loads(options.worker)
        workload = parse_workload(task["workload"])
        assert isinstance(workload, Gemm)
        serve(lambda: check_result(peers.GEMM[task["peer"]](workload), workload))
        return
    try:
        for name in [] if options.page else options.figures or FIGURES:
            if name not in FIGURES:
                raise SearchlabError(f"there is no figure {name!r}; the figures are {', '.join(FIGURES)}")
            record(name, options)
    except SearchlabError as error:
        sys.exit(str(error))
    for name, figure in FIGURES.items() if options.page else ():
        if figure.draw is not None and (file := RECORDS / f"{name}.json").exists():
            draw(figure, json.loads(file.read_text("utf-8"))["rows"], file.with_suffix(".png"))
    if options.page or options.record:
        DIAGRAM.write_text(diagram(), "utf-8")
        PAGE.write_text("\n".join(page()).rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
