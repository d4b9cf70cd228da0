"""How well the reproductions agree with recorded runs of the originals: ``python agreement.py results/fidelity``.

Area is the mean over the trials of best so far, as a share of the table's best; trials to 95 % are those until a config
is within 95 % of it. Both are compared by two-sample tests over seeds. ``--json FILE`` writes the figures too, and
``--origins`` prints the table of all policies, what they are and how they differ, which RESULTS.md has.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from recorded import HERE, RECORDINGS, original
from scipy.stats import ks_2samp, mannwhitneyu

from searchlab.log.format import find_logs, read_log
from searchlab.policy import origins

AGREEMENT = HERE.parent / "reference" / "fidelity" / "agreement.json"

# Strategies of the study that another recording than their own is compared with.
OTHERS = {"autotvm-xgb-knob": "autotvm-xgb"}


def curves(logs: Sequence[Path]) -> dict[str, list[np.ndarray[Any, Any]]]:
    """Best so far as a share of the table's best, of each run of each strategy."""
    table = read_log(HERE / "gemm-knob-template.jsonl.gz")
    best = min(float(np.mean(trial.measurement.seconds)) for trial in table.trials if np.isfinite(trial.cost))
    found: dict[str, list[np.ndarray[Any, Any]]] = {}
    for log in map(read_log, logs):
        shares = np.array([best / trial.cost for trial in log.trials])
        found.setdefault(log.header.name, []).append(np.maximum.accumulate(shares))
    return found


def compared(ours: list[np.ndarray[Any, Any]], theirs: list[np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Both samples over as many trials as every run of both has."""
    trials = min(map(len, [*ours, *theirs]))
    areas = [np.array([curve[:trials].mean() for curve in curves]) for curves in (ours, theirs)]
    # A run that never gets there counts as one trial more than there are, and so do all such runs.
    hits = [np.array([int(np.sum(curve[:trials] < 0.95)) + 1 for curve in curves]) for curves in (ours, theirs)]
    return {
        "runs": len(ours), "recorded_runs": len(theirs), "trials": trials,
        "area": areas[0].mean(), "recorded_area": areas[1].mean(),
        "recorded_area_error": areas[1].std(ddof=1) / np.sqrt(len(theirs)),
        "ratio": areas[0].mean() / areas[1].mean(),
        "area_p": mannwhitneyu(*areas).pvalue, "area_ks_p": ks_2samp(*areas).pvalue,
        "to_95": float(np.median(hits[0])), "recorded_to_95": float(np.median(hits[1])),
        "to_95_p": mannwhitneyu(*hits).pvalue if np.ptp(np.concatenate(hits)) else 1.0,
    }  # fmt: skip


def agreement_table(figures: dict[str, Any]) -> str:
    lines = [
        "| strategy | trials | area | original | ratio | p | trials to 95 % | original | p |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, one in figures.items():
        to_95 = [f"{one[key]:g}" if one[key] <= one["trials"] else "never" for key in ("to_95", "recorded_to_95")]
        lines.append(
            f"| `{name}` | {one['trials']} | {one['area']:.3f} | {one['recorded_area']:.3f} "
            f"(± {one['recorded_area_error']:.3f}) | {one['ratio']:.3f} | {one['area_p']:.2f} | {to_95[0]} | "
            f"{to_95[1]} | {one['to_95_p']:.2f} |"
        )
    return "\n".join(lines)


def origins_table(figures: dict[str, Any]) -> str:
    """Every policy that declares where it comes from, as Markdown; agreement where it was held against the original."""
    lines = ["| policy | what it is | agreement | it differs in |", "|---|---|---|---|"]
    for name, origin in origins().items():
        one = figures.get(name)
        agreed = f"area {one['ratio']:.3f} of the original's, p = {one['area_p']:.2f}" if one else ""
        where = f"{origin.kind}: {origin.name}, {origin.version} (`{origin.source}`)"
        lines.append(f"| `{name}` | {where} | {agreed} | {'; '.join(origin.deviations)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--origins", action="store_true")
    given = parser.parse_args()
    if given.results is None:
        figures = json.loads(AGREEMENT.read_text())
    else:
        found = curves(find_logs(given.results))
        figures = {}
        for name, ours in found.items():
            recording = OTHERS.get(name, name)
            if recording in RECORDINGS and original(recording) in found:
                figures[name] = compared(ours, found[original(recording)])
        if given.json:
            given.json.parent.mkdir(parents=True, exist_ok=True)
            given.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(agreement_table(figures))
    if given.origins:
        print("\n" + origins_table(figures))


if __name__ == "__main__":
    main()
