"""What the command line prints: others' texts do nothing to the terminal."""

from __future__ import annotations

import pytest

from nimbus.cli.output import Output

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
