"""Plug-ins by name: registered names in logs, and options."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from searchlab import SearchlabError, tune
from searchlab.conformance import toys
from searchlab.costmodel import COST_MODELS
from searchlab.log.read import read_log
from searchlab.plugins import Plugin
from searchlab.policy import POLICIES, NeverTwice
from searchlab.space import SPACES
from tests.support.logs import write_table

POLICY = """
from searchlab import NeverTwice

class Climb(NeverTwice):
    def __init__(self, space, *, seed, n_startup=4):
        super().__init__(space, seed=seed)

    def propose(self, n, rng):
        return []
"""

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs, for real, the package ``acme`` with a registered policy in the module of the given name."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(module: str) -> None:
        forget()
        for path in tmp_path.glob("acme/*.py"):
            path.unlink()
        for folder in ("acme", "acme-1.dist-info"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "acme" / "__init__.py").touch()
        (tmp_path / "acme" / f"{module}.py").write_text(POLICY)
        (tmp_path / "acme-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
        entry = f"[searchlab.policies]\nclimb = acme.{module}:Climb\n"
        (tmp_path / "acme-1.dist-info" / "entry_points.txt").write_text(entry)
        importlib.invalidate_caches()

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
            del sys.modules[name]

    yield put
    forget()


def run(policy: object, folder: Path, trials: int) -> None:
    tune(
        toys.WORKLOAD,
        space=toys.Small(),
        policy=policy,
        log=folder / "run.jsonl",
        trials=trials,
        measure={"kind": "table", "path": str(folder / "table.jsonl")},
    )


def test_a_run_of_a_class_resumes_after_its_module_has_moved(install: Install, tmp_path: Path) -> None:
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    install("first")
    run(POLICIES.load("climb"), tmp_path, 5)
    assert read_log(tmp_path / "run.jsonl").header.policy == Plugin("climb")
    install("second")
    run(POLICIES.load("climb"), tmp_path, 9)
    assert len(read_log(tmp_path / "run.jsonl").records) == 9


def test_a_re_exported_class_has_its_registered_name() -> None:
    for kind in (SPACES, POLICIES, COST_MODELS):
        for name in kind.entry_points_by_name():
            if name != "gp":  # which needs PyTorch
                assert kind.name_of(kind.load(name)) == name
    assert POLICIES.name_of(toys.Small) == "searchlab.conformance.toys:Small"


def test_an_unknown_option_is_refused_with_the_nearest_name(install: Install) -> None:
    install("first")
    with pytest.raises(SearchlabError, match="no option 'n_startups'; did you mean 'n_startup'"):
        POLICIES.check_options(Plugin("climb", {"n_startups": 3}), POLICIES.load("climb"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("climbing", "unknown policy 'climbing'"),
        ("searchlab.gone:Policy", "cannot be loaded"),
        ("searchlab.policy:POLICIES", "must be a class, not"),
        ({"policy": "random"}, "must be a name or"),
        ({"name": "random", "option": {}}, "must be a name or"),
    ],
)
def test_a_wrong_name_is_one_sentence(spec: str, message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        POLICIES.resolve(spec)


def test_what_a_log_names_is_a_plug_in_before_it_is_called() -> None:
    with pytest.raises(SearchlabError, match="'subprocess:Popen' is not a searchlab.Space"):
        SPACES.make(Plugin("subprocess:Popen"), None, None)
    with pytest.raises(SearchlabError, match=f"is not a searchlab.{NeverTwice.__bases__[0].__name__}"):
        POLICIES.make(Plugin("subprocess:Popen"), None, seed=0)


def test_a_file_in_place_of_a_module_is_answered_with_the_module() -> None:
    with pytest.raises(
        SearchlabError, match=r"policy 'mine/policy\.py:Mine' .* use the name of the module, 'mine\.policy'"
    ):
        POLICIES.load("mine/policy.py:Mine")
