"""``searchlab table gate`` and ``searchlab table surrogate``: models of recorded trials that stand in for a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SearchlabError
from .terminal import AsJson, interruptible, name_and_value, out

Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        help="How it is trained: `features=program`, `members`, `rounds`, `num_leaves`, `learning_rate` or `seed`.",
        metavar="NAME=VALUE",
    ),
]


def table_surrogate(
    logs: Annotated[list[Path], typer.Argument(help="Logs of one space, or directories of them.", metavar="LOG...")],
    directory: Annotated[Path, typer.Option("--out", help="The directory of the surrogate.", metavar="DIR")],
    gate: Annotated[
        list[Path] | None, typer.Option(help="A file of `searchlab table gate`. May be repeated.", metavar="FILE")
    ] = None,
    option: Options = None,
    as_json: AsJson = False,
) -> None:
    """Train a surrogate table on logs: it answers for a space that no table can hold.

    The directory holds the logs, the models and the gate. A study uses it with `measure = { kind = "surrogate",
    path = "DIR" }`. A surrogate fails its gate if no complete table of a space of the same name passed.
    """
    import msgspec

    from ..measure.surrogate.manifest import Gate, ModelSettings, read_json
    from ..schema import explained
    from ..tables.surrogate.show import surrogate_table
    from ..tables.surrogate.train import train

    settings = explained(dict(name_and_value(text) for text in option or []), ModelSettings, "--option")
    gates = [one for path in gate or [] for one in read_json(path, list[Gate])]
    manifest = train(logs, directory, settings, gates)
    if as_json:
        print(json.dumps(msgspec.to_builtins(manifest), indent=2))
        return
    out.print(*surrogate_table(str(directory), manifest))


def table_gate(
    files: Annotated[list[Path], typer.Argument(help="Complete tables.", metavar="TABLE...")],
    to: Annotated[
        Path | None, typer.Option("--out", help="The JSON file that `searchlab table surrogate --gate` takes.")
    ] = None,
    option: Options = None,
    seeds: Annotated[int, typer.Option(min=2, help="Seeds of each policy.")] = 30,
    trials: Annotated[int, typer.Option(min=2, help="Trials of each run.")] = 100,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Measure the gate of surrogates on complete tables, where the truth is known.

    A surrogate is trained on at most 2,000 configs of each table. It must predict the rest, and ten policies must do on
    it as they do on the table.
    """
    import msgspec

    from ..log.format import find_logs
    from ..measure.surrogate.manifest import ModelSettings
    from ..schema import explained
    from ..tables.surrogate.gate import measure_gate
    from ..tables.surrogate.show import gate_tables

    settings = explained(dict(name_and_value(text) for text in option or []), ModelSettings, "--option")
    paths = [path for given in files for path in find_logs(given)]
    if not paths:
        raise SearchlabError(f"there is no log (*.jsonl) in {', '.join(map(str, files))}")
    gates = []
    with interruptible("the same command, which starts again"):
        for path in paths:
            gates.append(measure_gate(path, settings, seeds=seeds, trials=trials, jobs=jobs))
            if to is not None:
                _write(to, msgspec.json.format(msgspec.json.encode(gates), indent=2) + b"\n")
    if as_json:
        print(json.dumps(msgspec.to_builtins(gates), indent=2))
        return
    out.print(*gate_tables(gates))


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise SearchlabError(f"cannot write {path}: {error.strerror}") from None
