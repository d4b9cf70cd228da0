"""Runs the studies of published claims, prints the verdicts, and writes docs/results/papers.md and the README's table.

    python studies/papers/verdicts.py --split dev --seeds 3 studies/papers/autotvm.toml    # while a study is written
    python studies/papers/verdicts.py --jobs 2                                             # all studies, as they are

Logs are written to results/papers, from which later calls resume. The verdicts of each study are kept in
studies/reference/papers; the page contains all of them, so it can be written again without any runs (``--page``). The
cost of a study is stated in its file, in a comment after the command.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console

from searchlab.analysis.claims import ClaimVerdict, describe_comparand, judge_claims
from searchlab.analysis.read import read_runs
from searchlab.analysis.terminal import format_claims
from searchlab.analysis.words import counted
from searchlab.run.spec import PolicyEntry
from searchlab.run.study import Study
from searchlab.suite.compare import read_suite_study_runs

STUDIES = Path(__file__).parent
VERDICTS = STUDIES.parent / "reference" / "papers"
PAGE = STUDIES.parents[1] / "docs" / "results" / "papers.md"
README = STUDIES / "README.md"
COMMAND = re.compile(r"^#   (?P<command>python studies/papers/verdicts\.py .+?) +# (?P<cost>.+)$", re.MULTILINE)
HEAD = """# Claims of papers, put to the test

*Written by `python studies/papers/verdicts.py`, from the studies in `studies/papers`.*

Each study tests claims of one paper on recorded tables, or on this machine. [Write a study file](../howto/study.md)
explains when a claim *holds*, *fails* or is *undecided*; with fewer than two seeds, it is *untested*. The tables are
small spaces, measured on a few machines: a verdict says whether a claim carries over to them, not whether it was true
where it was published.

Strategies are of two classes. Those *as published* have their published options or searchlab's defaults, or the change
that a claim is about, in brackets. The options of those *tuned on dev* were searched on development tables. No option
was chosen on a test table.
"""


class StudyVerdicts(msgspec.Struct, frozen=True):
    """The verdicts of a study."""

    title: str
    where: str  # the suite's split, or "this machine"
    seeds: int
    claims: list[ClaimVerdict]
    as_published: list[str] = []
    tuned: list[str] = []


class StudyHead(NamedTuple):
    """The first lines of a study: its title, the command that runs it, and the cost of that command."""

    title: str
    command: str
    cost: str

    @classmethod
    def read(cls, file: Path) -> StudyHead:
        text = file.read_text("utf-8")
        match = COMMAND.search(text)
        if match is None:
            raise SystemExit(f"{file} has no line '#   python studies/papers/verdicts.py ...    # about N minutes'")
        return cls(text.partition("\n")[0].removeprefix("# ").removesuffix("."), match["command"], match["cost"])


def describe_strategy(entry: PolicyEntry) -> str:
    """Return a strategy's name and options: ``tuned (annealing, chains = 1, hub-v1/dev)``."""
    name = entry.title
    about = [entry.name] if name != entry.name else []
    about += [f"{option} = {json.dumps(value)}" for option, value in entry.options.items()]
    about += [entry.tuned_on] if entry.tuned_on else []
    return f"{name} ({', '.join(about)})" if about else name


def test(file: Path, split: str, seeds: int | None, jobs: int, console: Console) -> StudyVerdicts:
    """Run the study in ``file``, on ``split`` of its suite unless that is empty, and return its verdicts."""
    text = file.read_text("utf-8")
    data = tomllib.loads(text)
    if "suite" in data and split:
        data["suite"] = re.sub("/(dev|test)$", f"/{split}", data["suite"])
    where = data.get("suite", "this machine")
    study = Study.from_dict({**data, **({"seeds": seeds} if seeds else {})}, file.parent)
    out = Path("results", "papers", file.stem, where.replace("/", "-").replace(" ", "-"))
    study.run(out, jobs=jobs, progress=console)
    runs = read_suite_study_runs(study, out) if study.baselines else read_runs(out)
    entries = study.spec.policy_entries
    return StudyVerdicts(
        StudyHead.read(file).title,
        where,
        len(study.spec.seed_list),
        judge_claims(runs, study.spec.claims),
        as_published=[*study.baselines, *(describe_strategy(entry) for entry in entries if not entry.tuned_on)],
        tuned=[describe_strategy(entry) for entry in entries if entry.tuned_on],
    )


