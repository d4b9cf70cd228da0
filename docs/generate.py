"""Write the pages of the site that follow from the code into ``docs/generated``, for ``conf.py``."""

from __future__ import annotations

import csv
import inspect
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from searchlab.analysis import page
from searchlab.analysis.publish import publish
from searchlab.cli.app import complete
from searchlab.cli.plugins import allowed_text, default_text
from searchlab.cli.terminal import as_text
from searchlab.costmodel import COST_MODELS
from searchlab.costmodel.features import FEATURES
from searchlab.executors.contract import EXECUTORS
from searchlab.log.plan import Claim
from searchlab.measure.settings import FunctionSettings, LocalSettings, RpcSettings, TableSettings
from searchlab.measure.suite import find_installed_suites
from searchlab.model import SCHEDULERS
from searchlab.options import describe_values
from searchlab.plugins import Plugin, PluginKind
from searchlab.policy import POLICIES, Origin
from searchlab.run.spec import CostModelEntry, PluginEntry, PolicyEntry, StudySpec, SuiteSelection, schema_of_studies
from searchlab.space import SPACES
from searchlab.suite import leaderboard

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
SUITE = ROOT / "studies" / "reference" / "suite" / "overall.csv"
SCRIPTS = ("guided_gemm", "autotvm_conv2d", "ansor_conv2d", "metaschedule", "mlp", "resnet18")
NOTEBOOKS = {
    "compare": {
        "plot_convergence": "Best GFLOPS so far over 48 trials for random, evolutionary and xgb: medians and quartiles "
        "of eight seeds; evolutionary and xgb end near the best known program, random below",
    },
    "research": {
        "plot_convergence": "Best GFLOPS so far over 48 trials for random and evolutionary: medians and quartiles of "
        "ten seeds, which overlap",
        "plot_differences": "Differences in area of hill-climb and evolutionary from random over the twelve "
        "development tables, with 95 % intervals",
    },
}
"""The notebooks, and the alternative texts of the figures in which their cells end."""


def write_all() -> None:
    """Write every generated page. A file whose text has not changed is not touched, so that builds are incremental."""
    areas = suite_areas()
    pages = {
        "policies": policies(areas),
        "costmodels": overview(COST_MODELS) + catalogue(COST_MODELS),
        "spaces": overview(SPACES) + catalogue(SPACES),
        "executors": overview(EXECUTORS) + catalogue(EXECUTORS),
        "schedulers": overview(SCHEDULERS) + catalogue(SCHEDULERS),
        "features": features(),
        "cli": command_line(),
        "study-file": study_file(),
        **{f"tutorial-{name}": tutorial(name) for name in SCRIPTS},
    }
    folder = DOCS / "generated"
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        write(folder / f"{name}.md", text)
    for name in SCRIPTS:
        write(folder / f"{name}.ipynb", script_notebook(name))
    for name in NOTEBOOKS:
        write(DOCS / "tutorials" / f"{name}.ipynb", notebook(name))


def write_leaderboards() -> None:
    """Write the leaderboards of all suites, with all submissions, unless they are newer than everything in them."""
    suites, submissions = ROOT / "studies" / "suite", ROOT / "studies" / "submissions"
    code = [Path(leaderboard.__file__), *Path(page.__file__).parent.joinpath("assets").iterdir()]
    data = [*suites.glob("*/*.*"), *suites.glob("*/baselines/*"), *submissions.glob("*")]
    site = DOCS / "generated" / "extra" / "leaderboards"
    index = site / "index.html"
    if not index.exists() or index.stat().st_mtime < max(path.stat().st_mtime for path in [*code, *data]):
        shutil.rmtree(site, ignore_errors=True)
        results = [leaderboard.bundle_result(path) for path in sorted(submissions.glob("*.zip"))]
        publish(site, results, lambda out: leaderboard.write_leaderboards(out, find_installed_suites()))


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


# Docstrings


