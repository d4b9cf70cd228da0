"""Digests of source code see what decides a run, wherever its code lives, and are the same in every process."""

from __future__ import annotations

import functools
import importlib
import os
import py_compile
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from searchlab.source import source_digest

CELL = '''
import functools
import helper

LIMIT, SIZES, RANKS = 3, [1, 2], {"fast": lambda config: config * 2}

def scaled(factor):
    def scale(config):
        return config * factor
    return scale

scale = scaled(5)
add = functools.partial(max, 7)

class Base:
    step = [4]

class Policy(Base):
    """A docstring."""

    CHOICES = {"a", "b"}

    def ask(self, n=8):
        """Another."""
        return [key(LIMIT, SIZES) for key in (lambda a, b: helper.choose(a) in {"x", "y"}, scale, add, RANKS["fast"])]

    @property
    def size(self):
        return [(lambda: "z")() for _ in SIZES]

    @functools.cached_property
    def cost(self):
        return 1.5
'''
"""A notebook's cell, which has no file."""

CELL_EDITS = [
    ("LIMIT, SIZES, RANKS = 3", "LIMIT, SIZES, RANKS = 4"),
    ("[1, 2]", "[1, 3]"),
    ("config * 2", "config * 3"),
    ("config * factor", "config + factor"),
    ("scaled(5)", "scaled(6)"),
    ("max, 7", "max, 8"),
    ("max, 7", "min, 7"),
    ("step = [4]", "step = [5]"),
    ('{"a", "b"}', '{"a", "c"}'),
    ("n=8", "n=9"),
    ('{"x", "y"}', '{"x", "z"}'),
    ('"z"', '"w"'),
    ("1.5", "2.5"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory whose modules can be imported, and are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")) or name in ("loose", "site_plugins"):
            del sys.modules[name]
    importlib.invalidate_caches()


def write(folder: Path, **modules: str) -> None:
    for name, text in modules.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    importlib.invalidate_caches()


def digest_when_reloaded(name: str, attribute: str = "Policy") -> str:
    """Return the digest that a class has in a new process."""
    for module in [module for module in sys.modules if module.partition(".")[0] in (name.partition(".")[0], "helper")]:
        del sys.modules[module]
    importlib.invalidate_caches()
    return source_digest(getattr(importlib.import_module(name), attribute))


def run_cell(text: str, monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    module = ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", module)
    exec(compile(text, "<cell>", "exec"), vars(module))
    policy = module.Policy
    assert isinstance(policy, type)
    return policy


def test_edits_of_a_notebook_and_its_helpers_are_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, helper="def choose(a):\n    return a\n")
    digest = source_digest(run_cell(CELL, monkeypatch))
    for old, new in CELL_EDITS:
        assert old in CELL
        assert source_digest(run_cell(CELL.replace(old, new), monkeypatch)) != digest, (old, new)
    same = (
        CELL.replace("A docstring", "Other words").replace("Another", "More").replace("LIMIT, SIZES)", "LIMIT,  SIZES)")
    )
    assert source_digest(run_cell("# a comment\n" + same, monkeypatch)) == digest
    write(folder, helper="def choose(a):\n    return a + 1\n")
    del sys.modules["helper"]
    assert source_digest(run_cell(CELL, monkeypatch)) != digest


def test_the_digest_of_a_notebook_is_that_of_any_process(folder: Path) -> None:
    write(folder, helper="def choose(a):\n    return a\n")
    script = f"from searchlab.source import source_digest\n{CELL}\nprint(source_digest(Policy))"
    digests = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(folder)}
        result = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        digests.add(result.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize(
    "imports",
    [
        "from loose import late",
        "import loose.deep.late as late",
        "from . import late",
        "from .late import *",
        "import importlib\nlate = importlib.import_module('loose.late')",
        "from importlib import import_module\nlate = import_module('.late', __package__)",
        "late = __import__('loose.late')",
    ],
)
def test_helpers_in_packages_without_init_are_seen(folder: Path, imports: str) -> None:
    inside = imports.replace("\n", "\n        ")
    body = imports if "*" in imports else f"class Policy:\n    def ask(self):\n        {inside}\n"
    write(folder, loose__policy=f"{body}\nclass Policy(locals().get('Policy', object)):\n    pass\n")
    write(folder, loose__late="STEP = 1\n", loose__deep__late="STEP = 1\n")
    digest = digest_when_reloaded("loose.policy")
    write(folder, loose__late="STEP = 20\n", loose__deep__late="STEP = 20\n")
    assert digest_when_reloaded("loose.policy") != digest


def test_nested_packages_without_init_are_found_unimported(folder: Path) -> None:
    write(
        folder,
        user="class Policy:\n    def ask(self):\n        import loose.deep.late\n",
        loose__deep__late="STEP = 1\n",
    )
    digest = digest_when_reloaded("user")
    write(folder, loose__deep__late="STEP = 20\n")
    assert digest_when_reloaded("user") != digest


def test_a_folder_of_pip_target_contains_installed_packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = folder / "target"
    (target / "aid-1.0.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(target)
    write(target, aid="STEP = 1\n")
    write(folder, user="class Policy:\n    def ask(self):\n        import aid\n")
    digest = digest_when_reloaded("user")
    write(target, aid="STEP = 20\n")
    assert digest_when_reloaded("user") == digest


def test_a_module_named_as_one_of_the_standard_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    write(folder, this="class Policy:\n    step = 1\n")
    digest = digest_when_reloaded("this")
    write(folder, this="class Policy:\n    step = 20\n")
    assert digest_when_reloaded("this") != digest
    del sys.modules["this"]


def test_installed_packages_without_init_count_as_a_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "site-packages"
    monkeypatch.syspath_prepend(site)
    write(site, site_plugins__policy="class Policy:\n    pass\n", site_plugins__other="STEP = 1\n")
    digest = digest_when_reloaded("site_plugins.policy")
    assert len(digest) == 16
    import searchlab.source

    write(site, site_plugins__other="STEP = 20\n")
    searchlab.source._distribution_digest.cache_clear()
    assert digest_when_reloaded("site_plugins.policy") != digest
    searchlab.source._distribution_digest.cache_clear()


def test_an_edit_between_import_and_run_is_not_mistaken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class that runs is the old one, so the digest must not be that of the new file."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write(folder, edited="class Policy:\n    step = 1\n")
    policy = importlib.import_module("edited").Policy
    write(folder, edited="class Policy:\n    step = 20\n")
    mistaken = source_digest(policy)
    assert source_digest(policy) == mistaken
    assert source_digest(importlib.reload(sys.modules["edited"]).Policy) == digest_when_reloaded("edited") != mistaken


BOUND = """
RATE, _CACHE = 1, {}

class Base:
    rates = [1, 2]

class Policy(Base):
    def ask(self):
        return _CACHE.setdefault("rate", helper())

def helper():
    return RATE

def make(rate):
    class Made(Policy):
        def ask(self):
            return rate
    return Made
"""


def test_values_bound_while_a_program_runs_count(folder: Path) -> None:
    """A script may read them from its command line, and then its source stays the same."""
    (folder / "bound.py").write_text(BOUND)
    bound: Any = importlib.import_module("bound")
    digest = source_digest(bound.Policy)
    assert source_digest(bound.make(1)) == source_digest(bound.make(1)) != source_digest(bound.make(2))
    bound.Policy().ask()  # fills the private cache
    assert source_digest(bound.Policy) == digest
    bound.RATE = 2
    assert source_digest(bound.Policy) != digest
    bound.RATE = 1
    assert source_digest(bound.Policy) == digest
    bound.Base.rates = [1, 3]
    assert source_digest(bound.Policy) != digest


@pytest.mark.parametrize("in_file", [True, False], ids=["script", "notebook"])
def test_of_a_script_only_what_a_function_uses_counts(in_file: bool, tmp_path: Path) -> None:
    """The cells of a notebook have no file, like the code that is passed with -c."""
    text = """# a script
import numpy as np
from searchlab.source import source_digest
SCALE, OTHER = 2, 3
DATA = np.random.random(10_000)
def helper(x):
    return SCALE * x
def f(config):
    return helper(config["x"]) + DATA[0]
print(source_digest(f), end="")
"""

    def digest(before: str = "", after: str = "") -> str:
        (tmp_path / "script.py").write_text(text.replace(before, after))
        command = [sys.executable, *(["script.py"] if in_file else ["-c", text.replace(before, after)])]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout

    first = digest()
    assert digest("OTHER = 2, 3", "OTHER = 2, 4") == digest("# a script", "trials = 3") == first
    assert len({first, digest("SCALE, OTHER = 2", "SCALE, OTHER = 5"), digest("SCALE * x", "SCALE + x")}) == 3


OBJECTS = """
import argparse, enum, functools, re
from collections import deque
from dataclasses import dataclass
from operator import add as combine
from types import SimpleNamespace
import helper
from searchlab.source import source_digest

helper.LIMIT = 1
_SOURCE, PATTERN, QUEUE, DATA = "int i;", re.compile("[ab]"), deque([2]), SimpleNamespace(rate=3)
ARGUMENTS = argparse.Namespace(size=4, trials=5)

class Kind(enum.Enum):
    FAST = 6

class Counted(type):
    def count(cls):
        return 7

@dataclass
class Options:
    rate: int
    tags: frozenset = frozenset({"a", "b", "c"})

class Slotted:
    __slots__ = ("rate",)
    def __init__(self, rate):
        self.rate = rate

class Base:
    factor = 8
    def __init__(self, rate):
        self._rate = rate
    @classmethod
    def of_class(cls, config):
        return cls.factor
    @property
    def size(self):
        return 9
    def __call__(self, config):
        return self._rate

class Model(Base, metaclass=Counted):
    factor = 10

def scaled(factor):
    def decorate(function):
        @functools.wraps(function)
        def scale(config):
            return factor * function(config) + 11
        return scale
    return decorate

@scaled(12)
def cost(config):
    values = [_SOURCE, PATTERN, QUEUE, DATA, ARGUMENTS.size, Kind.FAST, OPTIONS, SLOTTED, FIRST, SECOND, __file__]
    return values, MODEL.size, Model.count(), combine(1, helper.scale()), cost.unit

cost.unit = 13
MODEL, SLOTTED, OPTIONS, FIRST = Model(14), Slotted(15), Options(16), helper.Rate(17)
SECOND = FIRST
FUNCTIONS = cost, Model.of_class, functools.partial(Model(18).__call__), Model(19), helper.rate(helper.Rate(20))
print(*map(source_digest, FUNCTIONS))
"""
"""A script, in which each number decides what one of the functions returns, except 5."""

HELPER = """
LIMIT = 0
class Rate:
    def __init__(self, rate):
        self.rate = rate
def scale():
    return LIMIT
def rate(rate):
    return lambda config: rate.rate
"""


@pytest.mark.parametrize("in_file", [True, False], ids=["script", "notebook"])
def test_of_objects_the_class_and_the_state_count(
    in_file: bool, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, helper=HELPER)

    def digests(text: str) -> str:
        write(folder, script=text)
        if in_file:
            runpy.run_path(str(folder / "script.py"), run_name="__main__")
        else:
            monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
            exec(text, {"__name__": "__main__", "__file__": "script.py"})
        return capsys.readouterr().out

    first = digests(OBJECTS)
    edits = [(rf"\b{number}\b", "99") for number in range(1, 21)]
    edits += [("int i", "int j"), (r"\[ab\]", "[ac]"), ("add as", "mul as"), ("SECOND = FIRST", "SECOND = SLOTTED")]
    unnoticed = [old for old, new in edits if digests(re.sub(old, new, OBJECTS)) == first]
    assert unnoticed == [r"\b5\b"]
    assert digests(OBJECTS) == first


def test_helpers_that_were_compiled_count(folder: Path) -> None:
    """Like an extension module, a compiled module has no source."""
    digests = set()
    for number in (1, 2):
        write(folder, helper=f"RATE = {number}\n", policy="import helper\nclass Policy:\n    pass\n")
        py_compile.compile(str(folder / "helper.py"), str(folder / "helper.pyc"), doraise=True)
        (folder / "helper.py").unlink()
        digests.add(digest_when_reloaded("policy"))
    assert len(digests) == 2


def test_the_order_of_names_does_not_count() -> None:
    """A list with two names is described under one of them."""
    text = """
from searchlab.source import source_digest
A = B = [1]
def f(config):
    return A, B
print(source_digest(f))
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", text], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, timeout=60
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(digests) == 1


def test_private_texts_count(folder: Path) -> None:
    """For example a kernel's source, which is read from a file when the module is imported."""
    reading = "from pathlib import Path\n_SOURCE = Path(__file__).with_name('k.cu').read_text()\n"
    write(folder, kernel=f"{reading}def f(config):\n    return _SOURCE\n")
    digests = set()
    for source in ("int i;", "int j;"):
        (folder / "k.cu").write_text(source)
        digests.add(digest_when_reloaded("kernel", "f"))
    assert len(digests) == 2


def test_the_arguments_of_a_partial_function_count() -> None:
    digests = {source_digest(functools.partial(len, value)) for value in ("a", "b")}
    assert len(digests) == 2
