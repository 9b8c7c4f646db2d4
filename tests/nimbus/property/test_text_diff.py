"""Laws of the comparison of texts: the diff turns one into the other, and the comparison ends."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbus.domain.pipelines.release_files import TooDifferentError, unified_diff

_LINES = st.lists(
    st.sampled_from(["a", "b", "c", "", "+x", "-y", " z", "@@ -1 +1 @@", "\r", "\u2028"]), max_size=40
)
_TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, _LINES, st.sampled_from(["", "\n"]))


def patched(before: str, lines: list[str]) -> str:
    """The text after a unified diff was applied."""
    old, at = re.findall(r"[^\n]*\n|[^\n]+$", before), 0
    new: list[str] = []
    for number, line in enumerate(lines):
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            begin = int(start) if count == "0" else int(start) - 1
            new += old[at:begin]
            at = begin
        elif line.startswith("\\"):
            continue
        else:
            cut = number + 1 < len(lines) and lines[number + 1].startswith("\\")
            text = line[1:] + ("" if cut else "\n")
            if line[0] != "+":
                assert old[at] == text
                at += 1
            if line[0] != "-":
                new.append(text)
    return "".join([*new, *old[at:]])


@given(_TEXTS, _TEXTS)
def test_diff_turns_the_first_text_into_the_second(before: str, after: str) -> None:
    assert patched(before, unified_diff(before, after)) == after


@given(_TEXTS)
def test_equal_texts_have_no_diff(text: str) -> None:
    assert unified_diff(text, text) == []


def test_diff_is_the_one_that_tools_print() -> None:
    before = "".join(f"{n}\n" for n in range(20))
    after = before.replace("5\n", "five\n", 1).replace("18\n", "")

    assert unified_diff(before, after) == [
        "@@ -3,7 +3,7 @@", " 2", " 3", " 4", "-5", "+five", " 6", " 7", " 8",
        "@@ -16,5 +16,4 @@", " 15", " 16", " 17", "-18", " 19",
    ]  # fmt: skip
    assert unified_diff("", "a") == ["@@ -0,0 +1 @@", "+a", "\\ No newline at end of file"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\n" * 131_072, "b\n" * 131_072),
        ("a\nb\n" * 65_536, "b\nb\na\n" * 43_690),
        ("".join(f"{n % 97}\n" for n in range(80_000)), "".join(f"{n % 89}\n" for n in range(80_000))),
    ],
)
def test_texts_that_differ_everywhere_are_given_up(before: str, after: str) -> None:
    with pytest.raises(TooDifferentError):
        unified_diff(before, after)
