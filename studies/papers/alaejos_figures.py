"""Measures and draws the figures of the talk of Alaejos et al., and writes docs/results/manual-versus-automatic.md.

    python studies/papers/alaejos_figures.py micro-kernels algorithms    # these figures, in results/alaejos
    python studies/papers/alaejos_figures.py --record                    # all of them, for the page
    python studies/papers/alaejos_figures.py --page                      # measure nothing, only write the page

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
from searchlab.workload.base import arguments_of
from searchlab_spaces.guided.gemm import GuidedGemm
from searchlab_spaces.guided.gemm_algorithms import ALGORITHMS, DIMS, EXTENT, Algorithm
from searchlab_spaces.guided.words import missing_instruction

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import peers
from timing import leave_folder, resnet50
from turns import SideProcess, serve

leave_folder()

STUDIES = Path(__file__).parents[1]
RECORDS = STUDIES / "reference" / "alaejos"
PAGE = STUDIES.parent / "docs" / "results" / "manual-versus-automatic.md"
DIAGRAM = PAGE.with_name("gemm-algorithms.svg")
MEASURE = {"kind": "local", "repeat": 3, "min_repeat_ms": 10}

TALK = "gemm:2000x2000x2000"
LAYER_6 = "resnet50/gemm2.1a:b128"
LAYERS = resnet50("gemm")

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
        for planned, result in zip(study.planned_runs(), runs, strict=True):
            yield by_text[planned.workload], planned.space, threads, result


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
        if not missing_instruction(dtype, target):
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
                alone = gemms[products[workload]].seconds / (4 if lowering == "winograd" else 1)
                yield {
                    "workload": workload,
                    "label": lowering,
                    "threads": threads,
                    "gflops": result.log.flops / cost / 1e9,
                    "milliseconds": 1e3 * cost,
                    "copying": max(0.0, 1 - alone / cost),
                }


def libraries(settings: Settings) -> Iterator[Row]:
    """Yield a row for the throughput of each installed library."""
    for threads in settings.threads:
        for name in ("openblas", "blis", "mkl"):
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
    packed = arguments_of(packing)[1:] if packing else ()
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
    return {label: found for label, found in files.items() if found}


def heat_map(frame: pd.DataFrame) -> alt.TopLevelMixin:
    """Draw the throughput by mr and nr, as a percentage of each workload's best in the geometric mean."""
    best = frame.groupby("workload")["gflops"].transform("max")
    share = 100 * (frame["gflops"] / best).clip(lower=1e-3)
    log_mean = np.log(share).groupby([frame["mr"], frame["nr"]]).mean()
    means = np.exp(log_mean).round(0).rename("share").reset_index()
    base = alt.Chart(means).encode(x=alt.X("nr:O", title="nr, columns"), y=alt.Y("mr:O", title="mr, rows"))
    colours = alt.Color("share:Q", title="% of the best", scale=alt.Scale(scheme="blues", domain=[0, 100]))
    text = base.mark_text().encode(
        text="share:Q", color=alt.condition("datum.share > 60", alt.value("white"), alt.value("black"))
    )
    return alt.layer(base.mark_rect().encode(color=colours), text).properties(width=240, height=400)


def bars(frame: pd.DataFrame) -> alt.TopLevelMixin:
    """Draw the throughput on each workload, with a mark for each label, and a panel for each number of threads."""
    order = list(dict.fromkeys(frame["label"]))
    names = frame["workload"].str.replace("resnet50/", "")
    data = frame.assign(workload=names, threads=frame["threads"].map(lambda n: f"threads: {n}"))
    chart = (
        alt.Chart(data)
        .mark_point(filled=True, size=60)
        .encode(
            x=alt.X("workload:N", sort=list(dict.fromkeys(names)), title=None),
            y=alt.Y("gflops:Q", title="GFLOPS"),
            color=alt.Color("label:N", sort=order, title=None, scale=alt.Scale(domain=order, range=list(COLOURS))),
            shape=alt.Shape("label:N", sort=order, title=None, scale=alt.Scale(domain=order)),
        )
    )
    return chart.properties(width=560, height=280).facet(row=alt.Row("threads:N", title=None))


