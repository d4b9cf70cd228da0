"""A result never outlives the code that made it: every edit of a plug-in is found, and no edit of a comment is."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import searchlab
from searchlab.conformance.toys import simulate_smooth
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.budget import Budget
from searchlab.log.format import Header, Record
from searchlab.log.programs import ChangedProgram
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter, OtherRun
from searchlab.measure.table import TableSettings
from searchlab.plugins import Plugin
from searchlab.records import Trial
from searchlab.run.loop import RunLoop, search
from searchlab.run.open import MeasurerCache
from searchlab.run.plan import Run, plan_run
from searchlab.run.strategy import SpaceChoice, Strategy
from searchlab.source import source_digest
from searchlab.workload import program_hash

ACME = Path(__file__).parents[1] / "support" / "acme"
TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1}
TRIALS = 20

EDITS = [
    ("constants", "LIMIT = 3", "LIMIT = 2"),
    ("constants", "SHARE = 0.5", "SHARE = 0.25"),
    ("constants", "2.0 * value", "2.5 * value"),
    ("constants", "value + 1.0", "value - 1.0"),
    ("constants", "return 2.0", "return -2.0"),
    ("base", "direction = 1", "direction = -1"),
    ("base", "0.001", "0.1"),
    ("base", '["tile"][0]', '["tile"][1]'),
    ("base", "self.rank(config)", "-self.rank(config)"),
    ("base", "(NeverTwice)", "(NeverTwice, needs_asks=True)"),
    ("policy", "n_startup: int = 4", "n_startup: int = 9"),
    ("policy", "pool: int = 24", "pool: int = 25"),
    ("policy", "flip: bool = False", "flip: bool = True"),
    ("policy", "-scores[i]", "scores[i]"),
    ("policy", ">= self.n_startup", "> self.n_startup"),
    ("policy", "n + LIMIT", "n - LIMIT + 4"),
    ("policy", "configs[::-1]", "configs[::-2]"),
    ("policy", "sample(rng)", "canonical(self.space.sample(rng))"),
    ("policy", "self.pool = pool", "self.pool = pool + 1"),
    ("policy", "if self.flip", "if not self.flip"),
    ("policy", "self.cost_model.fit(self.trials)", "self.cost_model.fit(self.trials[-4:])"),
    ("late", "STEP = 1", "STEP = 2"),
    ("late", "n * STEP", "n"),
    ("late", "configs[:", "configs[1:"),
    ("model", "damping: float = 0.1", "damping: float = 10.0"),
    ("model", "* np.eye", "+ np.eye"),
    ("model", "- 0.3 *", "+ 0.3 *"),
    ("model", "np.sqrt(scores)", "scores"),
    ("model", "weigh(1.0)", "weigh(2.0)"),
    ("model", "** 2", "** 3"),
    ("space", "depth: int = 1", "depth: int = 2"),
    ("space", "self.depth = depth", "self.depth = depth + 1"),
    ("space", "config, self.depth", "config, 2"),
    ("schedules", "FACTOR = 4", "FACTOR = 8"),
    ("schedules", "[None, FACTOR]", "[FACTOR, None]"),
    ("schedules", "unroll(inner)", "vectorize(inner)"),
    ("schedules", "[:depth]", "[:1]"),
    ("schedules", "_outer, inner", "inner, _outer"),
]
"""Edits of one line: the module, the old text and the new one. None of them may go unnoticed."""

COSMETIC = [
    ("constants", '"""Numbers that several plug-ins use."""', '"""Some numbers."""\n# a comment'),
    ("constants", "LIMIT = 3", "LIMIT  =  3  # configs"),
    ("base", '    """Orders what it samples."""\n', '    """It orders."""\n\n'),
    ("base", '        """Sort configs by their smallest factors."""\n', ""),
    (
        "policy",
        "return late.choose(configs, n + LIMIT)",
        "return late.choose(\n            configs, (n + LIMIT)\n        )",
    ),
    ("model", '"""A linear cost model."""', ""),
]
"""Edits that change no code."""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package ``acme`` that can be imported, and edited with :func:`edit`."""
    package = tmp_path / "acme"
    shutil.copytree(ACME, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with searchlab.trust_plugins():
        yield package
    unload_acme()


def unload_acme() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def edit(package: Path, module: str, old: str, new: str) -> None:
    path = package / f"{module}.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    unload_acme()


def write_table(path: Path) -> None:
    """Write a table of the space ``acme.space:Tiles`` with made-up times, real programs and the digest of its code."""
    space = importlib.import_module("acme.space").Tiles(searchlab.gemm(16, 16, 16), searchlab.resolve_target(TARGET))
    header = Header(
        workload=str(space.workload),
        space=Plugin("acme.space:Tiles"),
        fingerprint=space.fingerprint,
        policy=Plugin("grid"),
        seed=0,
        batch=1,
        target=space.target.to_json(),
        measure={},
        space_size=space.size(),
        code_digests={"space": source_digest(type(space))},
    )
    program = program_hash(space.schedule(next(iter(space.enumerate()))).mod)  # no knob changes it
    with LogWriter(path, header, durable=False) as writer:
        for index, config in enumerate(space.enumerate()):
            measurement = msgspec.structs.replace(
                Record.from_trial(Trial(index, config, simulate_smooth(config))), program=program
            )
            writer.append(measurement)


def tune(folder: Path, **options: Any) -> bytes:
    """Run the plug-ins over the table, and return the log."""
    log = folder / "log.jsonl"
    searchlab.tune(
        "gemm:16x16x16",
        log=log,
        space="acme.space:Tiles",
        policy="acme.policy:Ordered",
        cost_model="acme.model:Linear",
        features="knob",
        target=TARGET,
        measure={"kind": "table", "path": str(folder / "table.jsonl")},
        **{"trials": TRIALS, "batch": 4, "progress": False, **options},
    )
    return log.read_bytes()


@pytest.fixture
def log(acme: Path, tmp_path: Path) -> bytes:
    write_table(tmp_path / "table.jsonl")
    return tune(tmp_path)


@pytest.mark.parametrize("extended", [False, True])
def test_no_edit_of_the_code_goes_unnoticed(acme: Path, log: bytes, tmp_path: Path, extended: bool) -> None:
    unnoticed = []
    noticed = 0
    for module, old, new in EDITS:
        original = (acme / f"{module}.py").read_text()
        (tmp_path / "log.jsonl").write_bytes(log)
        edit(acme, module, old, new)
        try:
            changed = tune(tmp_path, trials=TRIALS + 8 * extended)
            kinds = [line.split(b'"')[3] for line in changed.splitlines()[TRIALS + 1 :]]
            if kinds != [b"changed", *[b"trial"] * (8 * extended)] or not changed.startswith(log):
                unnoticed.append((module, old, new))
        except SearchlabError as error:
            noticed += isinstance(error, OtherRun)
            assert (tmp_path / "log.jsonl").read_bytes() == log
        (acme / f"{module}.py").write_text(original)
    assert not unnoticed
    assert noticed > len(EDITS) / 2, "most edits change the proposals"


@pytest.mark.parametrize(("module", "old", "new"), COSMETIC)
def test_an_edit_that_changes_no_code_costs_nothing(
    acme: Path, log: bytes, tmp_path: Path, module: str, old: str, new: str
) -> None:
    edit(acme, module, old, new)
    assert tune(tmp_path) == log


def test_a_reproduced_log_is_reused_from_then_on(acme: Path, log: bytes, tmp_path: Path) -> None:
    edit(acme, "base", "0.001", "0.0010001")
    reproduced = tune(tmp_path)
    assert reproduced.startswith(log) and len(reproduced) > len(log)
    assert tune(tmp_path) == reproduced
    assert (
        read_log(tmp_path / "log.jsonl").code_digests["policy"]
        != read_log(tmp_path / "log.jsonl").header.code_digests["policy"]
    )


@pytest.mark.parametrize("last", ["same", "different"])
def test_a_search_that_stops_early_compares_the_rest(acme: Path, tmp_path: Path, last: str) -> None:
    """A model's scheduler may stop a search before the end of its log, within a batch; its other trials count, too."""
    write_table(tmp_path / "table.jsonl")
    space = SpaceChoice.from_spec(
        "acme.space:Tiles", searchlab.parse_workload("gemm:16x16x16"), searchlab.resolve_target(TARGET)
    )
    settings = TableSettings(path=str(tmp_path / "table.jsonl"))
    path = tmp_path / "log.jsonl"
    run = plan_run(Run(space, Strategy.from_specs("random"), 0, 4, Budget(10), settings, path))
    with closing(MeasurerCache()) as measurers:
        search(run, measurers.for_run(run))
        lines = path.read_text().splitlines()
        if last == "different":
            config, last_config = (json.loads(lines[number])["config"] for number in (1, 10))
            lines[10] = lines[10].replace(json.dumps(last_config, separators=(",", ":")), json.dumps(config))
        path.write_text("\n".join(lines) + "\n")
        edited = replace(run, code_digests={**run.code_digests, "policy": "0" * 16})
        refused = pytest.raises(OtherRun, match="Trial 9") if last == "different" else nullcontext()
        with refused, RunLoop(edited, measurers.for_run(run)) as stopped:
            assert [len(stopped.step(most)) for most in (6, 2)] == [4, 2]
            stopped.finish()
            assert len(stopped.log.records) == 10 and stopped.log.code_digests == edited.code_digests


def test_discard_moves_the_old_log_aside(acme: Path, log: bytes, tmp_path: Path) -> None:
    edit(acme, "base", "direction = 1", "direction = -1")
    with pytest.raises(OtherRun, match="policy") as refused:
        tune(tmp_path)
    assert "--discard" in str(refused.value) and str(refused.value).count("log.jsonl") == 1
    assert tune(tmp_path, discard=True) != log
    assert (tmp_path / "log.jsonl.discarded-1").read_bytes() == log
    tune(tmp_path, discard=True, seed=1)
    assert len(list(tmp_path.glob("*.discarded-*"))) == 2


def test_a_table_measured_again_is_not_the_same_table(acme: Path, log: bytes, tmp_path: Path) -> None:
    table = tmp_path / "table.jsonl"
    table.write_text(table.read_text().replace('"seconds":[0.001', '"seconds":[0.002'))
    with pytest.raises(OtherRun, match="table"):
        tune(tmp_path)


def test_a_table_of_other_programs_is_refused(acme: Path, log: bytes, tmp_path: Path) -> None:
    edit(acme, "schedules", "FACTOR = 4", "FACTOR = 2")
    (tmp_path / "log.jsonl").unlink()
    with pytest.raises(ChangedProgram, match="table"):
        tune(tmp_path)


@pytest.mark.parametrize("changed", [False, True])
def test_a_table_without_digests_is_compared(acme: Path, tmp_path: Path, changed: bool) -> None:
    write_table(path := tmp_path / "table.jsonl")
    first, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({n: v for n, v in json.loads(first).items() if n != "code"}) + "\n" + rest)
    if changed:
        edit(acme, "schedules", "FACTOR = 4", "FACTOR = 2")
    with pytest.raises(ChangedProgram) if changed else nullcontext():
        tune(tmp_path)


