"""Commands start fast, and logs can be read where TVM is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from searchlab.conformance import toys
from tests.support.cli import HEAVY, imported_packages, run_python
from tests.support.logs import write_table

WITHOUT_TVM = """
import sys
class NoTvm:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tvm", "tvm_ffi", "tvm_ffi_orcjit"):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, NoTvm())
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_table(tmp_path / "a.jsonl", toys.Small(), toys.simulate_flaky)
    return tmp_path


@pytest.mark.parametrize("words", [["-c", "import searchlab"], ["-m", "searchlab", "--help"]], ids=str)
def test_the_help_imports_nothing_that_is_slow(words: list[str]) -> None:
    result = run_python("-X", "importtime", *words)
    modules = {
        line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")
    }
    packages = {module.partition(".")[0] for module in modules}
    assert result.returncode == 0 and not packages & {*HEAVY, "vl_convert", "numpy", "scipy", "optuna"}
    own_packages = {module.split(".")[1] for module in modules if module.startswith("searchlab.")}
    assert own_packages <= {"__main__", "cli", "console", "errors", "foreign_code", "options", "plugins", "units"}


@pytest.mark.parametrize("words", [["-m", "searchlab", "list"], ["-m", "searchlab", "tune", "--help"]], ids=str)
def test_neither_tvm_nor_a_plug_in_is_imported(words: list[str]) -> None:
    packages = imported_packages(*words)
    assert "searchlab" in packages
    assert not packages & {*HEAVY, "vl_convert"}


def test_table_info_imports_neither_tvm_nor_a_plug_in(directory: Path) -> None:
    assert not imported_packages("-m", "searchlab", "table", "info", directory / "a.jsonl") & {*HEAVY, "vl_convert"}


def test_report_imports_neither_tvm_nor_a_plug_in(directory: Path) -> None:
    packages = imported_packages("-m", "searchlab", "report", directory)
    assert "jinja2" in packages
    assert not packages & set(HEAVY)


def test_logs_are_read_and_compared_where_tvm_is_not_installed(directory: Path) -> None:
    code = (
        WITHOUT_TVM
        + f"""
import searchlab
from searchlab.analysis import report
result = searchlab.load_log({str(directory / "a.jsonl")!r})
assert result.best.gflops > 0 and len(result.to_frame()) == 120
report({str(directory)!r})
try:
    import tvm
except ModuleNotFoundError:
    print("done")
"""
    )
    result = run_python("-c", code)
    assert result.stdout == "done\n", result.stderr


def test_everything_public_is_there() -> None:
    import searchlab

    for name in set(searchlab.__all__) - {"__version__"}:
        assert getattr(searchlab, name).__name__ == name
    assert set(searchlab.__all__) <= set(dir(searchlab))
    with pytest.raises(AttributeError, match="nonsense"):
        searchlab.nonsense  # noqa: B018


def test_documented_names_exist_after_import_searchlab() -> None:
    names = "searchlab.__version__, searchlab.conformance.policy_checks, searchlab.analysis.report"
    result = run_python("-c", f"import searchlab; {names}; print(searchlab.apply.build_best.__name__)")
    assert result.stdout == "build_best\n", result.stderr
