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
from searchlab.cli.app import load_commands
from searchlab.cli.plugins import format_allowed_values, format_default
from searchlab.cli.terminal import strip_markup
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
from searchlab.run.spec import CostModelEntry, PluginEntry, PolicyEntry, StudySpec, SuiteSelection, make_study_schema
from searchlab.space import SPACES
from searchlab.suite import leaderboard

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
SUITE_RESULTS = ROOT / "studies" / "reference" / "suite" / "overall.csv"
TUTORIAL_SCRIPTS = ("guided_gemm", "autotvm_conv2d", "ansor_conv2d", "metaschedule", "mlp", "resnet18")
NOTEBOOK_ALT_TEXTS = {
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
    areas = read_suite_areas()
    pages = {
        "policies": describe_policies(areas),
        "costmodels": make_overview(COST_MODELS) + make_catalogue(COST_MODELS),
        "spaces": make_overview(SPACES) + make_catalogue(SPACES),
        "executors": make_overview(EXECUTORS) + make_catalogue(EXECUTORS),
        "schedulers": make_overview(SCHEDULERS) + make_catalogue(SCHEDULERS),
        "features": describe_features(),
        "cli": describe_commands(),
        "study-file": describe_study_file(),
        **{f"tutorial-{name}": make_tutorial_page(name) for name in TUTORIAL_SCRIPTS},
    }
    generated_dir = DOCS / "generated"
    generated_dir.mkdir(exist_ok=True)
    for name, text in pages.items():
        write_if_changed(generated_dir / f"{name}.md", text)
    for name in TUTORIAL_SCRIPTS:
        write_if_changed(generated_dir / f"{name}.ipynb", make_script_notebook(name))
    for name in NOTEBOOK_ALT_TEXTS:
        write_if_changed(DOCS / "tutorials" / f"{name}.ipynb", read_notebook(name))


def write_leaderboards() -> None:
    """Write the leaderboards of all suites, with all submissions, unless they are newer than everything in them."""
    suites, submissions = ROOT / "studies" / "suite", ROOT / "studies" / "submissions"
    code_paths = [Path(leaderboard.__file__), *Path(page.__file__).parent.joinpath("assets").iterdir()]
    data_paths = [*suites.glob("*/*.*"), *suites.glob("*/baselines/*"), *submissions.glob("*")]
    site_dir = DOCS / "generated" / "extra" / "leaderboards"
    index_path = site_dir / "index.html"
    newest_time = max(path.stat().st_mtime for path in [*code_paths, *data_paths])
    if not index_path.exists() or index_path.stat().st_mtime < newest_time:
        shutil.rmtree(site_dir, ignore_errors=True)
        results = [leaderboard.make_bundle_publication(path) for path in sorted(submissions.glob("*.zip"))]
        publish(site_dir, results, lambda out: leaderboard.write_leaderboards(out, find_installed_suites()))


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


# Docstrings


def split_docstring(docstring: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return the prose of a docstring as Markdown, and its descriptions of ``names`` (options or fields).

    A description is an entry of a section such as ``Args:``, an item of a list, or a sentence that begins with the name
    and a colon.
    """
    names_pattern = "|".join(sorted(map(re.escape, names), key=len, reverse=True)) or "(?!)"
    entry_pattern = re.compile(
        rf"(?:^ *(?:- )?|(?<=\. ))`?((?:{names_pattern})(?:`?, `?(?:{names_pattern}))*)`?(?: \([^)\n]*\))?: ",
        re.MULTILINE,
    )
    prose, descriptions = [], {}
    for paragraph in re.split(r"\n\s*\n", strip_markup(docstring)):
        paragraph = re.sub(r"^ *(?:Args|Options|Attributes):\n?", "", paragraph)
        entries = list(entry_pattern.finditer(paragraph))
        paragraph_start = paragraph[: entries[0].start()] if entries else paragraph
        if paragraph_start.strip():
            prose.append(paragraph_start.rstrip())
        for entry, next_entry in zip(entries, [*entries[1:], None], strict=False):
            text = paragraph[entry.end() : next_entry.start() if next_entry else None]
            text = " ".join(text.split()).removesuffix(" -")
            for described_name in re.split(r"`?, `?", entry[1]):
                descriptions[described_name] = make_sentence(text)
    return convert_to_markdown("\n\n".join(prose)), descriptions


def convert_to_markdown(text: str) -> str:
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


def make_sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", ":", "!", "?")) else f"{text}."


def make_definition(term: str, text: str) -> str:
    return f"{term}\n: {text}\n" if text else f"{term}\n"


# The catalogue


def describe_policies(areas: Mapping[str, Mapping[str, str]]) -> str:
    """Return an overview of all policies, and a section for each."""
    rows = ["| policy | what it does, and what it is based on | area |", "|---|---|---|"]
    for name, cls in load_own_plugins(POLICIES):
        origin = vars(cls).get("origin")
        based_on = f"*{origin.name} ({origin.kind})*" if isinstance(origin, Origin) else ""
        area_text = format_area(areas[name]) if name in areas else "-"
        rows.append(f"| [`{name}`](#{make_anchor(POLICIES, name)}) | {summarize_class(cls)} {based_on} | {area_text} |")
    return "\n".join([*rows, "", make_catalogue(POLICIES, areas)])


def make_overview(kind: PluginKind[Any]) -> str:
    """Return a table of the plug-ins of a kind."""
    plugins = load_own_plugins(kind)
    rows = [f"| [`{name}`](#{make_anchor(kind, name)}) | {summarize_class(cls)} |" for name, cls in plugins]
    return "\n".join(["| name | what it is |", "|---|---|", *rows, "", ""])


def make_catalogue(kind: PluginKind[Any], areas: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Return a section for each plug-in of a kind that searchlab itself registers."""
    return "\n".join(make_section(kind, name, cls, areas or {}) for name, cls in load_own_plugins(kind))


def load_own_plugins(kind: PluginKind[Any]) -> Iterator[tuple[str, type[Any]]]:
    for name, point in kind.entry_points_by_name().items():
        if point.dist is not None and point.dist.name == "searchlab":
            yield name, kind.load(name)


def make_anchor(kind: PluginKind[Any], name: str) -> str:
    return f"{kind.title.replace(' ', '-')}-{name}"


def summarize_class(cls: type[Any]) -> str:
    """Return the first paragraph of a docstring in one line, for a table."""
    return " ".join(split_docstring(inspect.getdoc(cls) or "", ())[0].split("\n\n")[0].split())


def collect_descriptions(cls: type[Any], options: Iterable[str]) -> dict[str, str]:
    """Return what the docstrings of a class and of its bases say about ``options``."""
    descriptions: dict[str, str] = {}
    for base_class in cls.__mro__:
        descriptions = split_docstring(inspect.cleandoc(base_class.__doc__ or ""), options)[1] | descriptions
    return descriptions


def make_section(kind: PluginKind[Any], name: str, cls: type[Any], areas: Mapping[str, Mapping[str, str]]) -> str:
    options = kind.options_of(cls)
    descriptions = collect_descriptions(cls, options)
    prose = split_docstring(inspect.getdoc(cls) or "", options)[0]
    lines = [f"({make_anchor(kind, name)})=", f"## {name}", "", prose, ""]
    if name in areas:
        rank = float(areas[name]["rank"])
        lines += [f"Area on suite v1: {format_area(areas[name])}, average rank {rank:.1f} of 13.", ""]
    if kind is POLICIES and (own_model := cls.traits.own_model):
        model = COST_MODELS.resolve(own_model.cost_model)[0].name
        lines += [
            f"Its cost model is [`{model}`](costmodels.md#{make_anchor(COST_MODELS, model)}) with the features "
            f"[`{own_model.features}`](features.md#features-{own_model.features}).",
            "",
        ]
    origin = vars(cls).get("origin")
    if isinstance(origin, Origin):
        lines += [f"**Origin** ({origin.kind}): {origin.name}, {origin.version}; {origin.source}.", ""]
        if origin.deviations:
            lines += ["**Deviations**", "", *(f"- {deviation}" for deviation in origin.deviations), ""]
    lines += ["**Options**" if options else "No options.", ""]
    for option, parameter in options.items():
        option_term = f"`{option}`"
        if allowed := format_allowed_values(parameter):
            is_described = describe_values(parameter.annotation)
            option_term += f": {shorten_allowed_values(allowed)}" if is_described else f": `{allowed}`"
        if parameter.default is not parameter.empty:
            option_term += f"; default `{format_default(parameter.default)}`"
        lines.append(make_definition(option_term, descriptions.get(option, "")))
    return "\n".join([*lines, f"Class: `{cls.__module__}:{cls.__qualname__}`", ""])


def shorten_allowed_values(text: str) -> str:
    """Return the allowed values of an option, which error messages spell out, in the short terms of a reference."""
    text = text.replace("a list in which each item is", "a list, each item")
    text = text.replace("a whole number", "integer").replace("a number", "float").replace("a string", "string")
    text = text.replace("integer of at least", "integer \N{GREATER-THAN OR EQUAL TO}")
    text = text.replace("float of at least", "float \N{GREATER-THAN OR EQUAL TO}")
    return re.sub(r"'([^']*)'", r'`"\1"`', text.replace("true or false", "boolean"))


def read_suite_areas() -> dict[str, dict[str, str]]:
    """Return the row of each baseline in the recorded results over the test tables of suite v1."""
    with SUITE_RESULTS.open(encoding="utf-8", newline="") as file:
        return {row["strategy"]: row for row in csv.DictReader(file)}


def format_area(row: Mapping[str, str]) -> str:
    low, middle, high = (float(row[key]) for key in ("area_mean_lower", "area_mean", "area_mean_upper"))
    return f"{middle:.3f} ({low:.3f}\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}{high:.3f})"


def describe_features() -> str:
    lines = ["| name | what a row contains |", "|---|---|"]
    lines += [f"| [`{name}`](#features-{name}) | {summarize_class(cls)} |" for name, cls in FEATURES.items()]
    for name, cls in FEATURES.items():
        cost = "Each row requires scheduling the program." if cls.builds_programs else "No program is scheduled."
        prose = split_docstring(inspect.getdoc(cls) or "", ())[0]
        lines += ["", f"(features-{name})=", f"## {name}", "", prose, "", cost, ""]
    return "\n".join(lines)


# The command line


def describe_commands() -> str:
    """Return a section for each command, with its arguments and options, from the tree of commands."""
    root = load_commands()
    context = root.context_class(root, info_name="searchlab")
    return "\n".join(
        [
            strip_markup(root.epilog or ""),
            "",
            *list_parameters(root, context),
            *make_command_sections(root, context, level=2),
        ]
    )


def make_command_sections(group: Any, context: Any, level: int) -> list[str]:
    """Return the sections of the commands of a group. Commands are typer's, which are its own or click's."""
    lines: list[str] = []
    for name, command in group.commands.items():
        command_context = command.context_class(command, info_name=name, parent=context)
        usage = " ".join([command_context.command_path, *command.collect_usage_pieces(command_context)])
        usage = re.sub(r"\{(.*?)\}(?:\.{3})?", r"\1", usage)
        help_text = strip_markup(inspect.cleandoc(command.help or ""))
        lines += [f"{'#' * level} {command_context.command_path}", "", help_text, ""]
        if hasattr(command, "commands"):
            lines += make_command_sections(command, command_context, level + 1)
        else:
            lines += [f"```text\n{usage}\n```", "", *list_parameters(command, command_context)]
    return lines


def list_parameters(command: Any, context: Any) -> list[str]:
    """Return the arguments and options as the help shows them: their names and types, and what they are."""
    help_records = [parameter.get_help_record(context) for parameter in command.params if not parameter.hidden]
    return [
        make_definition(f"`{format_metavar(spelling)}`", format_bounds(strip_markup(text)))
        for spelling, text in help_records
    ]


def format_metavar(spelling: str) -> str:
    """Return the spelling of an option with a placeholder in the usual style, ``--jobs N``; arguments have none."""
    placeholders = {"int": "N", "int range": "N", "float": "X", "float range": "X", "str": "TEXT", "path": "PATH"}
    name, _, type_name = re.sub(r"<(?:list\[)?(.*?)\]?>$", r"<\1>", spelling).rstrip(">").partition(" <")
    if "|" in type_name:
        return f"{name} {type_name}"
    return f"{name} {placeholders.get(type_name.lower(), type_name)}" if type_name and name.startswith("-") else name


def format_bounds(text: str) -> str:
    text = re.sub(r"(\d+)<=x<=(\d+)", r"\1 to \2", text)
    return re.sub(r"x>=(\d+)", r"at least \1", text)


# The study file


TITLES_BY_STRUCT: dict[type[msgspec.Struct], str] = {
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


def describe_study_file() -> str:
    """Return a section for each table of a study file, with its keys, from the JSON Schema of study files."""
    definitions = make_study_schema()["$defs"]
    if missing_names := {name for name in definitions if definitions[name].get("type") == "object"} - {
        struct.__name__ for struct in TITLES_BY_STRUCT
    }:
        raise ValueError(f"TITLES_BY_STRUCT in docs/generate.py lacks {sorted(missing_names)}")
    lines = []
    for struct, title in TITLES_BY_STRUCT.items():
        schema = definitions[struct.__name__]
        keys = schema["properties"]
        descriptions = collect_descriptions(struct, keys) | {"kind": "Selects this kind of measurement."}
        lines += [f"({struct.__name__.lower()})=", f"## {title}", ""]
        lines += [split_docstring(inspect.getdoc(struct) or "", keys)[0], ""]
        for key, value_schema in keys.items():
            term = f"`{key}`: {format_type(value_schema)}"
            if key in schema.get("required", []):
                term += ", required"
            elif "default" in value_schema and value_schema["default"] not in (None, "", {}, []):
                default = value_schema["default"]
                term += ", default " + ("`local`" if isinstance(default, dict) else f"`{json.dumps(default)}`")
            lines.append(make_definition(term, descriptions.get(key, "")))
    return "\n".join(lines)


def format_type(value_schema: Mapping[str, Any], plural: bool = False) -> str:
    """Return what a value of the schema may be, in TOML's terms, with links to the sections of tables."""
    plural_ending = "s" if plural else ""
    if "$ref" in value_schema:
        return f"[table{plural_ending}](#{value_schema['$ref'].rpartition('/')[2].lower()})"
    if "anyOf" in value_schema:
        member_types = [format_type(member, plural) for member in value_schema["anyOf"] if member != {"type": "null"}]
        return " or ".join(dict.fromkeys(member_types))
    if "enum" in value_schema:
        return " or ".join(f"`{json.dumps(member)}`" for member in value_schema["enum"])
    if value_schema.get("type") == "array":
        if "prefixItems" in value_schema:
            return f"pair{plural_ending}"
        items_text = f" of {format_type(value_schema['items'], True)}" if value_schema.get("items") else ""
        return f"array{plural_ending}{items_text}"
    type_names = {"number": "float", "object": "table"}
    return type_names.get(value_schema.get("type", ""), value_schema.get("type", "any value")) + plural_ending


# Tutorials


def make_tutorial_page(name: str) -> str:
    """Return the cells of a tutorial's script, each with what it printed when it was recorded (``docs/record.py``)."""
    script = (ROOT / "studies" / "tutorials" / f"{name}.py").read_text("utf-8")
    cells = split_cells(script)
    recording_details, outputs = read_recording(name, first_title=cells[0][0])
    lines = [
        "*Recorded with `{command}` on {date}, on {machine}, in {seconds} s.*".format_map(recording_details),
        "",
    ]
    if recording_details.get("busy") == "yes":
        idle_times = re.search(r"\b(On\s+two\s+idle\s+cores[^:]*):+\n\n((?:    .*\n|\n)+)", script)
        idle_figures = []
        if idle_times:
            idle_figures = [
                f"{' '.join(idle_times[1].split())}:",
                f"\n```text\n{inspect.cleandoc(idle_times[2])}\n```",
            ]
        lines += [
            "::::{note}",
            "The machine was busy during this recording: absolute times are too long, and time ratios are unreliable.",
            *idle_figures,
            "::::",
            "",
        ]
    if unknown_titles := set(outputs) - {title for title, _ in cells}:
        raise ValueError(
            f"{name}.py has no cells {sorted(unknown_titles)}: rerecord it with python docs/record.py {name}"
        )
    for title, code in cells:
        text, code = split_comment(code)
        lines += [f"## {title}", "", text, f"```python\n{code}\n```", ""]
        if printed_text := outputs.get(title, "").strip():
            lines += [f"```text\n{printed_text}\n```", ""]
    return "\n".join(lines)


def read_notebook(name: str) -> str:
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
            cell["metadata"] = {"mystnb": {"image": {"alt": NOTEBOOK_ALT_TEXTS[name][plot[1]]}}}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def make_script_notebook(name: str) -> str:
    """Return a tutorial's script as a notebook without outputs, in which programs and traces are highlighted."""
    script = (ROOT / "studies" / "tutorials" / f"{name}.py").read_text("utf-8")
    docstring = re.match(r'"""(.*?)"""', script, re.DOTALL)
    assert docstring is not None
    cells = [("markdown", docstring[1].strip())]
    for title, code in split_cells(script):
        text, code = split_comment(code)
        cells += [("markdown", f"## {title}\n\n{text}".strip())]
        code = re.sub(r"print\((.+)\.script\(\)\)", r"\1.show()", code)
        cells += [("code", re.sub(r"print\((.+\.trace)\)", r"\1.show()", code))]
    code_fields = {"code": {"execution_count": None, "outputs": []}}
    content = {
        "cells": [
            {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, **code_fields.get(kind, {}), "source": source}
            for number, (kind, source) in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def split_comment(code: str) -> tuple[str, str]:
    """Return the comment at the beginning of a cell as Markdown, and the rest of the cell."""
    comment = re.match(r"(?:#[^\n]*\n)*", code)
    assert comment is not None
    return re.sub(r"^# ?", "", comment[0], flags=re.MULTILINE), code[comment.end() :].strip()


def split_cells(script: str) -> list[tuple[str, str]]:
    """Return the title and the code of each cell of a script, whose cells begin with ``# %% Title``."""
    return re.findall(r"^# %% ([^\n]*)\n(.*?)(?=^# %%|\Z)", script, re.MULTILINE | re.DOTALL)


def read_recording(name: str, first_title: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return how a tutorial was recorded, and what each cell printed; text before any title comes from the first."""
    text = (DOCS / "tutorials" / "recorded" / f"{name}.txt").read_text("utf-8")
    first_part, *other_parts = re.split(r"^# %% ", text, flags=re.MULTILINE)
    details = re.findall(r"^# (\w+): (.*)\n", first_part, re.MULTILINE)
    printed_text = re.sub(r"^# \w+: .*\n", "", first_part, flags=re.MULTILINE)
    return dict(details), {first_title: printed_text, **dict(part.split("\n", 1) for part in other_parts)}


if __name__ == "__main__":
    write_all()
