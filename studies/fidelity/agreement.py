"""Measures the agreement of the reproductions with recorded runs of the originals.

    python agreement.py results/fidelity

The area is the mean, over the trials, of the best throughput so far, relative to the best in the table. Trials to 95 %
are the trials until a config reaches 95 % of that best. Both are compared with two-sample tests over seeds. ``--json
FILE`` also writes the figures to FILE. Without a directory, the recorded figures are printed. ``--origins`` prints a
table of the policies that reproduce or call an original, with their deviations, as in RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import vl_convert
from recorded import HERE, RECORDINGS, original
from scipy.stats import ks_2samp, mannwhitneyu

from searchlab.arrays import Array
from searchlab.log.read import find_logs, read_log
from searchlab.policy import origins

AGREEMENT = HERE.parent / "reference" / "fidelity" / "agreement.json"
SAME = AGREEMENT.with_name("same_numbers.json")

# Strategies of the study that are compared with the recording of a different one.
RECORDED_AS = {"autotvm-xgb-knob": "autotvm-xgb"}


Curves = list[Array]


def curves(logs: Sequence[Path]) -> dict[str, Curves]:
    """Return, by strategy, each run's best throughput so far, relative to the best in the table."""
    table = read_log(HERE / "gemm-knob-template.parquet")
    best = min(float(np.mean(trial.measurement.seconds)) for trial in table.trials if np.isfinite(trial.cost))
    by_strategy: dict[str, Curves] = {}
    for log in map(read_log, logs):
        shares = np.array([best / trial.cost for trial in log.trials])
        by_strategy.setdefault(log.header.name, []).append(np.maximum.accumulate(shares))
    return by_strategy


def compare_curves(own_curves: Curves, recorded_curves: Curves) -> dict[str, Any]:
    """Compare both samples over the number of trials that all runs have."""
    trials = min(map(len, [*own_curves, *recorded_curves]))
    areas = [np.array([curve[:trials].mean() for curve in curves]) for curves in (own_curves, recorded_curves)]
    # A run that never reaches 95 % counts as one more than the number of trials.
    hits = [
        np.array([int(np.sum(curve[:trials] < 0.95)) + 1 for curve in curves])
        for curves in (own_curves, recorded_curves)
    ]
    return {
        "runs": len(own_curves),
        "recorded_runs": len(recorded_curves),
        "trials": trials,
        "area": areas[0].mean(),
        "recorded_area": areas[1].mean(),
        "recorded_area_error": areas[1].std(ddof=1) / np.sqrt(len(recorded_curves)),
        "ratio": areas[0].mean() / areas[1].mean(),
        "area_p": mannwhitneyu(*areas).pvalue,
        "area_ks_p": ks_2samp(*areas).pvalue,
        "to_95": float(np.median(hits[0])),
        "recorded_to_95": float(np.median(hits[1])),
        "to_95_p": mannwhitneyu(*hits).pvalue if np.ptp(np.concatenate(hits)) else 1.0,
    }


def agreement_table(figures: dict[str, Any]) -> str:
    lines = [
        "| strategy | trials | area | original | ratio | p | trials to 95 % | original | p |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in figures.items():
        to_95 = [f"{row[key]:g}" if row[key] <= row["trials"] else "never" for key in ("to_95", "recorded_to_95")]
        lines.append(
            f"| `{name}` | {row['trials']} | {row['area']:.3f} | {row['recorded_area']:.3f} "
            f"(± {row['recorded_area_error']:.3f}) | {row['ratio']:.3f} | {row['area_p']:.2f} | {to_95[0]} | "
            f"{to_95[1]} | {row['to_95_p']:.2f} |"
        )
    return "\n".join(lines)


def describe_agreement(name: str, figures: dict[str, Any], same: dict[str, Any]) -> str:
    """Describe how well a policy agrees with its original."""
    parts = []
    if row := same.get("grid-b8" if name == "autotvm-grid" else RECORDINGS.get(name, "")):
        parts.append(
            f"with the original's random numbers, {row['identical']} of {row['runs']} runs are identical, and "
            f"the ratio of the areas is {row['ratio']:.3f}"
        )
    if row := figures.get(name):
        parts.append(f"with other seeds, the ratio is {row['ratio']:.3f} (p = {row['area_p']:.2f})")
    return "; ".join(parts)


def origins_table(figures: dict[str, Any], same: dict[str, Any]) -> str:
    """Return the reproductions and originals as a Markdown table, with the agreement where it was measured."""
    lines = ["| policy | what it is | agreement | deviations |", "|---|---|---|---|"]
    for name, origin in origins().items():
        if origin.kind == "relative":  # they have nothing to agree with; the catalogue lists them
            continue
        source = f"{origin.kind}: {origin.name}, {origin.version} (`{origin.source}`)"
        lines.append(
            f"| `{name}` | {source} | {describe_agreement(name, figures, same)} | {'; '.join(origin.deviations)} |"
        )
    return "\n".join(lines)


def draw(pairs: dict[str, tuple[Curves, Curves]], path: Path) -> None:
    """Draw a panel for each pair, with the medians and quartiles of the original and the reproduction overlaid."""
    rows = []
    for name, (own_curves, recorded_curves) in pairs.items():
        for label, group in (("TVM 0.17", recorded_curves), ("here", own_curves)):
            length = min(map(len, group))
            edges = np.quantile([curve[:length] for curve in group], [0.25, 0.5, 0.75], axis=0).round(4)
            for trial, (low, middle, high) in enumerate(edges.T.tolist(), 1):
                rows.append({"policy": name, "from": label, "trials": trial, "low": low, "y": middle, "high": high})
    x = {"field": "trials", "type": "quantitative"}
    y = {"type": "quantitative", "title": "best so far / the table's best"}
    colour = {"field": "from", "scale": {"range": ["#d55e00", "#0072b2"]}, "title": None}
    band = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": colour}
    layers = [
        {"mark": {"type": "area", "interpolate": "step-after", "opacity": 0.15}, "encoding": band},
        {
            "mark": {"type": "line", "interpolate": "step-after"},
            "encoding": {"x": x, "y": y | {"field": "y"}, "color": colour},
        },
    ]
    panel = {"width": 230, "height": 170, "layer": layers}
    facet = {"field": "policy", "title": None}
    spec = {"data": {"values": rows}, "columns": 3, "facet": facet, "spec": panel}
    path.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path, help="file for a picture of originals and reproductions, overlaid")
    parser.add_argument("--origins", action="store_true")
    options = parser.parse_args()
    if options.results is None:
        figures = json.loads(AGREEMENT.read_text())
    else:
        by_strategy = curves(find_logs(options.results))
        recorded_names = {name: original(RECORDED_AS.get(name, name)) for name in by_strategy}
        pairs = {
            name: (by_strategy[name], by_strategy[recorded_names[name]])
            for name in sorted(by_strategy)
            if recorded_names[name] in by_strategy
        }
        figures = {name: compare_curves(*pair) for name, pair in pairs.items()}
        if options.picture:
            draw(pairs, options.picture)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(agreement_table(figures))
    if options.origins:
        print("\n" + origins_table(figures, json.loads(SAME.read_text())))


if __name__ == "__main__":
    main()
