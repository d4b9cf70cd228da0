"""Every command that README and the pages show exists, with its options."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec

import pytest

from searchlab.cli.app import TRACEBACK_OPTION, TRUST_OPTION, load_commands

from .pages import BLOCKS, ROOT, Block

COMMANDS = [
    pytest.param(words, id=f"{block}: {' '.join(words)}")
    for block in BLOCKS
    if block.language == "console"
    for words in block.commands
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_documented_command_is_valid(words: list[str]) -> None:
    match words:
        case ["searchlab", *rest]:
            check_searchlab([word for word in rest if word not in (TRACEBACK_OPTION, TRUST_OPTION)])
        case ["make", *rest]:
            targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {word for word in rest if "=" not in word} <= set(targets)
        case ["pip", "install", *rest]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            for extras in re.findall(r"\[(.*?)\]", " ".join(rest)):
                assert set(extras.split(",")) <= set(project["optional-dependencies"])
        case ["python", "-m", module, *_]:
            assert find_spec(module)
        case ["python", script, *_]:
            assert (ROOT / script).is_file()
        case _:
            pytest.fail(f"no check for this command: {' '.join(words)}")


def check_searchlab(words: list[str]) -> None:
    """Parse the command as click does, up to where it would be called: options, their values and arguments."""
    command = load_commands()
    context = None
    name = "searchlab"
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        context = command.context_class(command, info_name=name, parent=context)
        name, *words = words
        assert name in command.commands, f"{context.command_path} has no command {name!r}"
        command = command.commands[name]
    if hasattr(command, "commands"):  # an option of searchlab itself, such as --version
        assert set(words) <= {name for option in command.params for name in option.opts}
    else:
        command.make_context(name, list(words), parent=context)


def test_wrong_commands_are_detected() -> None:
    for line in (
        "searchlab runn x",
        "searchlab run x --job 2",
        "searchlab tune",
        "make tests",
        "pip install '.[dusk]'",
    ):
        block = Block(ROOT / "README.md", 1, "console", f"$ {line}\n", "", "")
        with pytest.raises(Exception, match="searchlab|No such|Missing|assert"):
            test_a_documented_command_is_valid(block.commands[0])


def test_every_block_is_understood() -> None:
    for block in BLOCKS:
        assert block.test in ("", "run", "file", "fragment", "keys", "output", "skip"), block
        assert block.test == "output" or (block.test in ("file", "keys", "skip")) == bool(block.argument), block
