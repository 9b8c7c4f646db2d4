"""`python -m leader` prints text that other processes wrote: it must not act on a terminal or forge lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leader import MemberNode, Participant, ParticipantView, Rank
from leader.cli.main import Election, _table, _view

REASON = "one file\n0  forged  10.0.0.1:1  yes\x1b[2J"
WHO = Participant("a", "host\r", 1)
VIEW = ParticipantView(WHO, 0, False, "n", 1, MemberNode(WHO, 1, Rank(unready=2, id="a"), reasons=(REASON,)))
SESSION: Any = None


def test_control_characters_in_the_texts_of_others_are_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Election(SESSION, "/e", as_json=False).say({}, *_table([VIEW]))

    out = capsys.readouterr().out
    assert len(out.splitlines()) == 2
    assert "one file?0  forged" in out
    assert out.replace("\n", "").isprintable()


def test_json_has_the_texts_of_others_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    Election(SESSION, "/e", as_json=True).say({"participants": [_view(VIEW)]}, *_table([VIEW]))

    out = capsys.readouterr().out
    assert json.loads(out)["participants"][0]["reasons"] == [REASON]
    assert out.replace("\n", "").isprintable()
