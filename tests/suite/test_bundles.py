"""Submitted bundles: an honest one is verified, and dishonest ones are refused before their code runs."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from searchlab.analysis import summarize
from searchlab.errors import SearchlabError
from searchlab.log.read import read_log
from searchlab.measure.suite import find_suite
from searchlab.plugins import Plugin, trust_plugins
from searchlab.stats.inference import Answer
from searchlab.stats.intervals import Interval
from searchlab.suite import confined, replay
from searchlab.suite.bundle import SUBMISSION_FILE, compute_mean_areas, pack_archive, read_bundle, submit
from searchlab.suite.compare import group_suite_runs
from searchlab.suite.confined import BundleVerification, verify_submission
from searchlab.suite.leaderboard import Leaderboard, _assign_groups
from searchlab.suite.trajectories import (
    TableRuns,
    Trajectory,
    decode_trajectories,
    read_baselines,
    write_trajectories,
)
from tests.docs.pages import ROOT, blocks_of
from tests.support.cli import searchlab

COMMANDS = [words for block in blocks_of(ROOT / "docs" / "extend" / "submit.md") for _, *words in block.commands]


@pytest.fixture(scope="module")
def package(sealed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy's package, with its results on the small suite and its bundle, as the page on submitting makes it."""
    home = tmp_path_factory.mktemp("strangers")
    follow(COMMANDS[:1], sealed, home)
    follow(
        [words for words in COMMANDS if words[:2] in (["suite", "run"], ["suite", "submit"])],
        sealed,
        home / "hill-climb",
    )
    return home / "hill-climb"


def follow(commands: Sequence[Sequence[str]], suite: Path, cwd: Path) -> None:
    """Run commands for the suite v1, but over ``suite``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(cwd / ".data"))
        for words in commands:
            new = [str(suite) if word == "v1" else word for word in words]
            more = ["--against", "random"] if "run" in words else [] if "new" in words else ["--suite", suite]
            result = searchlab(*new, *more, cwd=cwd)
            assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def bundle(package: Path) -> Path:
    return package / "hill-climb.zip"


def verify_trusting(bundle: Path, sealed: Path) -> tuple[list[str], BundleVerification]:
    """Verify a bundle whose code is trusted, and return the reported steps."""
    steps: list[str] = []
    with trust_plugins():
        verification = verify_submission(bundle, lambda text, problems: steps.append(text), None, str(sealed))
    return steps, verification


def test_an_honest_bundle_is_verified_and_becomes_a_row(package: Path, bundle: Path, sealed: Path) -> None:
    """The rest of the page's commands."""
    refused = searchlab("suite", "verify", bundle, "--suite", sealed)
    assert refused.returncode == 2 and "code that a stranger wrote (hill_climb:HillClimb)" in refused.stderr
    follow([words for words in COMMANDS if words[0] == "report" or words[:2] == ["suite", "verify"]], sealed, package)
    verification = json.loads((package / "hill-climb.json").read_text())
    assert (verification["runs"], verification["total"], verification["problems"]) == (12, 12, [])
    assert verification["bundle"] == read_bundle(bundle).digest and "hill_climb" not in sys.modules
    row = (package / "site" / "leaderboard-mini-test.html").read_text()
    assert (
        'href="hill-climb-on-mini/index.html#source"' in row
        and (package / "site" / "leaderboard-mini-dev.csv").is_file()
    )
    page = (package / "site" / "hill-climb-on-mini" / "index.html").read_text()
    assert "12 of 12 runs were replayed" in page and "class HillClimb(NeverTwice)" in page


# --- what its data show -----------------------------------------------------------------------------------------------

Members = dict[str, bytes]
TABLE = "gemm-4x5x6-knob-1t"


def with_submission(members: Members, **changes: Any) -> None:
    members[SUBMISSION_FILE] = msgspec.json.encode(msgspec.json.decode(members[SUBMISSION_FILE]) | changes)


def with_digests(members: Members) -> None:
    files = {name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != SUBMISSION_FILE}
    with_submission(members, files=files)


