"""What a store takes from logs and reports about them; nothing is duplicated, lost or misattributed."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab import SearchlabError, Store, load_log, trusting
from searchlab.log.format import read_log
from searchlab.machine.host import cpu_model
from searchlab.run.plan import EarlierRun, earlier_runs
from searchlab.store.store import default_path
from searchlab.target import resolve_target
from tests.support import toys
from tests.support.logs import HEADER
from tests.support.stores import logged, searched

HERE = {"host": {"cpu": cpu_model()}}
CPU = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}
WORKLOAD = "gemm:64x64x64"


class Run(NamedTuple):
    workload: str
    target: str
    cpu: str
    seconds: list[float | None]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.workload, self.target, self.cpu


RUNS = st.lists(
    st.builds(
        Run,
        st.sampled_from([WORKLOAD, "conv2d:1x8x8x4x4x3x3:p1"]),
        st.sampled_from(["znver3", "znver4"]),
        st.sampled_from(["this CPU", "that CPU"]),
        st.lists(st.none() | st.sampled_from([1e-3, 2e-3, 4e-3]), min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=15)
@given(runs=RUNS, order=st.randoms(use_true_random=False), data=st.data())
def test_it_tells_what_the_logs_hold_in_whatever_order_and_pieces_they_come(
    runs: list[Run], order: Any, data: Any
) -> None:
    with TemporaryDirectory() as folder:
        store = Store(Path(folder, "store.db"))

        def log(number: int, trials: int | None = None) -> Path:
            run = runs[number]
            return logged(
                Path(folder, f"{number}.jsonl"), run.seconds[:trials], workload=run.workload, created=float(number + 1),
                target={"kind": "llvm", "mcpu": run.target, "caches": [[1 << number, 8, 64]]}, host={"cpu": run.cpu},
            )  # fmt: skip

        for number, run in enumerate(runs):
            if data.draw(st.booleans(), label="seen early"):
                store.add(log(number, data.draw(st.integers(1, len(run.seconds)))))
        logs = [log(number) for number in range(len(runs))]
        for path in order.sample(logs, len(logs)):
            store.add(path)
        assert store.add(folder).known == len(logs)

        held = {(one.key.workload, one.to_json()["target"]["mcpu"], one.key.machine): one for one in store.find()}
        assert set(held) == {run.key for run in runs}
        for key, one in held.items():
            own = [run for run in runs if run.key == key]
            ran = [seconds for run in own for seconds in run.seconds if seconds is not None]
            failed = any(seconds is None for run in own for seconds in run.seconds)
            assert (one.runs, one.trials) == (len(own), sum(len(run.seconds) for run in own))
            assert one.programs == len(set(ran)) + failed
            assert one.seconds == min(ran, default=None)
            assert [one] == store.find(key[0], machine=key[2].upper()[:6], target={"kind": "llvm", "mcpu": key[1]})


def test_a_log_is_had_again_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "store.db")
    path = logged(tmp_path / "a.jsonl", [4e-3, 1e-3], again=[1, 0])
    assert vars(store.add(path)) == {"runs": 1, "trials": 2, "known": 0, "left_out": {}}
    (early,) = earlier_runs([path], "median")
    assert isinstance(early, EarlierRun)
    before = shutil.copy(path, tmp_path / "before.jsonl")
    logged(path, [4e-3, 1e-3, None, 2e-3], again=[3])
    assert store.add(load_log(path)).trials == 2 and store.add(before).known == 1
    (held,) = store.find()
    assert (held.runs, held.trials, held.seconds) == (1, 4, load_log(path).best.seconds)

    (result,) = store.results()
    whole = read_log(path)
    assert (result.log.header, result.log.records, result.log.final) == (whole.header, whole.records, whole.final)
    assert result.best.trial.index == 3 and result.best.retimed
    then = store.log_of(early.digest)
    assert then is not None and then.records == early.log.records and then.final == early.log.final
    assert store.log_of("no such") is None


def test_a_run_that_began_alike_and_went_on_otherwise_is_another(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.add(logged(tmp_path / "a.jsonl", [1e-3, 2e-3]), logged(tmp_path / "b.jsonl", [1e-3, 4e-3, 8e-3]))
    assert [(one.runs, one.trials, one.programs) for one in store.find()] == [(2, 5, 4)]
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes((tmp_path / "b.jsonl").read_bytes()[:-9])
    assert store.add(torn).known == 1


def test_the_best_is_of_the_target_and_the_machine_that_are_meant(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    target = resolve_target(CPU).to_json()
    store.add(
        logged(tmp_path / "slow.jsonl", [4e-3], target=target, **HERE),
        logged(tmp_path / "here.jsonl", [2e-3, 9e-3], target=target, again=[0], **HERE),
        logged(tmp_path / "there.jsonl", [1e-3], target=target, host={"cpu": "Ryzen, far away"}),
        logged(tmp_path / "fleet.jsonl", [5e-4], target=target, host={}, measure={"kind": "rpc", "key": "board"}),
        logged(tmp_path / "cores.jsonl", [1e-4], target=target | {"num-cores": 4}, **HERE),
    )
    found = store.best(WORKLOAD, target=CPU, log=tmp_path / "again.jsonl")
    here = load_log(tmp_path / "here.jsonl").best
    assert (found.seconds, found.config, found.retimed) == (here.seconds, here.config, True)
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    assert store.best(WORKLOAD, target=CPU, machine="ryzen").seconds == 1e-3
    assert store.best(WORKLOAD, target=CPU, machine="board").seconds == 5e-4
    with pytest.raises(SearchlabError, match="cannot write .*again.jsonl: File exists"):
        store.best(WORKLOAD, target=CPU, log=tmp_path / "again.jsonl")
    with pytest.raises(SearchlabError, match="'' matches several machines: .*; .*Ryzen, far away; board"):
        store.best(WORKLOAD, target=CPU, machine="")
    nothing = r"no working program that computes gemm:64x64x64 for llvm mcpu=znver4 on .*"
    elsewhere = f"{nothing}; for this workload, it contains only .*: 3 for llvm mcpu=znver4 "
    with pytest.raises(SearchlabError, match=f"{elsewhere}num-cores=2 on .*; 1 for .* on Ryzen, far away"):
        store.best(WORKLOAD, target="znver4")
    with pytest.raises(SearchlabError, match="on epyc of nobody; for this workload, it contains"):
        store.best(WORKLOAD, target=CPU, machine="epyc of nobody")
    with pytest.raises(
        SearchlabError, match="no working program that computes gemm:65x64x64.*did you mean 'gemm:64x64x64'"
    ):
        store.best("gemm:65x64x64", target=CPU)


def test_what_measured_nothing_is_left_out(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for name, header, said in (
        ("table", {"measure": {"kind": "table", "path": "t"}}, "contains no measurements"),
        ("analysis", {"fingerprint": "autotvm:0"}, "was imported for analysis only"),
        ("unknown", {"workload": "sort:10"}, "unknown workload 'sort:10'"),
    ):
        logged(logs / f"{name}.jsonl", [1e-3], **header)
        with pytest.raises(SearchlabError, match=said):
            Store(tmp_path / "store.db").add(logs / f"{name}.jsonl")
    logged(logs / "empty.jsonl", [])
    (logs / "diary.jsonl").write_text("dear diary")
    logged(logs / "good.jsonl", [1e-3])
    added = Store(tmp_path / "store.db").add(logs)
    assert (added.runs, len(added.left_out)) == (1, 5)
    assert "contains no trials yet" in added.left_out[logs / "empty.jsonl"]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(SearchlabError, match="no logs .* to add in .*nothing"):
        Store(tmp_path / "store.db").add(tmp_path / "nothing")


def test_code_that_a_log_names_is_imported_only_where_it_is_trusted(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.add(searched(tmp_path / "a.jsonl", toys.Small(), toys.smooth, 0, 3))
    (result,) = store.results()
    with pytest.raises(SearchlabError, match=r"store.db.*a.jsonl refers to the space '.*toys:Small'.*trust this file"):
        result.best.schedule()
    with trusting():
        assert result.best.schedule().mod


def _add(path: Path, logs: list[Path], ready: Any) -> None:
    ready.wait()
    for log in logs:
        Store(path).add(log)


def test_two_processes_add_at_once(tmp_path: Path) -> None:
    logs = [logged(tmp_path / f"{number}.jsonl", [1e-3] * 3, created=float(number)) for number in range(30)]
    context = multiprocessing.get_context("fork")  # no module is imported again
    ready = context.Barrier(2)
    parts = logs[:20], logs[:9:-1]  # both add a third of them
    processes = [context.Process(target=_add, args=(tmp_path / "store.db", part, ready)) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    (held,) = Store(tmp_path / "store.db").find()
    assert (held.runs, held.trials) == (30, 90)
    assert sorted(path.name for path in tmp_path.glob("store*")) == ["store.db"]


def test_where_the_store_of_a_user_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SEARCHLAB_STORE", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store().path == tmp_path / ".local" / "share" / "searchlab" / "store.db"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_path() == tmp_path / ".local" / "share" / "searchlab" / "store.db"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_path() == tmp_path / "data" / "searchlab" / "store.db"
    monkeypatch.setenv("SEARCHLAB_STORE", str(tmp_path / "mine.db"))
    assert Store() == Store(tmp_path / "mine.db")
    assert HEADER.measured_on == "x"
