"""Measures the contribution of each part of our policies by omitting one at a time, on a suite's development tables.

    python studies/papers/ablation.py v1 --jobs 2                    # gp-prior: about 7 minutes on two cores
    python studies/papers/ablation.py hub-v1 --jobs 2                # about 8 minutes
    python studies/papers/ablation.py v1 --policy gp-2 --jobs 2      # about 15 minutes

The variants of a policy are in `variants_POLICY.py`: those of a cold start in PARTS, and those of a start from other
workloads in WARM_PARTS. Each is compared with the first of its kind. To try an idea, add a variant: a policy's name, a
class, or a name with options. Logs are written to results/ablation, from which later calls resume; omit that directory
after you have changed a variant's code. The printed tables are part of studies/RESULTS.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.analysis import summarize
from searchlab.run.study import Study
from searchlab.stats.inference import paired_difference
from searchlab.suite.compare import group_suite_runs
from searchlab.suite.trajectories import collect_trajectories

sys.path.insert(0, str(Path(__file__).parents[1] / "suite"))
from results import markdown, with_interval

Variants = Mapping[str, str | type | tuple[str, Mapping[str, Any]]]


def make_study(suite: str, cold: Variants, warm: Variants, seeds: int, batch: int) -> Study:
    def entry(label: str, variant: Any, **settings: Any) -> dict[str, Any]:
        name, options = variant if isinstance(variant, tuple) else (variant, {})
        return {"name": name, "label": label, "options": options, "batch": batch, **settings}

    policies = [entry(label, variant) for label, variant in cold.items()]
    policies += [entry(label, variant, warm_start=[f"suite:{suite}/dev"]) for label, variant in warm.items()]
    return Study.from_dict({"suite": f"{suite}/dev", "seeds": seeds, "policies": policies})


def table(study: Study, out: Path, *kinds: Variants) -> str:
    """Return a row for each variant, with its differences from the first variant of its kind.

    The trials to 95 % are geometric means; runs that do not get there count with their budget. The seconds are those
    that the strategy itself takes.
    """
    suite = study.suite
    assert suite is not None
    results = collect_trajectories(suite, [out / run.log_path for run in study.plan().runs])
    seconds = {result.strategy: result.own_seconds for result in results}
    summary = summarize(group_suite_runs(suite, results, [], study.spec.seed_list))
    budget = suite.spec.trials
    areas = {label: [np.array(item.by_strategy[label].area.by_seed) for item in summary.workloads] for label in seconds}
    trials = {
        label: [
            np.log([reached or budget for reached in item.by_strategy[label].trials_to_target.by_seed])
            for item in summary.workloads
        ]
        for label in seconds
    }

    def row(label: str, reference: str) -> list[str]:
        intervals = ["", "", ""]
        if label != reference:
            areas_differ = paired_difference(areas[label], areas[reference])
            trials_differ = paired_difference(trials[label], trials[reference]).on_these.difference
            ratio = [None if end is None else np.exp(end) for end in (trials_differ.lower, trials_differ.upper)]
            answers = [answer.difference for answer in (areas_differ.on_these, areas_differ.on_others)]
            intervals = [with_interval(end.value, end.lower, end.upper) for end in answers]
            intervals.append(with_interval(np.exp(trials_differ.value), *ratio))
        area, needed = np.mean(areas[label]), np.exp(np.mean(trials[label]))
        return [label, f"{area:.3f}", *intervals[:2], f"{needed:.1f}", intervals[2], f"{seconds[label]:.1f}"]

    head = [
        "variant",
        "area",
        "difference on these tables",
        "on tables like these",
        "trials to 95 %",
        "ratio",
        "s a run",
    ]
    return markdown(head, [row(label, next(iter(kind))) for kind in kinds for label in kind])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", help="suite, such as v1")
    parser.add_argument("--policy", default="gp-prior", help="policy whose variants to run (gp-prior)")
    parser.add_argument("--variants", nargs="*", default=(), help="labels of the variants to run, besides the first")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (10)")
    parser.add_argument("--batch", type=int, default=8, help="batch size (8)")
    parser.add_argument("--jobs", type=int, default=1, help="number of concurrent runs (1)")
    options = parser.parse_args()
    module = import_module(f"variants_{options.policy.replace('-', '_')}")
    cold, warm = (
        {
            label: variant
            for i, (label, variant) in enumerate(kind.items())
            if not i or label in (options.variants or kind)
        }
        for kind in (module.PARTS, module.WARM_PARTS)
    )
    study = make_study(options.suite, cold, warm, options.seeds, options.batch)
    out = Path("results", "ablation", options.policy, f"{options.suite}-batch{options.batch}")
    study.run(out, jobs=options.jobs)
    print(table(study, out, cold, warm))


if __name__ == "__main__":
    main()
