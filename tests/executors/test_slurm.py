"""Runs as jobs of submitit, with those of its executors that do not need Slurm."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from searchlab.errors import SearchlabError
from searchlab.executors.slurm import SlurmExecutor
from tests.support.executing import read_deterministic_parts, table_study

submitit: Any = pytest.importorskip("submitit", reason="requires submitit: pip install '.[slurm]'")


@pytest.mark.parametrize("cluster", ["local", "debug"])
def test_jobs_of_submitit_change_nothing_in_a_replay(tmp_path: Path, cluster: str) -> None:
    options = {"cluster": cluster, "batch": 3, "poll_seconds": 0.1, "timeout_min": 5}
    study = table_study(tmp_path, executor={"name": "slurm", "options": options})
    results = study.run(tmp_path / "out")
    table_study(tmp_path).run(tmp_path / "one-by-one")
    assert (
        read_deterministic_parts(tmp_path / "out") == read_deterministic_parts(tmp_path / "one-by-one")
        and len(results) == 4
    )
    assert not list((tmp_path / "out" / "slurm").glob("*.*"))


def test_a_job_that_dies_is_an_error_and_keeps_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitit.Job, "_results_timeout_s", 0.5)  # how late a result may be; by default 15 s
    executor = SlurmExecutor(False, tmp_path, cluster="local", poll_seconds=0.1)
    assert executor.submit(int, "7").result() == 7
    with pytest.raises(submitit.core.utils.UncompletedJobError):
        executor.submit(signal.raise_signal, signal.SIGKILL).result()
    assert list((tmp_path / "slurm").glob("*_log.err"))
    executor.shutdown()


def test_a_job_submitted_just_before_shutdown_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watching thread must not end while a job is being submitted."""
    executor = SlurmExecutor(False, tmp_path, cluster="local", poll_seconds=0.1)
    shutdown = threading.Thread(target=executor.shutdown)
    submit = executor._executor.submit

    def slow(*call: Any) -> Any:
        shutdown.start()
        time.sleep(0.5)
        return submit(*call)

    monkeypatch.setattr(executor._executor, "submit", slow)
    assert executor.submit(int, "7").result(timeout=60) == 7
    shutdown.join()
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(int, "7")


def test_runs_that_measure_have_a_node_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: 2))
    executor = SlurmExecutor(True, tmp_path, slurm_partition="cpu", timeout_min=60)
    assert executor.one_per_machine
    assert executor._executor.parameters["exclusive"] is True
    assert executor._executor.parameters["partition"] == "cpu"
    executor.shutdown()
    local_executor = SlurmExecutor(True, tmp_path, cluster="local")
    assert not local_executor.one_per_machine  # so the runs are submitted one at a time
    local_executor.shutdown()


def test_a_wrong_parameter_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match="cannot create the Slurm executor: .*patition"):
        SlurmExecutor(False, tmp_path, cluster="local", slurm_patition="cpu")