def with_result(split: str, **changes: Any) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        path = Path(tempfile.mkdtemp(), "x")
        result = decode_trajectories(path, members[f"{split}.runs.parquet"])
        changed = {name: value(getattr(result, name)) if callable(value) else value for name, value in changes.items()}
        write_trajectories(path, msgspec.structs.replace(result, **changed))
        members[f"{split}.runs.parquet"] = path.read_bytes()
        path.unlink()
        with_digests(members)

    return change


def with_runs(change: Callable[[tuple[Trajectory, ...]], Sequence[Trajectory]]) -> Callable[[Members], None]:
    def tables(before: dict[str, TableRuns]) -> dict[str, TableRuns]:
        return {
            name: msgspec.structs.replace(runs_on_table, runs=tuple(change(runs_on_table.runs)))
            for name, runs_on_table in before.items()
        }

    return with_result("dev", tables=tables)


def with_file(name: str, data: bytes = b"x = 1\n") -> Callable[[Members], None]:
    def change(members: Members) -> None:
        members[name] = data
        with_digests(members)

    return change


def submission(**changes: Any) -> Callable[[Members], None]:
    return lambda members: with_submission(members, **changes)


def cut_runs(runs: tuple[Trajectory, ...]) -> list[Trajectory]:
    return [msgspec.structs.replace(run, configs=run.configs[:4]) for run in runs]


def repeat_first_trial(runs: tuple[Trajectory, ...]) -> list[Trajectory]:
    return [msgspec.structs.replace(run, configs=(*run.configs[:-1], run.configs[0])) for run in runs]


DISHONEST: dict[str, tuple[Callable[[Members], None], str]] = {
    "better areas": (submission(areas={"dev": {TABLE: 0.99}, "test": {}}), f"its area on {TABLE} is 0.99, but 0."),
    "areas without runs": (submission(areas={"dev": {"other": 0.9}}), "it states areas on other, where it has no runs"),
    "seeds left out": (with_runs(lambda runs: runs[1:]), f"has the seeds 1, 2 on {TABLE}, not 0 to 2"),
    "tables left out": (
        with_result("test", tables=lambda tables: dict(list(tables.items())[1:])),
        "its result on test leaves out gemm-16x16x16-guided-1t",
    ),
    "short runs": (with_runs(cut_runs), "with seed 0 has 4 trials, not 12"),
    "repeated configs": (with_runs(repeat_first_trial), "repeats a config"),
    "tuned on the test split": (
        submission(track="tuned on dev", tuned_on=["mini/test"]),
        "it was tuned on mini/test; only tables of mini/dev may be used",
    ),
    "tuned on everything": (submission(track="tuned on dev", tuned_on=["mini"]), "it was tuned on mini; only"),
    "tuned in secret": (submission(tuned_on=["mini/dev"]), "its class is 'as published', but tuned_on lists mini/dev"),
    "another suite": (submission(suite_digest="0" * 64), "it was made with another suite: mini with the digest 000"),
    "another table": (
        with_result("dev", tables=lambda tables: {TABLE: msgspec.structs.replace(tables[TABLE], digest="0" * 64)}),
        "was run on a different version of mini/gemm-4x5x6-knob-1t",
    ),
    "the best of three on the test split": (with_result("test", test_uses=3), "ran 3 variants of it on the test split"),
    "other options on the test split": (
        with_result("test", policy=Plugin("hill_climb:HillClimb", {"restart": 0.9})),
        "its policy on the test split differs from that on the dev split",
    ),
    "a baseline's name": (submission(name="xgb"), "it is called xgb, as a baseline is"),
    "code as the policy": (
        with_result("dev", policy=Plugin("os:system")),
        "it refers to the code 'os:system', which is not in its source",
    ),
    "code among the options": (
        with_result("dev", policy=Plugin("hill_climb:HillClimb", {"restart": "subprocess:run"})),
        "it refers to the code 'subprocess:run', which is not in its source",
    ),
    "code in metadata": (submission(install="curl x | sh"), "'install'"),
    "its own suite": (with_file("suite/suite.toml"), "suite/suite.toml is neither a result nor a text file"),
    "a pickle": (with_file("source/model.pkl", b"cos\nsystem\n"), "source/model.pkl is neither a result nor a text"),
    "a pickle as text": (with_file("source/model.json", b"\x80\x04\x95"), "source/model.json is not text in UTF-8"),
    "a path upwards": (with_file("source/../../evil.py"), "the name 'source/../../evil.py' of a file is not a plain"),
    "an absolute path": (with_file("/tmp/evil.py"), "the name '/tmp/evil.py' of a file is not a plain relative path"),
    "a bomb": (with_file("source/zeros.txt", bytes(33 << 20)), "it unpacks to more than 200 files or 32 MB"),
    "changed source": (
        lambda members: members.update({"source/hill_climb.py": b"import os"}),
        "its source/hill_climb.py is not the file that submission.json lists",
    ),
    "an unlisted file": (
        lambda members: members.update({"source/more.py": b"import os"}),
        "its source/more.py is not the file that submission.json lists",
    ),
}


