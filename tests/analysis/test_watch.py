"""The server of a study's report: progress, reports that follow the logs, and answers behind tunnels and proxies."""

from __future__ import annotations

import gzip
import html
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from searchlab.analysis import watch
from searchlab.analysis.charts.vegalite import bundle_javascript
from searchlab.analysis.read import read_runs
from searchlab.analysis.runs import ComparedRuns
from searchlab.analysis.watch import StudyProgress, WatchServer
from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.log.plan import PLAN_FILE_NAME
from searchlab.log.read import read_header
from searchlab.log.writer import LogWriter
from searchlab.records import Trial
from searchlab.run.study import Study
from tests.support.analysis.logs import write
from tests.support.cli import searchlab
from tests.support.logs import HEADER, make_record, write_table, write_trials

Serve = Callable[..., WatchServer]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watch, "MIN_REPORT_SECONDS", 0.0)
    monkeypatch.setattr(watch, "REST_RATIO", 0.0)
    with ExitStack() as ends:

        def start(directory: Path, read: Callable[[Path], ComparedRuns] = read_runs) -> WatchServer:
            server = ends.enter_context(WatchServer(directory, read=read))
            thread = Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            ends.callback(thread.join)
            ends.callback(server.shutdown)
            return server

        yield start


def study(tmp_path: Path, **changes: Any) -> Study:
    if not (tmp_path / "table.jsonl").exists():
        write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    spec = {
        "workloads": [str(toys.WORKLOAD)],
        "spaces": ["searchlab.conformance.toys:Small"],
        "seeds": 2,
        "trials": 12,
        "policies": ["random", {"name": "random", "label": "other"}],
        "batch": 4,
        "target": {"kind": "llvm"},
        "measure": {"kind": "table", "path": "table.jsonl"},
    }
    return Study.from_dict({**spec, **changes}, tmp_path)


