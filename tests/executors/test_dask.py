"""Runs on Dask: a cluster that loses a process, and clusters on which runs cannot measure."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from searchlab.errors import SearchlabError
from searchlab.executors.dask import DaskExecutor
from tests.support.executing import read_deterministic_parts, table_study

distributed: Any = pytest.importorskip("distributed", reason="requires Dask: pip install '.[dask]'")
dask: Any = pytest.importorskip("dask")


def test_a_killed_worker_changes_no_log_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    study = table_study(tmp_path, seeds=6)
    study.run(tmp_path / "one-by-one")
    killed: list[int] = []

    def kill(*_: object) -> None:
        if not killed:
            killed.append(next(iter(executor._client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    executor = DaskExecutor(False, tmp_path, jobs=2, batch=2)
    try:
        study.run(tmp_path / "out", kill, executor=executor)
    finally:
        executor.shutdown()
    assert killed and read_deterministic_parts(tmp_path / "out") == read_deterministic_parts(tmp_path / "one-by-one")
    assert len(read_deterministic_parts(tmp_path / "out")) == 12
    assert not list(temporary.iterdir())


def test_workers_say_which_machines_may_be_measured(tmp_path: Path) -> None:
    """A cluster whose workers are threads of this process, since nothing is run there."""
    options = {"processes": False, "dashboard_address": None, "n_workers": 2, "threads_per_worker": 1}
    with distributed.LocalCluster(**options) as cluster:
        address = cluster.scheduler_address
        executor = DaskExecutor(False, tmp_path, address=address)
        assert executor.jobs == 2
        executor.shutdown()
        with pytest.raises(SearchlabError, match="no worker in the Dask cluster at .* offers .*; start one worker on"):
            DaskExecutor(True, tmp_path, address=address)
        with pytest.raises(SearchlabError, match="omit jobs"):
            DaskExecutor(False, tmp_path, address=address, jobs=2)
    with distributed.LocalCluster(**options, resources={"machine": 1}) as cluster:
        with pytest.raises(
            SearchlabError, match="the Dask cluster at .* has 2 such workers on .* only one of them on each host"
        ):
            DaskExecutor(True, tmp_path, address=cluster.scheduler_address)
        cluster.scale(1)
        cluster.sync(cluster._correct_state)
        exclusive = DaskExecutor(True, tmp_path, address=cluster.scheduler_address)
        assert exclusive.jobs == 1 and exclusive.submit(int, "7").result() == 7
        exclusive.shutdown()


def test_no_cluster_is_one_sentence(tmp_path: Path) -> None:
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "500ms"}),
        pytest.raises(SearchlabError, match="cannot reach a Dask scheduler at 127.0.0.1:9: "),
    ):
        DaskExecutor(False, tmp_path, address="127.0.0.1:9")


@pytest.mark.parametrize("address", ["no such host:xx", "tcp://", "[::1", "tls://127.0.0.1:1"])
def test_a_wrong_address_is_one_sentence_and_leaves_no_client(tmp_path: Path, address: str) -> None:
    with pytest.raises(SearchlabError, match="cannot reach a Dask scheduler at "):
        DaskExecutor(False, tmp_path, address=address)


def test_a_killed_scheduler_ends_the_study_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.executors.dask.RECONNECT_TIMEOUT", 1.0)
    handler = logging.StreamHandler(logged := io.StringIO())
    monkeypatch.setattr(logging.getLogger("distributed"), "handlers", [handler])
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    file = tmp_path / "scheduler.json"
    with subprocess.Popen(
        [*command, "--no-dashboard", "--scheduler-file", str(file)], stderr=subprocess.DEVNULL
    ) as scheduler:
        try:
            while not file.exists() or not file.read_text().endswith("}"):
                assert scheduler.poll() is None
                time.sleep(0.05)
            address = json.loads(file.read_text())["address"]
            executor = DaskExecutor(False, tmp_path, address=address)  # there are no workers, so all runs are pending
            threading.Timer(1.0, scheduler.kill).start()
            with pytest.raises(SearchlabError, match="connection to the Dask scheduler is lost|worker was lost"):
                table_study(tmp_path).run(tmp_path / "out", executor=executor, progress=False)
            executor.kill_workers()
        finally:
            scheduler.kill()
    assert "Traceback" not in logged.getvalue()