def overview(verdicts: Mapping[Path, StudyVerdicts]) -> str:
    """Return how often each verdict was reached, and a table of all claims with their verdicts."""
    claims = [(path.stem, outcome) for path, study in verdicts.items() for outcome in study.claims]
    counts = Counter(outcome.verdict for _, outcome in claims)
    holding, failed, undecided, untested = (counts[verdict] for verdict in ("holds", "fails", "undecided", "untested"))
    lines = [f"| {study} | {outcome.claim.text} | {outcome.verdict} |" for study, outcome in claims]
    head = f"Of {len(claims)} claims, {holding} hold, {failed} fail, and {undecided} are undecided."
    if untested:
        head = f"{head[:-1]}; {untested} are untested."
    return "\n".join([head, "", "| study | claim | verdict |", "|---|---|---|", *lines])


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    studies = {
        path: msgspec.json.decode(path.read_bytes(), type=StudyVerdicts) for path in sorted(VERDICTS.glob("*.json"))
    }
    yield from (HEAD, overview(studies), "")
    for path, verdicts in studies.items():
        _, command, cost = StudyHead.read(STUDIES / f"{path.stem}.toml")
        yield from (f"## {verdicts.title}", "")
        yield f"`{command}` ({cost}); here, {verdicts.where}, at most {counted(verdicts.seeds, 'seed')}.\n"
        yield f"As published: {', '.join(verdicts.as_published)}."
        yield f"Tuned on dev: {', '.join(verdicts.tuned) or 'none'}.\n"
        for outcome in verdicts.claims:
            published = f"; published: {outcome.claim.published}" if outcome.claim.published else ""
            yield f"**{outcome.verdict.capitalize()}**: {outcome.claim.text} ({outcome.claim.source}{published})\n"
            yield from (f"- {describe_comparand(outcome.claim, pair)}" for pair in outcome.comparands)
            yield ""


def table() -> str:
    """Return the README's table of studies."""
    rows = [(file, StudyHead.read(file)) for file in sorted(STUDIES.glob("*.toml"))]
    lines = [f"| `{file.name}` | {head.title} | {head.cost} |" for file, head in rows]
    return "\n".join(["| study | claims of | cost |", "|---|---|---|", *lines])


def write() -> None:
    """Write the page and the README's table."""
    PAGE.write_text("\n".join(page()).rstrip() + "\n", "utf-8")
    before, _, rest = README.read_text("utf-8").partition("<!-- studies -->")
    after = rest.partition("<!-- end of studies -->")[2]
    README.write_text(f"{before}<!-- studies -->\n\n{table()}\n\n<!-- end of studies -->{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="*", help="study files (all in studies/papers)")
    parser.add_argument("--split", choices=("dev", "test"), default="", help="split of the suites (as in the files)")
    parser.add_argument("--seeds", type=int, help="number of seeds (as in the files)")
    parser.add_argument("--jobs", type=int, default=1, help="number of concurrent runs (1)")
    parser.add_argument("--page", action="store_true", help="run nothing, only write the page and the README")
    options = parser.parse_args()
    console = Console()
    for file in [] if options.page else options.studies or sorted(STUDIES.glob("*.toml")):
        verdicts = test(file, options.split, options.seeds, options.jobs, console)
        console.print(verdicts.title, *format_claims(verdicts.claims), sep="\n")
        VERDICTS.mkdir(parents=True, exist_ok=True)
        (VERDICTS / f"{file.stem}.json").write_bytes(msgspec.json.format(msgspec.json.encode(verdicts)) + b"\n")
    write()


if __name__ == "__main__":
    main()
