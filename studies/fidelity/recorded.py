"""Converts recorded runs of AutoTVM's tuners to searchlab's logs, for a report: ``python recorded.py DIRECTORY``.

AutoTVM's genetic algorithm may measure a config again. Such measurements are omitted, because searchlab does not count
them as trials.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from searchlab import Study
from searchlab.log.format import Record
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.space import ProductSpace

HERE = Path(__file__).parent
STUDY = HERE.parent / "fidelity.toml"

RECORDINGS = {
    "autotvm-random": "random-b8",
    "autotvm-ga": "ga-b8",
    "autotvm-ga-p16": "ga-p16e4-b8",
    "autotvm-xgb": "xgb-knob-reg-plan64-b64",
    "autotvm-xgb-itervar": "xgb-itervar-reg-plan64-b64",
    "autotvm-xgb-rank": "xgb-knob-rank-plan64-b64",
    "autotvm-xgb-plan8": "xgb-knob-reg-plan8-b8",
    "droplet": "droplet-starts-b8",
    "greedy-ils": "greedy-ils-b1",
    "one-plus-one": "one-plus-one-b1",
    "hybrid-vndx": "hybrid-vndx-b1",
    "tabu-grey-wolf": "tabu-grey-wolf-b1",
}
"""The recording of each strategy's original, whether or not the study runs the strategy."""


def original(label: str) -> str:
    """Return the name by which the report refers to the recorded runs."""
    return f"{label} (TVM 0.17)"


def main() -> None:
    out = Path(sys.argv[1])
    runs, _ = Study.load(STUDY).plan()
    table = {trial.config: trial for trial in read_log(HERE / "gemm-knob-template.parquet").trials}
    for run in runs:
        recording = RECORDINGS.get(run.strategy.name)
        if recording is None:
            continue
        space = run.space
        assert isinstance(space, ProductSpace)
        label = original(run.strategy.name)
        path = out / run.log_path.parent.with_name(label.replace(" ", "-")) / run.log_path.name
        indices = json.loads((HERE / "recorded" / f"{recording}.json").read_text())[str(run.seed)]
        header = msgspec.structs.replace(
            run.header, policy=Plugin("autotvm", {"recording": recording}), cost_model=None, features="", label=label
        )
        path.unlink(missing_ok=True)
        with LogWriter(path, header, durable=False) as log:
            for number, index in enumerate(dict.fromkeys(indices)):
                trial = table[space.config_at(index)]
                measured = replace(trial.measurement, statistic="mean")
                log.append(Record.from_trial(replace(trial, index=number, measurement=measured)))
    print(f"{len(RECORDINGS)} recordings are in {out}")


if __name__ == "__main__":
    main()