def test_a_table_without_programs_is_unverified(acme: Path, tmp_path: Path) -> None:
    write_table(path := tmp_path / "table.jsonl")
    path.write_text(re.sub(r'"program":"\w+",?', "", path.read_text()))
    edit(acme, "schedules", "FACTOR = 4", "FACTOR = 2")
    with pytest.warns(SearchlabWarning, match="unverified"):
        tune(tmp_path)


def test_defaults_and_digests_are_in_the_header(acme: Path, log: bytes, tmp_path: Path) -> None:
    header = read_log(tmp_path / "log.jsonl").header
    assert header.default_options["policy"] == {"n_startup": 4, "pool": 24, "flip": False}
    assert header.default_options["cost_model"] == {"damping": 0.1}
    assert set(header.code_digests) == {"core", "workload", "space", "policy", "cost_model", "table"}


def test_other_programs_for_logged_configs_are_found(acme: Path, tmp_path: Path) -> None:
    """Without a table: the programs of a complete and of an incomplete log are compared."""
    options: dict[str, Any] = {"space": "acme.space:Tiles", "policy": "grid", "target": TARGET, "progress": False}
    options["measure"] = {"kind": "local", "workers": 1, "min_repeat_ms": 0, "repeat": 1, "finalists": 0}
    log = tmp_path / "local.jsonl"
    searchlab.tune("gemm:16x16x16", log=log, trials=3, batch=2, **options)
    before = log.read_bytes()
    edit(acme, "schedules", "FACTOR = 4", "FACTOR = 2")
    for trials in (3, 5):
        with pytest.raises(OtherRun, match="program"):
            searchlab.tune("gemm:16x16x16", log=log, trials=trials, batch=2, **options)
    assert log.read_bytes() == before