def lowerings(frame: pd.DataFrame) -> alt.TopLevelMixin:
    """Draw the throughput of each lowering, above the share of its time that is not its products."""
    share = frame.assign(gflops=100 * frame["copying"])
    panels = [bars(frame), bars(share)]
    text = json.loads(alt.vconcat(*panels).to_json())
    text["vconcat"][1]["spec"]["encoding"]["y"]["title"] = "copying, % of the time"
    return alt.VConcatChart.from_dict(text)


def curves(frame: pd.DataFrame) -> alt.TopLevelMixin:
    """Draw the best throughput so far by trials and by seconds, and the libraries as horizontal lines."""
    searches, lines = frame[frame["trials"].notna()], frame[frame["trials"].isna()]
    order = list(dict.fromkeys(searches["strategy"]))
    panels = []
    for x, title in (("trials", "trials"), ("seconds", "seconds of search and measurement")):
        layers: list[Any] = [
            alt.Chart(searches)
            .mark_line(interpolate="step-after")
            .encode(
                x=alt.X(f"{x}:Q", title=title, scale=alt.Scale(type="log")),
                y=alt.Y("best_gflops:Q", title="best GFLOPS so far"),
                color=alt.Color("strategy:N", sort=order, title=None, scale=alt.Scale(range=list(COLOURS))),
                detail="seed:N",
            )
        ]
        if len(lines):
            rules = alt.Chart(lines).encode(y="best_gflops:Q")
            layers += [
                rules.mark_rule(strokeDash=[4, 4], color="#767676"),
                rules.mark_text(align="left", dx=4, dy=-6, color="#767676").encode(text="strategy:N", x=alt.value(0)),
            ]
        panels.append(alt.layer(*layers).properties(width=330, height=260))
    rows = [
        alt.hconcat(*(panel.transform_filter(alt.datum.workload == workload) for panel in panels), title=workload)
        for workload in dict.fromkeys(frame["workload"])
    ]
    return alt.vconcat(*rows)


THREADS = tuple(sorted({*(2**power for power in range(available_cores().bit_length())), available_cores()}))