def split_docstring(docstring: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return the prose of a docstring as Markdown, and its descriptions of ``names`` (options or fields).

    A description is an entry of a section such as ``Args:``, an item of a list, or a sentence that begins with the name
    and a colon.
    """
    name = "|".join(sorted(map(re.escape, names), key=len, reverse=True)) or "(?!)"
    begin = re.compile(
        rf"(?:^ *(?:- )?|(?<=\. ))`?((?:{name})(?:`?, `?(?:{name}))*)`?(?: \([^)\n]*\))?: ", re.MULTILINE
    )
    prose, described = [], {}
    for paragraph in re.split(r"\n\s*\n", as_text(docstring)):
        paragraph = re.sub(r"^ *(?:Args|Options|Attributes):\n?", "", paragraph)
        found = list(begin.finditer(paragraph))
        before = paragraph[: found[0].start()] if found else paragraph
        if before.strip():
            prose.append(before.rstrip())
        for here, after in zip(found, [*found[1:], None], strict=False):
            text = " ".join(paragraph[here.end() : after.start() if after else None].split()).removesuffix(" -")
            for each in re.split(r"`?, `?", here[1]):
                described[each] = sentence(text)
    return markdown("\n\n".join(prose)), described


def markdown(text: str) -> str:
    """Return the text of a docstring as Markdown: examples become code blocks."""
    blocks = []
    for block in text.split("\n\n"):
        title, _, rest = block.partition("\n")
        if title.strip() in ("Example:", "Examples:", "Raises:", "Returns:") and rest:
            blocks.append(f"**{title.strip()}**")
            block = rest
        block = inspect.cleandoc(block)
        blocks.append(f"```pycon\n{block}\n```" if block.startswith(">>>") else block)
    return "\n\n".join(blocks)


def sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", ":", "!", "?")) else f"{text}."


def definition(term: str, text: str) -> str:
    return f"{term}\n: {text}\n" if text else f"{term}\n"


# The catalogue


def policies(areas: Mapping[str, Mapping[str, str]]) -> str:
    """Return an overview of all policies, and a section for each."""
    rows = ["| policy | what it does, and what it is based on | area |", "|---|---|---|"]
    for name, cls in loaded(POLICIES):
        origin = vars(cls).get("origin")
        based_on = f"*{origin.name} ({origin.kind})*" if isinstance(origin, Origin) else ""
        there = area(areas[name]) if name in areas else "-"
        rows.append(f"| [`{name}`](#{anchor(POLICIES, name)}) | {summary(cls)} {based_on} | {there} |")
    return "\n".join([*rows, "", catalogue(POLICIES, areas)])


def overview(kind: PluginKind[Any]) -> str:
    """Return a table of the plug-ins of a kind."""
    rows = [f"| [`{name}`](#{anchor(kind, name)}) | {summary(cls)} |" for name, cls in loaded(kind)]
    return "\n".join(["| name | what it is |", "|---|---|", *rows, "", ""])


def catalogue(kind: PluginKind[Any], areas: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Return a section for each plug-in of a kind that searchlab itself registers."""
    return "\n".join(section(kind, name, cls, areas or {}) for name, cls in loaded(kind))


def loaded(kind: PluginKind[Any]) -> Iterator[tuple[str, type[Any]]]:
    for name, point in kind.entry_points_by_name().items():
        if point.dist is not None and point.dist.name == "searchlab":
            yield name, kind.load(name)


def anchor(kind: PluginKind[Any], name: str) -> str:
    return f"{kind.title.replace(' ', '-')}-{name}"


def summary(cls: type[Any]) -> str:
    """Return the first paragraph of a docstring in one line, for a table."""
    return " ".join(split_docstring(inspect.getdoc(cls) or "", ())[0].split("\n\n")[0].split())


def descriptions(cls: type[Any], options: Iterable[str]) -> dict[str, str]:
    """Return what the docstrings of a class and of its bases say about ``options``."""
    described: dict[str, str] = {}
    for base in cls.__mro__:
        described = split_docstring(inspect.cleandoc(base.__doc__ or ""), options)[1] | described
    return described


def section(kind: PluginKind[Any], name: str, cls: type[Any], areas: Mapping[str, Mapping[str, str]]) -> str:
    options = kind.options_of(cls)
    described = descriptions(cls, options)
    lines = [f"({anchor(kind, name)})=", f"## {name}", "", split_docstring(inspect.getdoc(cls) or "", options)[0], ""]
    if name in areas:
        lines += [f"Area on suite v1: {area(areas[name])}, average rank {float(areas[name]['rank']):.1f} of 13.", ""]
    if kind is POLICIES and (own := cls.traits.own_model):
        model = COST_MODELS.resolve(own.cost_model)[0].name
        lines += [
            f"Its cost model is [`{model}`](costmodels.md#{anchor(COST_MODELS, model)}) with the features "
            f"[`{own.features}`](features.md#features-{own.features}).",
            "",
        ]
    origin = vars(cls).get("origin")
    if isinstance(origin, Origin):
        lines += [f"**Origin** ({origin.kind}): {origin.name}, {origin.version}; {origin.source}.", ""]
        if origin.deviations:
            lines += ["**Deviations**", "", *(f"- {deviation}" for deviation in origin.deviations), ""]
    lines += ["**Options**" if options else "No options.", ""]
    for option, parameter in options.items():
        term = f"`{option}`"
        if allowed := allowed_text(parameter):
            term += f": {short(allowed)}" if describe_values(parameter.annotation) else f": `{allowed}`"
        if parameter.default is not parameter.empty:
            term += f"; default `{default_text(parameter.default)}`"
        lines.append(definition(term, described.get(option, "")))
    return "\n".join([*lines, f"Class: `{cls.__module__}:{cls.__qualname__}`", ""])


def short(words: str) -> str:
    """Return the allowed values of an option, which error messages spell out, in the short terms of a reference."""
    words = words.replace("a list in which each item is", "a list, each item")
    words = words.replace("a whole number", "integer").replace("a number", "float").replace("a string", "string")
    words = words.replace("integer of at least", "integer \N{GREATER-THAN OR EQUAL TO}")
    words = words.replace("float of at least", "float \N{GREATER-THAN OR EQUAL TO}")
    return re.sub(r"'([^']*)'", r'`"\1"`', words.replace("true or false", "boolean"))


def suite_areas() -> dict[str, dict[str, str]]:
    """Return the row of each baseline in the recorded results over the test tables of suite v1."""
    with SUITE.open(encoding="utf-8", newline="") as file:
        return {row["strategy"]: row for row in csv.DictReader(file)}


def area(row: Mapping[str, str]) -> str:
    low, middle, high = (float(row[key]) for key in ("area_mean_lower", "area_mean", "area_mean_upper"))
    return f"{middle:.3f} ({low:.3f}\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}{high:.3f})"


def features() -> str:
    lines = ["| name | what a row contains |", "|---|---|"]
    lines += [f"| [`{name}`](#features-{name}) | {summary(cls)} |" for name, cls in FEATURES.items()]
    for name, cls in FEATURES.items():
        cost = "Each row requires scheduling the program." if cls.builds_programs else "No program is scheduled."
        prose = split_docstring(inspect.getdoc(cls) or "", ())[0]
        lines += ["", f"(features-{name})=", f"## {name}", "", prose, "", cost, ""]
    return "\n".join(lines)


# The command line


def command_line() -> str:
    """Return a section for each command, with its arguments and options, from the tree of commands."""
    root = complete()
    context = root.context_class(root, info_name="searchlab")
    return "\n".join([as_text(root.epilog or ""), "", *parameters(root, context), *commands(root, context, level=2)])


def commands(group: Any, context: Any, level: int) -> list[str]:
    """Return the sections of the commands of a group. Commands are typer's, which are its own or click's."""
    lines: list[str] = []
    for name, command in group.commands.items():
        inner = command.context_class(command, info_name=name, parent=context)
        usage = " ".join([inner.command_path, *command.collect_usage_pieces(inner)])
        usage = re.sub(r"\{(.*?)\}(?:\.{3})?", r"\1", usage)
        lines += [f"{'#' * level} {inner.command_path}", "", as_text(inspect.cleandoc(command.help or "")), ""]
        if hasattr(command, "commands"):
            lines += commands(command, inner, level + 1)
        else:
            lines += [f"```text\n{usage}\n```", "", *parameters(command, inner)]
    return lines


def parameters(command: Any, context: Any) -> list[str]:
    """Return the arguments and options as the help shows them: their names and types, and what they are."""
    records = [parameter.get_help_record(context) for parameter in command.params if not parameter.hidden]
    return [definition(f"`{metavar(spelled)}`", bounds(as_text(text))) for spelled, text in records]


def metavar(spelled: str) -> str:
    """Return the spelling of an option with a placeholder in the usual style, ``--jobs N``; arguments have none."""
    kinds = {"int": "N", "int range": "N", "float": "X", "float range": "X", "str": "TEXT", "path": "PATH"}
    name, _, kind = re.sub(r"<(?:list\[)?(.*?)\]?>$", r"<\1>", spelled).rstrip(">").partition(" <")
    if "|" in kind:
        return f"{name} {kind}"
    return f"{name} {kinds.get(kind.lower(), kind)}" if kind and name.startswith("-") else name


def bounds(text: str) -> str:
    text = re.sub(r"(\d+)<=x<=(\d+)", r"\1 to \2", text)
    return re.sub(r"x>=(\d+)", r"at least \1", text)


# The study file


STRUCTS: dict[type[msgspec.Struct], str] = {
    StudySpec: "Keys of a study",
    PolicyEntry: "An entry in policies",
    PluginEntry: "An entry in spaces",
    CostModelEntry: "An entry in cost_models",
    SuiteSelection: "The suite",
    Claim: "An entry in claims",
    Plugin: "The executor, or a policy's cost model",
    LocalSettings: "measure: on this machine",
    FunctionSettings: "measure: a Python function",
    RpcSettings: "measure: on a fleet",
    TableSettings: "measure: a table",
}
"""The tables of a study file, in the order of the page, and their titles."""


def study_file() -> str:
    """Return a section for each table of a study file, with its keys, from the JSON Schema of study files."""
    definitions = schema_of_studies()["$defs"]
    if missing := {name for name in definitions if definitions[name].get("type") == "object"} - {
        struct.__name__ for struct in STRUCTS
    }:
        raise ValueError(f"STRUCTS in docs/generate.py lacks {sorted(missing)}")
    lines = []
    for struct, title in STRUCTS.items():
        schema = definitions[struct.__name__]
        keys = schema["properties"]
        described = descriptions(struct, keys) | {"kind": "Selects this kind of measurement."}
        lines += [f"({struct.__name__.lower()})=", f"## {title}", ""]
        lines += [split_docstring(inspect.getdoc(struct) or "", keys)[0], ""]
        for key, value in keys.items():
            term = f"`{key}`: {type_text(value)}"
            if key in schema.get("required", []):
                term += ", required"
            elif "default" in value and value["default"] not in (None, "", {}, []):
                default = value["default"]
                term += ", default " + ("`local`" if isinstance(default, dict) else f"`{json.dumps(default)}`")
            lines.append(definition(term, described.get(key, "")))
    return "\n".join(lines)


def type_text(value: Mapping[str, Any], plural: bool = False) -> str:
    """Return what a value of the schema may be, in TOML's terms, with links to the sections of tables."""
    ending = "s" if plural else ""
    if "$ref" in value:
        return f"[table{ending}](#{value['$ref'].rpartition('/')[2].lower()})"
    if "anyOf" in value:
        kinds = [type_text(each, plural) for each in value["anyOf"] if each != {"type": "null"}]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in value:
        return " or ".join(f"`{json.dumps(each)}`" for each in value["enum"])
    if value.get("type") == "array":
        if "prefixItems" in value:
            return f"pair{ending}"
        return f"array{ending} of {type_text(value['items'], True)}" if value.get("items") else f"array{ending}"
    words = {"number": "float", "object": "table"}
    return words.get(value.get("type", ""), value.get("type", "any value")) + ending


# Tutorials


def tutorial(name: str) -> str:
    """Return the cells of a tutorial's script, each with what it printed when it was recorded (``docs/record.py``)."""
    script = (ROOT / "studies" / "tutorials" / f"{name}.py").read_text("utf-8")
    cells = cells_of(script)
    about, outputs = recording(name, first=cells[0][0])
    lines = [
        f"*Recorded with `{about['command']}` on {about['date']}, on {about['machine']}, in {about['seconds']} s.*",
        "",
    ]
    if about.get("busy") == "yes":
        idle = re.search(r"\b(On\s+two\s+idle\s+cores[^:]*):+\n\n((?:    .*\n|\n)+)", script)
        figures = [f"{' '.join(idle[1].split())}:", f"\n```text\n{inspect.cleandoc(idle[2])}\n```"] if idle else []
        lines += [
            "::::{note}",
            "The machine was busy during this recording: absolute times are too long, and time ratios are unreliable.",
            *figures,
            "::::",
            "",
        ]
    if unknown := set(outputs) - {title for title, _ in cells}:
        raise ValueError(f"{name}.py has no cells {sorted(unknown)}: rerecord it with python docs/record.py {name}")
    for title, code in cells:
        text, code = comment_of(code)
        lines += [f"## {title}", "", text, f"```python\n{code}\n```", ""]
        if printed := outputs.get(title, "").strip():
            lines += [f"```text\n{printed}\n```", ""]
    return "\n".join(lines)


def notebook(name: str) -> str:
    """Return a notebook whose charts are images with alternative texts, in the way of MyST-NB."""
    content = json.loads((ROOT / "studies" / "tutorials" / f"{name}.ipynb").read_text("utf-8"))
    images = {
        "cell_type": "code",
        "id": "images",
        "metadata": {"tags": ["remove-cell"]},
        "execution_count": None,
        "outputs": [],
        "source": 'import altair\n\naltair.renderers.enable("png", scale_factor=2)',
    }
    content["cells"].insert(1, images)
    for cell in content["cells"]:
        if cell["cell_type"] == "code" and (plot := re.search(r"\.(plot_\w+)\(\)$", "".join(cell["source"]))):
            cell["metadata"] = {"mystnb": {"image": {"alt": NOTEBOOKS[name][plot[1]]}}}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def script_notebook(name: str) -> str:
    """Return a tutorial's script as a notebook without outputs, in which programs and traces are highlighted."""
    script = (ROOT / "studies" / "tutorials" / f"{name}.py").read_text("utf-8")
    docstring = re.match(r'"""(.*?)"""', script, re.DOTALL)
    assert docstring is not None
    cells = [("markdown", docstring[1].strip())]
    for title, code in cells_of(script):
        text, code = comment_of(code)
        cells += [("markdown", f"## {title}\n\n{text}".strip())]
        code = re.sub(r"print\((.+)\.script\(\)\)", r"\1.show()", code)
        cells += [("code", re.sub(r"print\((.+\.trace)\)", r"\1.show()", code))]
    empty = {"code": {"execution_count": None, "outputs": []}}
    content = {
        "cells": [
            {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, **empty.get(kind, {}), "source": source}
            for number, (kind, source) in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def comment_of(code: str) -> tuple[str, str]:
    """Return the comment at the beginning of a cell as Markdown, and the rest of the cell."""
    comment = re.match(r"(?:#[^\n]*\n)*", code)
    assert comment is not None
    return re.sub(r"^# ?", "", comment[0], flags=re.MULTILINE), code[comment.end() :].strip()


def cells_of(script: str) -> list[tuple[str, str]]:
    """Return the title and the code of each cell of a script, whose cells begin with ``# %% Title``."""
    return re.findall(r"^# %% ([^\n]*)\n(.*?)(?=^# %%|\Z)", script, re.MULTILINE | re.DOTALL)


def recording(name: str, first: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return how a tutorial was recorded, and what each cell printed; text before any title comes from the first."""
    text = (DOCS / "tutorials" / "recorded" / f"{name}.txt").read_text("utf-8")
    head, *parts = re.split(r"^# %% ", text, flags=re.MULTILINE)
    about = re.findall(r"^# (\w+): (.*)\n", head, re.MULTILINE)
    printed = re.sub(r"^# \w+: .*\n", "", head, flags=re.MULTILINE)
    return dict(about), {first: printed, **dict(part.split("\n", 1) for part in parts)}


if __name__ == "__main__":
    write_all()