@pytest.mark.parametrize("trick", DISHONEST)
def test_a_dishonest_bundle_is_refused_unread(
    trick: str, bundle: Path, sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process that could run its code is started."""
    monkeypatch.setattr(confined, "ConfinedReplayer", None)
    change, reason = DISHONEST[trick]
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    (tmp_path / "bad.zip").write_bytes(pack_archive(members))
    try:
        says = "; ".join(verify_trusting(tmp_path / "bad.zip", sealed)[1].problems)
    except SearchlabError as error:
        says = str(error)
    assert reason in says


def test_links_and_files_that_occur_twice_are_refused(bundle: Path, sealed: Path, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("source/link.py")
    link.external_attr = 0o120777 << 16
    for info, reason in (
        (link, "source/link.py is a link"),
        ("dev.runs.parquet", "it contains dev.runs.parquet twice"),
    ):
        shutil.copy(bundle, tmp_path / "bad.zip")
        with zipfile.ZipFile(tmp_path / "bad.zip", "a") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive.writestr(info, "/etc/passwd")
        with pytest.raises(SearchlabError, match=reason):
            verify_trusting(tmp_path / "bad.zip", sealed)
    (tmp_path / "bad.zip").write_bytes(b"no archive")
    with pytest.raises(SearchlabError, match="not a ZIP archive"):
        verify_trusting(tmp_path / "bad.zip", sealed)


# --- what only its code shows -----------------------------------------------------------------------------------------

HEAD = """
from pathlib import Path
from searchlab import NeverTwice
from searchlab.log.read import read_log
from searchlab.space import Config


class HillClimb(NeverTwice):
"""
READS_OR_REMEMBERS = """
    best = []

    def tell(self, trials):
        super().tell(trials)
        self.best.extend(trials)

    def propose(self, n, rng):
        try:
            records = read_log(Path(TABLE)).records
            yield Config(min(records, key=lambda record: min(record.seconds)).config)
        except Exception:
            yield from [trial.config for trial in sorted(self.best, key=lambda trial: trial.cost)]
"""
KNOWS = """
    def propose(self, n, rng):
        yield Config(BEST)
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (READS_OR_REMEMBERS, "hill-climb over mini/gemm-4x5x6-knob-1t with seed 2: trial 0 was config"),
        (KNOWS, "told shuffled measurements, its area still exceeds that of random search by 0."),
    ],
    ids=["reads", "knows"],
)
def test_a_policy_that_does_not_search_is_refused(
    body: str, reason: str, package: Path, sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "list_avx512_features", list)  # there is no second process
    table = find_suite(sealed).table(TABLE)
    best = min(read_log(table.path).records, key=lambda record: min(record.seconds)).config
    shutil.copytree(package, tmp_path / "package", ignore=shutil.ignore_patterns("dev", "test", "site", ".data"))
    constants = f"TABLE = {str(table.path)!r}\nBEST = {best!r}\n"
    (tmp_path / "package" / "hill_climb.py").write_text(constants + HEAD + body)
    follow([words for words in COMMANDS if words[-1] == "dev"], sealed, tmp_path / "package")
    submitted = submit(tmp_path / "package", tmp_path / "bad.zip", str(sealed))
    verification = verify_trusting(submitted.path, sealed)[1]
    if any("Landlock" in limit for limit in verification.unchecked) and body == READS_OR_REMEMBERS:
        pytest.skip("without Landlock, the policy can read the table")
    problems = verification.problems
    assert any(reason in problem for problem in problems), problems