FIGURES = {
    "libraries": Figure(
        "Libraries",
        "OpenBLAS, BLIS and MKL, each in its own process with its own kernels.",
        libraries,
        bars,
        (TALK, *LAYERS, LAYER_6),
        5,
        trials=7,
        threads=THREADS,
    ),
    "headline": Figure(
        "Manual versus automatic",
        "The best program so far of each system, by trials and by seconds; dashed lines are libraries.",
        headline,
        curves,
        (TALK, LAYER_6),
        1,
    ),
    "micro-kernels": Figure(
        "Dimensions of the micro-kernel, layer 6",
        "The throughput of the 64 micro-kernels with m = 401408 and n = k = 64, in per cent of the best.",
        micro_kernels,
        heat_map,
        (LAYER_6,),
        2,
        trials=64,
    ),
    "micro-kernels-layers": Figure(
        "Dimensions of the micro-kernel, all layers",
        "The same for all layers with one image: the geometric mean of the percentages of each layer's best.",
        micro_kernels,
        heat_map,
        LAYERS,
        4,
        trials=64,
    ),
    "data-types": Figure(
        "Data types",
        "The best of 16 micro-kernels for each type. Integers are summed in int32, bfloat16 in float32.",
        data_types,
        bars,
        LAYERS,
        70,
    ),
    "packing": Figure(
        "With and without packing",
        "The best of 16 micro-kernels, depending on which operands are packed.",
        packing,
        bars,
        LAYERS,
        6,
    ),
    "algorithms": Figure(
        "Six algorithms",
        "The best of 16 micro-kernels for each algorithm, and for B3A2C0 with the loops of the talk.",
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
        "The best of 16 micro-kernels, depending on which loop is divided among the threads.",
        parallel_loops,
        bars,
        LAYERS,
        50,
        threads=THREADS[1:] or THREADS,
    ),
    "convolutions": Figure(
        "Im2row, direct and Winograd",
        "The best program of each lowering, and the share of its time beyond that of its products.",
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
        frame = pd.DataFrame(rows)
        figure.draw(frame).properties(title=figure.title).save(out / f"{name}.png", scale_factor=2)
    print(table(figure, rows))


def measured_options(options: argparse.Namespace) -> Iterator[str]:
    """Yield the options that determine what is measured."""
    for name in ("workloads", "trials", "threads"):
        if value := getattr(options, name):
            yield f"--{name}"
            yield from map(str, value if isinstance(value, list) else [value])
    if options.record:
        yield "--record"


def table(figure: Figure, rows: Sequence[Row]) -> str:
    """Return a Markdown table: GFLOPS by workload and label, or all columns if there is no chart."""
    frame = pd.DataFrame(rows)
    if figure.draw in (bars, lowerings):
        frame["workload"] = frame["workload"].str.replace("resnet50/", "")
        frame["label"] += frame["threads"].map(lambda n: f" ({n})") if frame["threads"].nunique() > 1 else ""
        frame = frame.pivot_table(index="workload", columns="label", values="gflops", sort=False)
        frame.loc["geometric mean"] = np.exp(np.log(frame).mean())
        frame = frame.reset_index(names="workload")
    elif figure.draw is not None:
        return ""
    lines = [list(map(str, frame.columns)), ["---"] * len(frame.columns)]
    lines += [["" if value != value else number(value) for value in row] for row in frame.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


HEAD = """# Manual versus automatic

*Written by `python studies/papers/alaejos_figures.py --page`, from the records in `studies/reference/alaejos`.*

In their talk *Manual versus automatic generation of computational kernels for deep learning inference*, G. Alaejos, A.
Castelló, P. Alonso-Jordá, F. D. Igual, H. Martínez and E. S. Quintana-Ortí ask: how long must an automatic search run
to reach what a generated micro-kernel with a model of the caches has at once, and what does a library do? This page has
the counterpart of each of its figures, with the command that measures and draws it.

`guided-gemm` is the generator; the [catalogue](../catalogue/spaces.md) describes its options. The studies
`studies/papers/alaejos.toml` and `studies/papers/alaejos-long.toml` test the talk's claims.
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
        return f"{operand}: {' x '.join(f'{EXTENT[dim]}{sizes[dim]}' for dim in DIMS[operand])}"

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
        published = replace(algorithm, published=True)
        for line, (label, order) in enumerate({"published": published, "default": algorithm}.items()):
            loops = ", ".join(order.order(one_pass=False))
            parts.append(f'<text x="{middle}" y="{top + 182 + 16 * line}">{label}: {loops}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def page() -> Iterator[str]:
    """Yield the parts of the page."""
    yield HEAD
    tested = [name for name in ("alaejos", "alaejos-long") if (RECORDS.parent / "papers" / f"{name}.json").exists()]
    yield (
        f"[Claims of papers](papers.md) has the verdicts of {' and '.join(tested)}.\n"
        if tested
        else "They have not been run yet.\n"
    )
    yield "## Where the operands live\n"
    yield "In the name XnYmZ0, a block of X stays in the L3 cache, one of Y in the L2 cache, and a micro-tile of Z in"
    yield "registers. The loops are listed from the outside; `order` selects those that the authors published. With the"
    yield "default order, a block of B or A in the L3 cache is packed in the full depth of k if C is in registers.\n"
    yield f"![The operands in registers and caches, and the loops, of {', '.join(ALGORITHMS)}]({DIAGRAM.name})\n"
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
        if (RECORDS / f"{name}.png").exists():
            yield f"![{figure.caption}](../../studies/reference/alaejos/{name}.png)\n"
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
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        task = json.loads(options.worker)
        workload = parse_workload(task["workload"])
        assert isinstance(workload, Gemm)
        serve(workload, lambda: peers.GEMM[task["peer"]](workload))
        return
    try:
        for name in [] if options.page else options.figures or FIGURES:
            if name not in FIGURES:
                raise SearchlabError(f"there is no figure {name!r}; the figures are {', '.join(FIGURES)}")
            record(name, options)
    except SearchlabError as error:
        sys.exit(str(error))
    if options.page or options.record:
        DIAGRAM.write_text(diagram(), "utf-8")
        PAGE.write_text("\n".join(page()).rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
