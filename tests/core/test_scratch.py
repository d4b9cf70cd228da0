"""Folders for temporary files: those of processes that have ended are removed, others are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.machine.scratch import FOLDER_PREFIX, ScratchFolder
from searchlab.run.study import Study
from tests.support.logs import write_table

HOLD = """
import signal, sys
from searchlab.machine.scratch import ScratchFolder
folders = [ScratchFolder() for _ in range(3)]
print(folders[0].name, flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holder() -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout and process.stdout.readline()
    return process


def test_the_next_run_removes_what_a_killed_one_left(temporary: Path) -> None:
    alive, dead = holder(), holder()
    file = temporary / f"{FOLDER_PREFIX}is-no-directory"
    file.write_text("")
    assert len(list(temporary.iterdir())) == 7
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    with ScratchFolder() as folder:
        assert len(list(temporary.iterdir())) == 3 + 1 + 1 and Path(folder).is_dir()
    alive.kill()
    alive.communicate()
    ScratchFolder().cleanup()
    assert list(temporary.iterdir()) == [file]


def test_folders_created_at_the_same_time_all_exist(temporary: Path) -> None:
    folders: list[ScratchFolder] = []

    def make() -> None:
        for _ in range(50):
            folders.append(ScratchFolder())
            folders.append(ScratchFolder())
            folders[-1].cleanup()

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    existing = [folder for folder in folders if Path(folder.name).is_dir()]
    assert len(folders) == 400 and len(existing) == 200
    for folder in existing:
        folder.cleanup()


def test_jobs_leave_nothing(temporary: Path) -> None:
    write_table(temporary / "table.jsonl", toys.Small(), toys.simulate_flaky)
    dead = holder()
    dead.kill()
    dead.communicate()
    study = Study.from_dict(
        {
            "workloads": ["gemm:64x64x64"],
            "spaces": [{"name": "searchlab.conformance.toys:Small"}],
            "policies": ["random"],
            "seeds": 2,
            "trials": 4,
            "target": {"kind": "llvm"},
            "measure": {"kind": "table", "path": "table.jsonl"},
        },
        temporary,
    )
    study.run(temporary / "out", jobs=2)
    assert not list(temporary.glob(f"{FOLDER_PREFIX}*"))


def test_no_directory_for_temporary_files_is_one_sentence(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "nowhere"))
    with pytest.raises(SearchlabError, match="cannot create a temporary folder: No such file.*set TMPDIR"):
        ScratchFolder()
