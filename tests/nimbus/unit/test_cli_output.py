"""Output of the command line: texts of other users cannot control the terminal."""

from __future__ import annotations

import json

import pytest

from nimbus.cli import main
from nimbus.cli.exits import CliError, Exit
from nimbus.cli.output import Output
from nimbus.definition.difference import changes

BIDI = "\u202e\u2066\u200f\u061c"
HOSTILE = "a\x1b]0;title\x07\x1b[2J\x9b31m\rb\nc\td é [bold]"


@pytest.mark.parametrize("method", ["line", "note", "table"])
def test_output_shows_control_characters_and_sends_none_to_the_terminal(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Output("table")
    if method == "table":
        out.table(("reason",), [(HOSTILE,)])
    else:
        getattr(out, method)(HOSTILE)

    said = "".join(capsys.readouterr())
    assert not set(said) & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
    assert r"a\x1b]0;title\x07\x1b[2J\x9b31m\x0db" in said
    assert "é [bold]" in said


def test_output_shows_characters_that_reverse_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    Output().line(f"a{BIDI}b")

    assert capsys.readouterr().out == "a\\u202e\\u2066\\u200f\\u061cb\n"


def test_json_escapes_control_characters_and_stays_the_same_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = {"reason": HOSTILE + BIDI + "\x7f\u2028", BIDI: ["é", "\\", "\\\x9b"]}

    Output("json").data(document)

    said = capsys.readouterr().out
    assert json.loads(said) == document
    assert "é" in said
    assert not set(said) & {*map(chr, (*range(10), *range(11, 32), *range(127, 160), 0x2028)), *BIDI}


@pytest.mark.parametrize("error", [CliError(HOSTILE, code="x", exit_code=Exit.USAGE), ValueError(HOSTILE)])
def test_error_line_sends_no_control_characters(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    main._explain(error, debug=False)

    said = capsys.readouterr().err
    assert not set(said) & {*map(chr, (*range(9), *range(11, 32), *range(127, 160)))}
    assert r"a\x1b]0;title" in said


def test_schedules_are_compared_by_name() -> None:
    """Not as one list, of which a plan would show all for a change of one."""
    daily, closing = {"name": "daily", "cron": "0 6 * * *"}, {"name": "closing", "cron": "0 18 * * *"}
    later = {**closing, "cron": "0 19 * * *"}

    found = changes(
        {"schedule": daily, "more_schedules": [closing]}, {"schedule": later, "more_schedules": [daily]}
    )

    assert [(one.key, one.then) for one in found] == [("schedules.closing.cron", "0 19 * * *")]
    assert [one.key for one in changes({"schedule": None}, {"schedule": {"cron": "@daily"}})] == ["schedule"]
