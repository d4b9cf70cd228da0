"""``searchlab watch``: a study's report in a browser, rendered again while the study runs."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, NamedTuple

import msgspec

from ..console import format_duration
from ..errors import SearchlabError, SearchlabWarning, describe, encodable
from ..log.budget import Budget
from ..log.forecast import RunStatus, forecast, sum_forecasts
from ..log.format import Log
from ..log.lease import is_locked
from ..log.plan import PlannedRun, StudyPlan, read_plan
from ..log.read import decode_log, find_logs, read_log_bytes
from .comparison import Comparison
from .page.render import render_page, render_waiting_page
from .read import read_planned_claims
from .runs import ComparedRuns
from .words import counted

HOST = "127.0.0.1"
"""Only this machine can connect."""

POLL_SECONDS = 2.0
"""The time between two looks at the logs."""

MIN_REPORT_SECONDS = 15.0
"""The minimum time between two reports, since each of them loads the page again."""

REST_RATIO = 10.0
"""While runs are being measured, the minimum time between two reports, relative to the CPU time that they take."""

MAX_PAUSE_SECONDS = 60.0
"""The longest pause between two runs of a study, after which it counts as stopped."""

State = Literal["finished", "running", "interrupted", "damaged", "not started"]


class _LogState(NamedTuple):
    """The state of a run and its log file when they were last looked at.

    Attributes:
        status: The progress of the run.
        state: Whether the run has started and ended, and whether its log can be read.
        stamp: The inode, size and time of modification of the log file.
    """

    status: RunStatus
    state: State = "not started"
    stamp: tuple[int, ...] = ()


class StudyProgress:
    """The progress of runs.

    Args:
        *paths: Logs, and directories of logs, which need not exist yet. Only a single directory may contain a plan.

    Raises:
        SearchlabError: If a file is not called ``*.jsonl`` or ``*.jsonl.gz``.
    """

    def __init__(self, *paths: Path) -> None:
        suffixes = (".jsonl", ".jsonl.gz")
        log_paths = [path for path in paths if path.exists() and not path.is_dir()]
        if not_logs := [path for path in log_paths if not (path.is_file() and path.name.endswith(suffixes))]:
            raise SearchlabError(
                f"{not_logs[0]} is neither a log (*.jsonl) nor a directory; pass the directory that contains a study's "
                f"logs, such as results/STUDY, or logs"
            )
        self.paths = paths
        folders = [path.parent if path.is_file() else path for path in paths]
        self.directory = folders[0]
        if len(folders) > 1:
            self.directory = Path(os.path.commonpath(map(os.path.abspath, folders)))
        self.plan: StudyPlan | None = None
        self.problem = ""  # why the plan cannot be read
        self.log_states: dict[str, _LogState] = {}  # by log
        self.update()

    def update(self) -> None:
        """Read the plan and the logs that have changed. What is damaged is named by the report."""
        self.plan, self.problem = None, ""
        try:
            self.plan = read_plan(self.directory) if self.paths == (self.directory,) else None
        except SearchlabError as error:
            self.problem = str(error)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SearchlabWarning)
            runs = self.plan.runs if self.plan else self._list_unplanned_runs()
            self.log_states = {run.log: self._find_state(run) for run in runs}

    @property
    def has_begun(self) -> bool:
        return any(log.state != "not started" for log in self.log_states.values())

    @property
    def is_running(self) -> bool:
        return any(log.state == "running" for log in self.log_states.values())

    @property
    def is_finished(self) -> bool:
        """Whether all runs of a plan are finished."""
        return self.plan is not None and all(log.state == "finished" for log in self.log_states.values())

    @property
    def trial_count(self) -> int:
        return sum(log.status.trial_count for log in self.log_states.values())

    def __str__(self) -> str:
        log_statuses = [log.status for log in self.log_states.values()]
        state_counts = Counter(log.state for log in self.log_states.values())
        if not log_statuses:
            if absent := [path for path in self.paths if not path.exists()]:
                return f"{absent[0]} does not exist yet; the report appears when the study begins."
            return "There are no runs here yet."
        runs = counted(len(log_statuses), "log")
        listed_states: list[State] = ["running", "damaged"]
        if self.plan:  # otherwise, it is unknown whether a run is complete
            runs = f"{state_counts['finished']} of {counted(len(log_statuses), 'run')} finished"
            listed_states = ["running", "interrupted", "damaged", "not started"]
        text = ", ".join([runs, *(f"{state_counts[state]} {state}" for state in listed_states if state_counts[state])])
        text += f"; {counted(self.trial_count, 'trial')} done"
        remaining_count, seconds = sum_forecasts(forecast(log_statuses))
        if remaining_count:
            text += f", at most {remaining_count:,} left"
        if seconds and state_counts["running"]:
            text += f", which take about {format_duration(seconds / state_counts['running'])}"
        last_change = max((log.stamp[-1] / 1e9 for log in self.log_states.values() if log.stamp), default=math.inf)
        is_quiet = not self.is_running and time.time() - last_change > MAX_PAUSE_SECONDS
        if self.plan and is_quiet and state_counts["finished"] < len(log_statuses):
            date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last_change))
            text += f". The study is not running: its logs last changed at {date}. Run it again to continue it."
        return text

    def _list_unplanned_runs(self) -> list[PlannedRun]:
        """Return the runs of all logs, which no plan describes."""
        log_paths = (log_path for path in self.paths for log_path in find_logs(path))
        relative_paths = (Path(os.path.relpath(log_path, self.directory)).as_posix() for log_path in log_paths)
        logs = dict.fromkeys(relative_path.removesuffix(".gz") for relative_path in relative_paths)
        return [
            PlannedRun(log=log, workload="", space="", strategy="", seed=0, budget=Budget())
            for log in logs
            if log.endswith(".jsonl")
        ]

    def _find_state(self, run: PlannedRun) -> _LogState:
        path = self.directory / run.log
        try:
            if not path.exists():
                path = path.with_name(f"{path.name}.gz")
            stat = path.stat()
        except (OSError, ValueError):  # a plan may contain any name
            return _LogState(RunStatus(run))
        stamp = stat.st_ino, stat.st_size, stat.st_mtime_ns
        previous = self.log_states.get(run.log)
        if previous and (previous.stamp != stamp or previous.status.run != run):
            previous = None  # the log or its place in the plan has changed
        if previous and previous.state in ("finished", "damaged"):
            return previous
        is_running = is_locked(path)  # checked before the log is read, since the run may end in between
        try:
            status = previous.status if previous else RunStatus.from_log(run, self._read_log(path))
        except SearchlabError:
            return _LogState(RunStatus(run), "damaged", stamp)
        if is_running:
            return _LogState(status, "running", stamp)
        return _LogState(status, "finished" if status.is_complete else "interrupted", stamp)

    def _read_log(self, path: Path) -> Log | None:
        log_bytes = read_log_bytes(path, self.directory)
        return decode_log(path, log_bytes) if b"\n" in log_bytes else None


class WatchServer(ThreadingHTTPServer):
    """An HTTP server for the report on logs.

    A thread renders the report while a browser asks for it, and the last report that could be rendered is served. The
    server ignores the paths of requests, and the page contains only relative addresses, so both work behind a tunnel
    or a proxy with any prefix.

    Args:
        *paths: The directory that contains a study's logs, or logs and directories of logs.
        read: The function that reads their runs, such as :func:`~searchlab.analysis.read.read_runs`.
        port: The port on which to serve the page, or 0 for any free port.

    Raises:
        SearchlabError: If a file is not a log, or the port cannot be used.
    """

    def __init__(self, *paths: Path, read: Callable[..., ComparedRuns], port: int = 0) -> None:
        self.progress = StudyProgress(*paths)
        self.version = "0"
        self.page = render_waiting_page(self.version).encode()
        self.lines = [str(self.progress)]
        self.asked = Event()
        self.asked.set()
        self._read = read
        self._closed = Event()
        self._thread = Thread(target=self._keep_up_to_date, daemon=True)
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise SearchlabError(
                f"port {port} cannot be used: {getattr(error, 'strerror', None) or error}; choose another --port, or "
                f"omit it"
            ) from None
        self.url = f"http://{HOST}:{self.server_port}/"
        self._thread.start()

    def server_close(self) -> None:
        super().server_close()
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()  # a process must not end while a thread executes C++ code

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a browser may close a connection at any time
            super().handle_error(request, client_address)

    def _keep_up_to_date(self) -> None:
        rendered_snapshot: object = None
        notes: list[str] = []
        next_time = 0.0
        report = ""
        while not self._closed.is_set():
            if self.asked.is_set():
                self.asked.clear()
                self.progress.update()
                snapshot = self.progress.plan, self.progress.problem, self.progress.log_states
                is_due = time.monotonic() >= next_time or not self.progress.is_running
                if snapshot != rendered_snapshot and self.progress.has_begun and is_due:
                    rendered_snapshot, start = snapshot, time.thread_time()
                    report = f"{counted(self.progress.trial_count, 'trial')}, made at {time.strftime('%H:%M:%S')}"
                    self.lines = [str(self.progress), "A report is being prepared."]
                    notes = self._render()
                    next_time = time.monotonic() + max(MIN_REPORT_SECONDS, REST_RATIO * (time.thread_time() - start))
                age = [f"This is the report on {report}."] if report and snapshot != rendered_snapshot else []
                self.lines = [str(self.progress), *age, *notes]
            self._closed.wait(POLL_SECONDS)

    def _render(self) -> list[str]:
        """Render the report, and return the problems that were found."""
        paths, version = self.progress.paths, str(time.time_ns())
        with warnings.catch_warnings(record=True) as records:
            warnings.simplefilter("always", SearchlabWarning)
            try:
                comparison = Comparison(self._read(*paths), read_planned_claims(*paths))
                page = render_page(comparison.summary, comparison.runs, comparison.charts, version)
                self.page, self.version, problems = page.encode(), version, []
            except Exception as error:  # plug-ins and libraries may raise anything; the last page stays
                problems = [str(error) if isinstance(error, SearchlabError) else describe(error)]
        notes = [str(record.message) for record in records if record.category is SearchlabWarning]
        return [encodable(text) for text in dict.fromkeys(problems + notes)]


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    timeout = 20.0

    def do_GET(self) -> None:
        server = self.server
        server.asked.set()
        path, _, query = self.path.partition("?")
        if query == "progress":
            progress = {"version": server.version, "text": "\n".join(server.lines)}
            self._answer(msgspec.json.encode(progress), "application/json")
        elif "." in path.rpartition("/")[2]:
            self.send_error(404)  # a browser's request for an icon
        else:
            self._answer(server.page, "text/html; charset=utf-8")

    def _answer(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        for name, value in {
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
