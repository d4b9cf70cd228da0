"""What a reader must know of the surrogates that answered in place of machines."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import SearchlabError
from .runs import ComparedRuns, LoggedRun


def surrogate_caveats(comparison: ComparedRuns) -> list[str]:
    """A sentence for each space of a workload whose surrogate failed its gate."""
    caveats = []
    for workload, item in comparison.items():
        failed = {run.space: run.log.header.surrogate.failed for run in item.runs if run.log.header.surrogate}
        for space, problems in failed.items():
            if problems:
                caveats.append(
                    f"No machine measured {workload} in {space}: a surrogate predicted its trials, and this surrogate "
                    f"failed its gate ({'; '.join(problems)}). What is said of {workload} may be untrue of any machine."
                )
    return caveats


def surrogate_notes(runs: Sequence[LoggedRun]) -> list[str]:
    """A sentence for each space of a workload in which a surrogate answered."""
    notes = {}
    for run in runs:
        if one := run.log.header.surrogate:
            gate = "failed" if one.failed else "passed"
            notes[run.space] = (
                f"A surrogate that was trained on {one.trained_on:,} trials predicted the trials in {run.space}; it "
                f"{gate} its gate."
            )
    return list(notes.values())


def check_one_surrogate(runs: Sequence[LoggedRun]) -> None:
    """Raise SearchlabError where two surrogates of one space predicted the trials of a workload."""
    first: dict[str, LoggedRun] = {}
    for run in runs:
        other = first.setdefault(run.log.header.fingerprint, run)
        if run.log.header.surrogate != other.log.header.surrogate:
            raise SearchlabError(
                f"{other.file} and {run.file} are of different surrogates of one space: compare each alone"
            )