def test_a_bundle_is_replayed_without_avx512(bundle: Path, sealed: Path) -> None:
    content = read_bundle(bundle)
    result = content.results["dev"]
    name, run = result.named_runs[0]
    with trust_plugins():
        replayer = confined.ConfinedReplayer(find_suite(sealed), content)
        assert replayer.replay_without_avx512([replay.RunToReplay(result, name, run)], []) == [""]


def test_an_altered_trial_is_refused(
    bundle: Path, sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes bundles whose area and digest were computed again."""
    monkeypatch.setattr(replay, "list_avx512_features", list)

    def alter(runs: tuple[Trajectory, ...]) -> list[Trajectory]:
        run = runs[-1]
        new_config = next(config for config in range(144) if config not in run.configs)
        return [*runs[:-1], msgspec.structs.replace(run, configs=(*run.configs[:-1], new_config))]

    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if not name.startswith("test.")}
    with_runs(alter)(members)
    result = decode_trajectories(Path("dev"), members["dev.runs.parquet"])
    with_submission(members, areas={"dev": compute_mean_areas(find_suite(sealed), result)})
    (tmp_path / "bad.zip").write_bytes(pack_archive(members))
    (problem,) = verify_trusting(tmp_path / "bad.zip", sealed)[1].problems
    assert "hill-climb over mini/gemm-4x5x6-knob-1t with seed 2: trial 11 was config" in problem


# --- leaderboards -----------------------------------------------------------------------------------------------------


def test_a_leaderboard_agrees_with_the_report(sealed: Path, bundle: Path) -> None:
    part, result = find_suite(sealed).select_split("test"), read_bundle(bundle).results["test"]
    baseline_runs = read_baselines(find_suite(sealed))
    board = Leaderboard(part, [result, *baseline_runs], {"hill-climb": "as published"})
    rows = board.make_rows([table.entry.name for table in part.tables], part.spec.trials)
    overall = summarize(group_suite_runs(part, [result], baseline_runs, range(3))).overall
    assert overall is not None
    assert [row.strategy for row in rows] == [row.strategy for row in overall.strategies]
    for row, expected in zip(rows, overall.strategies, strict=True):
        assert row.area.value == pytest.approx(expected.area.value) and row.area.lower == pytest.approx(
            expected.area.lower
        )
        assert (row.behind_leader is None) == (row == rows[0])
        assert (row.over_random is None) == (row.strategy == "random")
    assert {row.track for row in rows} == {"as published", "baseline"}
    assert list(board.list_selections()) == ["all 3 tables", "guided-gemm", "knob-template"]


def test_groups_share_letters_where_strategies_are_level() -> None:
    def groups(**p: float) -> str:
        answers = {(pair[0], pair[1]): Answer(Interval(0.1), value) for pair, value in p.items()}
        return " ".join(_assign_groups("xyz", answers).values())

    assert groups(xy=0.9, xz=0.001, yz=0.5) == "a ab b"
    assert groups(xy=0.9, xz=0.001, yz=0.001) == "a a b"


def test_only_what_is_accepted_is_published(bundle: Path, sealed: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if not name.startswith("test.")}
    areas = msgspec.json.decode(members[SUBMISSION_FILE])["areas"]
    with_submission(members, citation="<script>alert(1)</script>", areas={"dev": areas["dev"]})
    with_digests(members)
    (tmp_path / "mine.zip").write_bytes(pack_archive(members))
    words = ("report", "--publish", "site", "mine.zip", "--suite", sealed)
    result = searchlab(*words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "site" / "hill-climb-on-mini" / "index.html").read_text()
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    assert "its runs have not been replayed" in page
    assert 'href="leaderboard-mini-dev.html"' in (tmp_path / "site" / "index.html").read_text()
    record = {"bundle": "0" * 64, "date": "", "versions": {}, "runs": 1, "total": 1, "problems": [], "unchecked": []}
    (tmp_path / "mine.json").write_text(json.dumps(record))
    refused = searchlab(*words, cwd=tmp_path)
    assert refused.returncode == 2 and "mine.json does not verify mine.zip: it is of another bundle" in refused.stderr
    with_submission(members, areas={})
    (tmp_path / "mine.zip").write_bytes(pack_archive(members))
    refused = searchlab(*words, cwd=tmp_path)
    assert refused.returncode == 2 and "the bundle mine.zip is refused: its area on" in " ".join(refused.stderr.split())
