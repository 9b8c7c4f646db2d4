"""The tests, commands, options and exit codes that the documentation of blobsync names exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from blobsync.cli.main import _EXITS, BlobsyncExit, in_options, main
from blobsync.errors import BlobSyncError

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "blobsync.md").read_text()
COMMANDS = {
    name: main.get_command(click.Context(main), name) for name in main.list_commands(click.Context(main))
}


def test_each_test_that_the_page_names_exists() -> None:
    file, named = "", 0
    for path, test in re.findall(r"`((?:[\w/]+/test_\w+\.py)?)(?:::(test_\w+))?`", PAGE):
        file, named = path or file, named + bool(path or test)
        if path or test:
            text = (ROOT / "tests" / file).read_text()
            assert f"def {test}(" in text if test else "def test_" in text, f"{file}::{test}"
    assert named > 30


def test_each_option_that_the_page_names_exists() -> None:
    known = {
        option for command in COMMANDS.values() if command for item in command.params for option in item.opts
    }
    named = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", PAGE))
    assert named - known - {"--help"} == set()


def test_each_command_is_on_the_page_and_has_a_help_text() -> None:
    for name, command in COMMANDS.items():
        assert command is not None
        assert re.search(rf"`{name}\b", PAGE), name
        shown = CliRunner().invoke(main, [name, "--help"])
        assert shown.exit_code == 0
        assert f"Usage: main {name}" in shown.output


def test_each_example_of_the_help_is_a_line_of_its_own() -> None:
    lines = CliRunner().invoke(main, ["--help"]).output.splitlines()

    assert "  python -m blobsync status --store /var/lib/blobs" in lines
    assert not any("\\b" in line for line in lines)


def test_each_exit_code_is_in_the_help_and_on_the_page() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    for code in BlobsyncExit:
        assert re.search(rf"\b{code.value} [a-z]", text), code
        assert re.search(rf"\b{code.value} [a-z]", PAGE), code


def test_each_error_of_the_table_of_exit_codes_exists() -> None:
    def codes(kind: type[BlobSyncError]) -> set[str]:
        return {kind.code}.union(*(codes(below) for below in kind.__subclasses__()))

    assert set(_EXITS) - codes(BlobSyncError) == set()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("If it is true, say allow_empty", "If it is true, say --keep-nothing"),
        ("raise max_share", "raise --max-share"),
        ("endpoint_url 'x' is not", "--endpoint 'x' is not"),
        ("object_quarantined stays", "object_quarantined stays"),
    ],
)
def test_errors_say_options_where_the_library_says_parameters(said: str, shown: str) -> None:
    assert in_options(said) == shown