def ask(server: WatchServer, path: str = "/", method: str = "GET", host: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def progress(server: WatchServer) -> str:
    text: str = json.loads(ask(server, "/?progress")[1])["text"]
    return text


def wait_for(server: WatchServer, condition: Callable[[], object]) -> None:
    """Ask for the progress, as a page does, until a condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, progress(server)
        progress(server)
        time.sleep(0.02)


def add_log(directory: Path, strategy: str, seed: int = 0, **changes: Any) -> None:
    """Add a complete log at once, since a server may read one that is being written."""
    directory.mkdir(exist_ok=True)
    path = write(directory.with_name("written"), strategy, seed, [3, 2, 1], **changes)
    path.rename(directory / path.name)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    add_log(tmp_path / "logs", "a")
    return tmp_path / "logs"


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_follows_a_study_from_its_first_run(tmp_path: Path) -> None:
    out, texts = tmp_path / "out", []

    def on_run(run: Any, number: int, count: int, job: int) -> Any:
        def on_trial(trial: Trial, replayed: bool) -> None:
            if trial.index == 5:
                texts.append(str(StudyProgress(out)))

        return on_trial

    study(tmp_path).run(out, on_run)
    assert texts[0].startswith("0 of 4 runs finished, 1 running, 3 not started; 4 trials done, at most 44 left")
    assert texts[1].startswith("1 of 4 runs finished, 1 running, 2 not started; 16 trials done, at most 32 left")
    assert all("left, which take about " in text for text in texts)
    assert str(StudyProgress(out)) == "4 of 4 runs finished; 48 trials done"


@pytest.mark.filterwarnings("ignore:.*contains 12 trials, more than the 8 requested")
def test_progress_follows_logs_and_plans_that_change(tmp_path: Path) -> None:
    out, first_study = tmp_path / "out", study(tmp_path)
    first_study.run(out)
    path = out / first_study.plan().runs[2].log_path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:7]) + lines[7][:20])
    watched = StudyProgress(out)
    assert str(watched) == "3 of 4 runs finished, 1 interrupted; 42 trials done, at most 6 left"
    for size, state in ((10, "1 interrupted; 36"), (None, "48")):
        path.write_bytes(b"".join(lines)[:size])
        watched.update()
        assert f"{state} trials done" in str(watched)
    path.unlink()
    watched.update()
    assert str(watched).startswith("3 of 4 runs finished, 1 not started; 36 trials done")
    study(tmp_path, seeds=1, trials=8).run(out)
    watched.update()
    assert str(watched) == "2 of 2 runs finished; 24 trials done"


def test_progress_says_that_a_study_has_stopped(tmp_path: Path) -> None:
    out, stopped = tmp_path / "out", study(tmp_path)
    stopped.run(out)
    path = out / stopped.plan().runs[3].log_path
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:7]))
    assert "not running" not in str(StudyProgress(out)), "the next run may be about to begin"
    for log in out.rglob("*.jsonl"):
        os.utime(log, (1.8e9 - 1e9, 1.8e9 - 1e9))
    text = str(StudyProgress(out))
    assert text.startswith(
        "3 of 4 runs finished, 1 interrupted; 42 trials done, at most 6 left. The study is not running"
    )
    assert "last changed at 1995-" in text
    with LogWriter(path, read_header(path)):
        assert "not running" not in str(StudyProgress(out))


def test_only_logs_that_have_changed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trials(tmp_path / "a.jsonl", 5)
    data = write_trials(tmp_path / "b.jsonl", 5)
    watched, read = StudyProgress(tmp_path), []
    original = StudyProgress._read_log
    monkeypatch.setattr(StudyProgress, "_read_log", lambda self, path: read.append(path) or original(self, path))
    watched.update()
    assert not read
    (tmp_path / "b.jsonl").write_bytes(data + data.splitlines(keepends=True)[-1].replace(b'"index":4', b'"index":5'))
    watched.update()
    assert read == [tmp_path / "b.jsonl"] and str(watched) == "2 logs; 11 trials done"


def test_progress_counts_compressed_logs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    study(tmp_path).run(out)
    for path in list(out.rglob("*.jsonl"))[:2]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert str(StudyProgress(out)) == "4 of 4 runs finished; 48 trials done"
    (out / PLAN_FILE_NAME).unlink()
    assert str(StudyProgress(out)) == "4 logs; 48 trials done"


def test_progress_without_a_plan(tmp_path: Path) -> None:
    assert str(StudyProgress(tmp_path)) == "There are no runs here yet."
    with LogWriter(tmp_path / "a.jsonl", HEADER) as writer:
        writer.append(make_record(0))
        (tmp_path / "b.jsonl").write_text("no log\n")
        assert str(StudyProgress(tmp_path)) == "2 logs, 1 running, 1 damaged; 1 trial done"


@pytest.mark.parametrize(
    "name", ["x" * 5000, "a\0b", "loop", "pipe", "../secret"], ids=["long", "null", "loop", "pipe", "outside"]
)
def test_progress_survives_plans_from_strangers(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    run = {"workload": "w", "space": "s", "strategy": name, "seed": 0, "budget": {}}
    (tmp_path / PLAN_FILE_NAME).write_text(json.dumps({"searchlab_study": 1, "runs": [run | {"log": f"{name}.jsonl"}]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # they would be repeated at every poll
        assert str(StudyProgress(tmp_path)).startswith(("0 of 1 run finished, 1 ", "There are no runs here yet."))


def test_only_logs_and_directories_can_be_watched(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SearchlabError, match=r"file is neither a log \(\*\.jsonl\) nor a directory"):
        StudyProgress(tmp_path / "file")


def test_logs_can_be_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    """Once, only a directory could be, though a single run is reported on, too."""
    for name, costs in {"a": [3, 2, 1], "b": [2, 1, 3, 4]}.items():
        write(tmp_path / name, name, 0, costs)
    monkeypatch.chdir(tmp_path)
    (log,) = Path("a").glob("*.jsonl")
    assert str(StudyProgress(log)) == str(StudyProgress(tmp_path / log)) == "1 log; 3 trials done"
    assert str(StudyProgress(tmp_path / log, Path("b"))) == "2 logs; 7 trials done"
    server = serve(log)
    wait_for(server, lambda: "a converges" in ask(server)[1] or "best known" in ask(server)[1])


def test_a_study_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    progress = StudyProgress(tmp_path / "study")
    assert str(progress).endswith("study does not exist yet; the report appears when the study begins.")
    write(tmp_path / "study", "a", 0, [3, 2, 1])
    progress.update()
    assert str(progress) == "1 log; 3 trials done"


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_report_is_rendered_only_if_logs_have_changed(logs: Path, serve: Serve) -> None:
    times = []

    def read(directory: Path) -> ComparedRuns:
        times.append(directory)
        return read_runs(directory)

    server = serve(logs, read)
    wait_for(server, lambda: server.version != "0")
    before, page = server.version, ask(server)[1]
    assert f'data-version="{before}"' in page and "Ranking" in page
    for _ in range(20):
        progress(server)
        time.sleep(0.02)
    assert times == [logs] and server.version == before
    add_log(logs, "b")
    wait_for(server, lambda: server.version != before)
    assert len(times) == 2 and ask(server)[1] != page


def test_the_last_report_follows_the_last_run_at_once(
    logs: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MIN_REPORT_SECONDS", 3600.0)
    (log,) = logs.iterdir()
    server = serve(logs)
    with LogWriter(log, read_header(log)) as writer:
        wait_for(server, lambda: server.version != "0" and "1 running" in progress(server))
        version = server.version
        writer.append(make_record(3))
        wait_for(server, lambda: "This is the report on 3 trials, made at " in progress(server))
        assert server.version == version
    wait_for(server, lambda: server.version != version)
    wait_for(server, lambda: progress(server) == "1 log; 4 trials done")


def test_progress_is_shown_until_there_is_a_report(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "logs").mkdir()
    server = serve(tmp_path / "logs")
    assert "The report appears here" in ask(server)[1] and progress(server) == "There are no runs here yet."
    add_log(tmp_path / "logs", "a")
    wait_for(server, lambda: progress(server) == "1 log; 3 trials done")
    assert server.version != "0" and "The report appears here" not in ask(server)[1]


def test_a_damaged_log_is_named_and_the_others_are_compared(tmp_path: Path, serve: Serve) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "damaged.jsonl").write_text("no log\n")
    server = serve(logs)
    wait_for(server, lambda: "damaged.jsonl" in progress(server))
    assert progress(server).startswith("1 log, 1 damaged; 0 trials done\n") and server.version == "0"
    add_log(logs, "a")
    wait_for(server, lambda: progress(server).startswith("2 logs, 1 damaged; 3 trials done\nskipped: "))
    assert server.version != "0" and "damaged.jsonl" in progress(server)


def test_the_last_report_is_kept_while_none_can_be_made(logs: Path, serve: Serve) -> None:
    server = serve(logs)
    wait_for(server, lambda: server.version != "0")
    version, page = server.version, ask(server)[1]
    add_log(logs, "a", seed=1, target={"kind": "cuda"})
    wait_for(server, lambda: "their target differs" in progress(server))
    assert (server.version, ask(server)[1]) == (version, page)
    (logs / PLAN_FILE_NAME).write_text("[]")
    wait_for(server, lambda: "plan.json is damaged" in progress(server))


# --- the server -------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(logs: Path, serve: Serve) -> WatchServer:
    server = serve(logs)
    wait_for(server, lambda: server.version != "0")
    return server


def test_only_this_machine_can_connect(server: WatchServer) -> None:
    assert server.server_address[0] == "127.0.0.1" and server.url == f"http://127.0.0.1:{server.server_port}/"


@pytest.mark.parametrize("path", ["/", "/proxy/9000/", "/proxy/9000", "/user/a.b/proxy/9000/"])
def test_a_proxy_may_keep_or_remove_a_prefix(server: WatchServer, path: str) -> None:
    assert ask(server, path) == (200, server.page.decode())
    assert json.loads(ask(server, f"{path}?progress")[1])["version"] == server.version


def test_the_page_contains_only_relative_addresses(server: WatchServer) -> None:
    page = ask(server)[1].replace(bundle_javascript(), "")
    assert set(re.findall(r"""(?:src|href|fetch\()=?["'](.)""", page)) == {"#", "?"}
    assert "connect-src 'self'" in html.unescape(page)


@pytest.mark.parametrize("host", ["localhost:9000", "[::1]:9000", "gateway.example:9000"])
def test_the_other_end_of_a_tunnel_may_have_any_name(server: WatchServer, host: str) -> None:
    assert ask(server, host=host)[0] == ask(server, "/?progress", host=host)[0] == 200


@pytest.mark.parametrize("path", ["/a.jsonl", "/../a.jsonl", "/%2e%2e/a.jsonl", "//etc/passwd.txt", "/favicon.ico"])
def test_no_file_is_served(server: WatchServer, path: str) -> None:
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_requests_change_nothing(server: WatchServer, method: str) -> None:
    assert ask(server, "/", method)[0] == 501


def test_a_port_that_is_taken_is_refused_in_a_sentence(server: WatchServer, tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match=f"port {server.server_port} cannot be used: .*; choose another --port"):
        WatchServer(tmp_path, read=read_runs, port=server.server_port)


def test_a_browser_may_close_its_connection(server: WatchServer, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        connection.request("GET", "/")
        connection.close()
    assert ask(server)[0] == 200 and capfd.readouterr().err == ""


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_report_on_a_running_study_tells_its_progress(logs: Path) -> None:
    (log,) = logs.iterdir()
    assert "trials done" not in searchlab("report", logs).stdout
    with LogWriter(log, read_header(log)):
        assert f"{logs}: 1 log, 1 running; 3 trials done" in searchlab("report", logs).stdout


@pytest.mark.parametrize(("number", "argument"), [(signal.SIGINT, "results/study"), (signal.SIGTERM, "study.toml")])
def test_the_command_ends_with_a_sentence(tmp_path: Path, number: signal.Signals, argument: str) -> None:
    write(tmp_path / "results/study", "a", 0, [3, 2, 1])
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    (tmp_path / "study.toml").write_text(
        f'policies = ["random"]\nworkloads = ["{toys.WORKLOAD}"]\nspaces = ["searchlab.conformance.toys:Small"]\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "searchlab", "watch", argument],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdout
    lines = [process.stdout.readline(), process.stdout.readline()]
    url = re.search(r"http://127\.0\.0\.1:(\d+)/", lines[1])
    assert lines[0] == "1 log; 3 trials done\n" and url
    connection = http.client.HTTPConnection("127.0.0.1", int(url[1]), timeout=20)
    connection.request("GET", "/?progress")  # an open connection does not delay the end
    assert connection.getresponse().read()
    process.send_signal(number)
    text, _ = process.communicate(timeout=20)
    assert process.returncode == 0 and "the page is closed" in text
    connection.close()
